"""The encoder against figures and implementations that are not ours."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertx.attention import attend, attention_mask
from bertx.encoder import Encoder, count, encode
from bertx.encoder_config import REAL_STD, EncoderConfig
from bertx.families import encoder_of
from bertx.heads import Pooler
from bertx.positions import relative_rows
from bertx.types import DropoutRates, View

SMALL = EncoderConfig(vocab_size=50, layers=2, width=16, heads=2, mlp_width=32, max_positions=24, std=0.2)


@functools.cache
def compiled(config: EncoderConfig):
    """(init, apply); op by op they would compile hundreds of functions."""
    encoder = Encoder(config)
    return jax.jit(encoder.init), jax.jit(encoder.apply)


def init(config: EncoderConfig):
    return compiled(config)[0](jax.random.key(0), view(1, 8, 8))


def apply(config: EncoderConfig, params, x: View, *rates, **rngs):
    return compiled(config)[1](params, x, *rates, **rngs).hidden_BLD


def view(rows: int, length: int, real: int, vocab_size: int = 50, seed: int = 0) -> View:
    """`rows` rows of which the first `real` places are text, the second half of it type 1."""
    rng = np.random.default_rng(seed)
    at = np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length))
    segment = (at < real).astype(np.int32)
    tokens = rng.integers(0, vocab_size, (rows, length)).astype(np.int32)
    return View(tokens, segment, at, ((at >= real // 2) & (at < real)).astype(np.int32))


def anything(config: EncoderConfig):
    """Parameters without the zeros and ones that a fresh encoder has, which would hide errors."""
    rng, x = np.random.default_rng(0), view(1, 2, 2)
    shapes = jax.eval_shape(Encoder(config).init, jax.random.key(0), x)['params']
    return jax.tree.map(lambda x: rng.normal(0.1, 0.3, x.shape).astype(np.float32), shapes)


tapped = functools.partial(jax.jit(encode, static_argnames=('config', 'taps')), taps=True)


def torch_of(x):
    import torch

    return torch.tensor(np.array(x)).long()


# The last column: whether the figure holds the pooler.
COUNTS = [
    ('bert', 'base', 30522, 109_482_240, True),
    ('bert', 'large', 30522, 335_141_888, True),
    ('spanbert', 'base', 28996, 108_310_272, True),
    ('roberta', 'base', 50265, 124_645_632, True),
    ('albert', 'base', 30000, 11_683_584, True),
    ('albert', 'xxlarge', 30000, 222_595_584, True),
    ('electra', 'small', 30522, 13_483_008, False),
    ('distilbert', 'base', 30522, 66_362_880, False),
    ('deberta', 'base', 50265, 138_601_728, False),
    ('deberta_v3', 'base', 128100, 183_831_552, False),
    ('modernbert', 'base', 50368, 149_014_272, False),
]


@pytest.mark.parametrize(('family', 'size', 'vocab_size', 'expected', 'pooler'), COUNTS)
def test_published_parameter_counts(family, size, vocab_size, expected, pooler):
    config = encoder_of(family, size, vocab_size)
    found = count(jax.eval_shape(Encoder(config).init, jax.random.key(0), view(1, 8, 8)))
    if pooler:
        found += count(jax.eval_shape(Pooler(config).init, jax.random.key(0), jnp.zeros((1, 1, config.width))))
    assert found == expected


@pytest.mark.parametrize('own', [{'position_offset': 2}, {'relative_buckets': 4, 'relative_shared': True}])
def test_a_plain_loop_gives_the_same_mask_decoder(own):
    """DeBERTa's last layer, token by token: twice more, on the states before it plus absolute positions."""
    config = dataclasses.replace(SMALL, positions='relative', type_vocab=0, mask_decoder=True, norm_eps=1e-7, **own)
    x = view(2, 7, 5)
    params = anything(config)
    encoded = tapped(config, params, x)
    p = jax.tree.map(np.float64, params)
    last, head, rows = (
        jax.tree.map(lambda x: x[-1], p['layers']),
        config.width // config.heads,
        relative_rows(config, 7),
    )
    of_place = ('key', 'query') if config.relative_shared else ('place_key', 'place_query')
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)

    def norm(x, at):
        return (x - x.mean()) / np.sqrt(x.var() + config.norm_eps) * at['scale'] + at['bias']

    def project(name, x):
        a = last['attention'][name]
        return np.einsum('d,dhc->hc', x, a['kernel']) + a.get('bias', 0.0)

    def layer(queries, states, real):
        out = []
        for i, query in enumerate(queries):
            q, mixed = project('query', query), np.zeros((config.heads, head))
            for h in range(config.heads):
                scores = []
                for j in range(real):
                    k, place = project('key', states[j]), p['place']['embedding'][rows[i, j]]
                    place = norm(place, p['place_norm']) if config.relative_shared else place
                    place_key, place_query = (project(name, place)[h] for name in of_place)
                    score = q[h] @ k[h] + q[h] @ place_key + k[h] @ place_query
                    scores.append(score / math.sqrt(3 * head))
                share = np.exp(scores) / np.exp(scores).sum()
                mixed[h] = sum(share[j] * project('value', states[j])[h] for j in range(real))
            a = last['attention']['output']
            y = norm(np.einsum('hc,hcd->d', mixed, a['kernel']) + a['bias'] + query, last['attention_norm'])
            hidden = gelu(y @ last['mlp_in']['kernel'] + last['mlp_in']['bias'])
            out.append(norm(hidden @ last['mlp_out']['kernel'] + last['mlp_out']['bias'] + y, last['mlp_norm']))
        return np.array(out)

    for row in range(2):
        states = np.float64(encoded.states_NBLD[-2, row, :5])
        np.testing.assert_allclose(layer(states, states, 5), encoded.hidden_BLD[row, :5], atol=1e-5)
        first = config.position_offset
        decoded = layer(states + p['embeddings']['position']['embedding'][first : first + 5], states, 5)
        decoded = layer(decoded, states, 5)
        np.testing.assert_allclose(decoded, encoded.for_tokens[row, :5], atol=1e-5)


