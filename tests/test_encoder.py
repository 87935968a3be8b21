"""The encoder against figures and implementations that are not ours."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertx.attention import attend, attention_mask
from bertx.encoder import Encoder, count
from bertx.encoder_config import REAL_STD, EncoderConfig
from bertx.families import encoder_of
from bertx.heads import Pooler
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


# The last column: whether the figure holds the pooler.
COUNTS = [
    ('bert', 'base', 30522, 109_482_240, True),
    ('bert', 'large', 30522, 335_141_888, True),
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


def test_equals_transformers_bert():
    torch = pytest.importorskip('torch')
    from transformers import BertConfig, BertModel

    config = EncoderConfig(vocab_size=50, layers=3, width=16, heads=2, mlp_width=32, max_positions=24, std=0.2)
    params = init(config)['params']
    rng = np.random.default_rng(0)  # also what starts at zero or one
    params = jax.tree.map(lambda x: x + rng.normal(0, 0.1, x.shape).astype(np.float32), params)
    peer = BertModel(
        BertConfig(
            vocab_size=50, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
            max_position_embeddings=24,
        ),
        add_pooling_layer=False,
    ).eval()  # fmt: skip
    e, layers = params['embeddings'], params['layers']
    tables = {'word_embeddings': 'token', 'position_embeddings': 'position', 'token_type_embeddings': 'type'}
    weights = {f'embeddings.{theirs}.weight': e[ours]['embedding'] for theirs, ours in tables.items()}
    weights |= {'embeddings.LayerNorm.weight': e['norm']['scale'], 'embeddings.LayerNorm.bias': e['norm']['bias']}
    for i in range(3):
        one = jax.tree.map(lambda x: x[i], layers)  # noqa: B023
        at = f'encoder.layer.{i}.'
        for name in ('query', 'key', 'value'):
            weights[f'{at}attention.self.{name}.weight'] = one['attention'][name]['kernel'].reshape(16, 16).T
            weights[f'{at}attention.self.{name}.bias'] = one['attention'][name]['bias'].reshape(16)
        weights[f'{at}attention.output.dense.weight'] = one['attention']['output']['kernel'].reshape(16, 16).T
        weights[f'{at}attention.output.dense.bias'] = one['attention']['output']['bias']
        for theirs, ours in (('intermediate', 'mlp_in'), ('output', 'mlp_out')):
            weights[f'{at}{theirs}.dense.weight'] = one[ours]['kernel'].T
            weights[f'{at}{theirs}.dense.bias'] = one[ours]['bias']
        for theirs, ours in (('attention.output', 'attention_norm'), ('output', 'mlp_norm')):
            weights[f'{at}{theirs}.LayerNorm.weight'] = one[ours]['scale']
            weights[f'{at}{theirs}.LayerNorm.bias'] = one[ours]['bias']
    missing, extra = peer.load_state_dict({k: torch.tensor(np.array(v)) for k, v in weights.items()}, strict=False)
    assert not extra
    assert not [name for name in missing if 'position_ids' not in name]
    x = view(4, 20, 13)
    as_torch = lambda a: torch.tensor(np.array(a)).long()
    with torch.no_grad():
        theirs = peer(
            as_torch(x.tokens), attention_mask=as_torch(x.segment_ids), token_type_ids=as_torch(x.type_ids)
        ).last_hidden_state.numpy()
    ours = apply(config, {'params': params}, x)
    np.testing.assert_allclose(ours[:, :13], theirs[:, :13], atol=2e-5, rtol=2e-5)


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