def test_local_layers_see_half_a_window_to_each_side():
    config = dataclasses.replace(
        SMALL, layers=4, positions='rotary', type_vocab=0, prenorm=True, gated=True, local_window=6, global_every=3
    )
    encoded = tapped(config, anything(config), view(1, 12, 12))
    at = np.arange(12)
    near = abs(at[:, None] - at) <= 3
    for layer, seen in enumerate(encoded.attention_NBHQK[:, 0] > 0):
        np.testing.assert_array_equal(seen, np.broadcast_to((layer % 3 == 0) | near, seen.shape))


@pytest.mark.parametrize(('buckets', 'longest'), [(256, 512), (32, 128), (8, 600)])
def test_relative_rows_equal_transformers(buckets, longest):
    pytest.importorskip('torch')
    from transformers.models.deberta_v2.modeling_deberta_v2 import make_log_bucket_position

    at = np.arange(600)
    theirs = make_log_bucket_position(torch_of(at[:, None] - at), buckets, longest).numpy().astype(int)
    config = dataclasses.replace(SMALL, positions='relative', relative_buckets=buckets, max_positions=longest)
    np.testing.assert_array_equal(relative_rows(config, 600), np.clip(theirs + buckets, 0, 2 * buckets - 1))


def test_groups_repeat_their_layer():
    """Two groups of two layers are four layers with the same parameters in twos."""
    shared, plain = (dataclasses.replace(SMALL, layers=4, groups=groups) for groups in (2, 0))
    params = anything(shared)
    repeated = params | {'layers': jax.tree.map(lambda x: x.repeat(2, axis=0), params['layers'])}
    x = view(2, 8, 6)
    a, b = (tapped(c, p, x) for c, p in ((shared, params), (plain, repeated)))
    np.testing.assert_allclose(a.states_NBLD, b.states_NBLD, atol=1e-6)
    np.testing.assert_allclose(a.attention_NBHQK, b.attention_NBHQK, atol=1e-6)
    assert np.abs(a.states_NBLD[1] - a.states_NBLD[3]).max() > 0.1


def test_padding_changes_nothing():
    params = init(SMALL)
    short, long = view(3, 12, 12), view(3, 20, 12)
    long = long.replace(
        tokens=np.concatenate([short.tokens, long.tokens[:, 12:]], 1), type_ids=np.pad(short.type_ids, ((0, 0), (0, 8)))
    )
    a = apply(SMALL, params, short)
    b = apply(SMALL, params, long)[:, :12]
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_packed_neighbours_do_not_see_each_other():
    params = init(SMALL)
    one, two = view(1, 9, 9, seed=1), view(1, 7, 7, seed=2)
    join = lambda a, b: np.concatenate([a, b], axis=1)
    packed = jax.tree.map(join, one, two.replace(segment_ids=two.segment_ids + 1))
    out = apply(SMALL, params, packed)
    np.testing.assert_allclose(out[:, :9], apply(SMALL, params, one), atol=1e-6)
    np.testing.assert_allclose(out[:, 9:], apply(SMALL, params, two), atol=1e-6)


@pytest.mark.parametrize('real', [1, 5, 8])
def test_attention_implementations_agree(real):
    q, k, v = jax.random.normal(jax.random.key(0), (3, 2, 8, 2, 4))
    mask = attention_mask(view(2, 8, real).segment_ids)
    plain, xla = (attend(q, k, v, mask, name)[0][:, :real] for name in ('plain', 'xla'))
    np.testing.assert_allclose(plain, xla, atol=1e-6)
    assert np.isfinite(attend(q, k, v, mask)[0]).all()


def test_unrolling_changes_neither_parameters_nor_results():
    rolled, unrolled = (dataclasses.replace(SMALL, unroll=n) for n in (1, 2))
    a, b = (init(c) for c in (rolled, unrolled))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    x = view(2, 8, 8)
    np.testing.assert_allclose(apply(rolled, a, x), apply(unrolled, b, x), atol=1e-6)


def test_dropout_is_off_without_rates_and_scales_with_them():
    x = view(8, 8, 8)
    params = init(SMALL)
    still = apply(SMALL, params, x)
    zero = DropoutRates(jnp.float32(0.0), jnp.float32(0.0))
    np.testing.assert_allclose(apply(SMALL, params, x, zero, rngs={'dropout': jax.random.key(1)}), still, atol=1e-6)

    drop = jax.jit(
        lambda rate, key: Encoder(SMALL).apply(params, x, DropoutRates(rate, rate), rngs={'dropout': key}).hidden_BLD
    )
    low, high = (np.abs(drop(jnp.float32(r), jax.random.key(1)) - still).mean() for r in (0.05, 0.4))
    assert 0 < low < high
    assert drop._cache_size() == 1
    a, b = (drop(jnp.float32(0.2), jax.random.key(s)) for s in (1, 2))
    assert np.abs(a - b).max() > 0.1


def test_initial_standard_deviation():
    params = init(EncoderConfig(vocab_size=2000, layers=1, width=64, heads=1, mlp_width=256, std=0.05))['params']
    table = params['embeddings']['token']['embedding']
    assert float(table.std()) == pytest.approx(0.05 * REAL_STD, rel=0.01)
    assert float(jnp.abs(table).max()) <= 0.1


@pytest.mark.parametrize('groups', [0, 1])
def test_making_activations_again_changes_no_gradient(groups):
    config, x = dataclasses.replace(SMALL, groups=groups), view(2, 8, 6)
    params = anything(config)

    def loss(config, params):
        return (Encoder(config).apply({'params': params}, x).hidden_BLD ** 2).sum()

    again = dataclasses.replace(config, remat=True)
    assert 'remat' in str(jax.make_jaxpr(functools.partial(loss, again))(params))
    one, other = (jax.jit(jax.grad(functools.partial(loss, c)))(params) for c in (config, again))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-4), one, other)
    assert tapped(again, params, x).states_NBLD.shape[0] == config.layers + 1
