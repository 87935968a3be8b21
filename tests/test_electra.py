"""The ELECTRA family: what the generator samples, what counts as fake, and what is measured of it."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_networks import CLS, FIRST, MASK, PAD, SEP, STD, WIDTH, B, L, Setup, V, mean, rows, setup

from bertx import watch
from bertx.encoder_config import REAL_STD, EncoderConfig
from bertx.errors import BadInput
from bertx.objectives import base, electra, generator
from bertx.types import Example, view_of

# ---- what it starts from and whether it learns ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ('name', 'embeddings'),
    [
        ('electra', 'tied'),
        ('electra', 'untied'),
        ('electra', 'gdes'),
        ('replace_mlm', 'tied'),
        ('all_tokens_mlm', 'tied'),
    ],
)
def test_losses_at_the_start(name, embeddings):
    """Tied output after a LayerNorm: logits have variance E sigma^2, so their loss is ln V + E sigma^2 / 2, E being the
    width of the tables. Copying has probability 1/2."""
    s = setup(name, **({} if embeddings == 'tied' else {'embeddings': embeddings}))
    losses, metrics = s.terms(s.params, rows(64))
    for loss, weight in s.objective.weights(s.corrupt(rows(64))[1]).items():
        np.testing.assert_array_equal(losses[f'{name}/{loss}'].term.weight, weight)
    spread = lambda width: width * (STD * REAL_STD) ** 2 / 2
    own = WIDTH // 4 if embeddings == 'untied' else WIDTH
    assert mean(losses[f'{name}/generator'].term) == pytest.approx(np.log(V) + spread(own), abs=0.1)
    guess = np.log(V) + spread(WIDTH)
    fakes = metrics[f'{name}/fakes_of_masked']
    share = float(fakes.sum.sum() / losses[f'{name}/loss'].term.weight.sum())
    expected = {
        'electra': np.log(2),
        'replace_mlm': guess,
        'all_tokens_mlm': share * (np.log(2) + guess) - (1 - share) * np.log(0.5 + 0.5 / V),
    }
    assert mean(losses[f'{name}/loss'].term) == pytest.approx(expected[name], abs=0.1)
    assert mean(fakes) > 0.98  # a generator that guesses


@pytest.mark.parametrize(
    ('name', 'variant'), [('electra', 'clean'), ('electra', 'deberta'), ('replace_mlm', ''), ('all_tokens_mlm', '')]
)
def test_overfits_one_batch(name, variant):
    s, batch = setup(name, **({'variant': 'deberta'} if variant == 'deberta' else {})), rows()
    state = s.state
    # So hot that fakes never end: else there are none once the generator knows the batch.
    objectives = {name: dataclasses.replace(s.objective, temperature=np.float32(1e4))}
    for _ in range(150):
        state, window = s.step(state, batch, objectives, learning_rate=1e-2)
    assert mean(window[f'{name}/generator']) < 0.1
    assert mean(window[f'{name}/loss']) < 0.1
    if name == 'electra':
        assert mean(window['electra/auc']) > 0.99
        assert mean(window['electra/recall']) > 0.9


# ---- the generator's samples ----------------------------------------------------------------------------------------


def spoken(s: Setup, batch: Example, spoken_BK):
    """What the encoder reads where the generator says these tokens, and the targets."""
    view, targets = s.corrupt(batch)
    logits = 1e4 * jax.nn.one_hot(spoken_BK(targets), V)
    head = SimpleNamespace(generator=lambda *_: logits)
    return s.objective.rewrite(head, SimpleNamespace(embeddings=None), view, targets, None)


def by_hand(targets, tokens, b):
    """The row with the sampled tokens, by a loop over the slots."""
    row = np.array(targets['tokens'][b])
    for at, weight, token in zip(targets['at'][b], targets['weight'][b], tokens[b], strict=True):
        if weight:
            row[at] = token
    return row


def test_a_correct_sample_is_an_original_token():
    """Of the generator's tokens every second is right: labels and input by hand."""
    s, batch = setup(), rows()
    other = lambda tokens: (tokens - FIRST + 7) % (V - FIRST) + FIRST
    half = lambda t: jnp.where(jnp.arange(t['at'].shape[1])[None] % 2, t['label'], other(t['label']))
    view, targets = spoken(s, batch, half)
    said = np.asarray(half(targets))
    assert targets['weight'].sum() > 20
    for b in range(B):
        row = by_hand(targets, said, b)
        np.testing.assert_array_equal(view.tokens[b], row)
        np.testing.assert_array_equal(targets['fake'][b], row != batch.tokens[b])
        right = [at for i, at in enumerate(targets['at'][b]) if targets['weight'][b, i] and i % 2]
        assert not targets['fake'][b][np.array(right)].any()
    assert targets['fake'].sum() == targets['weight'][:, ::2].sum()


def test_a_fixed_row_by_hand():
    """[CLS] 10 11 12 13 [SEP] pad: 11 and 13 are masked; the generator says 11, which is right, and 40."""
    z = lambda *x: jnp.array([x])
    targets = {
        'at': z(2, 4, 0), 'label': z(11, 13, CLS), 'weight': z(1.0, 1.0, 0.0),
        'tokens': z(CLS, 10, 11, 12, 13, SEP, PAD),
        'masked': z(0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 0.0), 'real': z(*[1.0] * 6, 0.0), 'scored': z(*[1.0] * 6, 0.0),
        'key': jax.random.key_data(jax.random.key(0))[None],
    }  # fmt: skip
    view = view_of(rows(1, 7)).replace(tokens=z(CLS, 10, MASK, 12, MASK, SEP, PAD))
    head = SimpleNamespace(
        generator=lambda *_: 1e4 * jax.nn.one_hot(z(11, 40, 50), V),  # what stands in a slot of weight 0 is not written
        head=lambda x: jnp.array([[-2.0, 1.0, -1.0, -3.0, 0.5, -1.0, 9.0]])[..., None],
    )
    view, targets = setup().objective.rewrite(head, SimpleNamespace(embeddings=None), view, targets, None)
    np.testing.assert_array_equal(view.tokens, z(CLS, 10, 11, 12, 40, SEP, PAD))
    np.testing.assert_array_equal(targets['fake'], z(0, 0, 0, 0, 1, 0, 0))
    losses, metrics = setup().objective.scores(head, None, None, targets)
    softplus = lambda x: np.log1p(np.exp(x))
    expected = sum(softplus(x) for x in (-2.0, 1.0, -1.0, -3.0, -0.5, -1.0))
    assert float(losses['loss'].term.sum[0]) == pytest.approx(expected, rel=1e-6)
    assert mean(losses['generator'].term) == pytest.approx(1e4 / 2)
    found = {name: (float(t.sum[0]), float(t.weight[0])) for name, t in metrics.items()}
    assert found == {
        'generator_accuracy': (1, 2), 'fakes_of_masked': (1, 2), 'fakes_of_real': (1, 6), 'accuracy': (5, 6),
        'auc': (4, 5), 'precision': (1, 2), 'recall': (1, 1), 'called_fake': (2, 6),
    }  # fmt: skip


@pytest.mark.parametrize('packed', [False, True])
def test_samples_do_not_depend_on_the_batch(packed):
    s, batch = setup(), rows(packed=packed)
    view, targets = s.rewritten(s.params, batch)
    for at in (slice(0, 2), slice(3, 5), slice(6, 8)):
        part = jax.tree.map(lambda x: x[at], batch)  # noqa: B023
        np.testing.assert_array_equal(s.rewritten(s.params, part)[0].tokens, view.tokens[at])
    other, _ = s.rewritten(s.params, dataclasses.replace(batch, epoch=batch.epoch + 1))
    assert (other.tokens != view.tokens).any()
    assert targets['fake'].sum() > 10


def test_samples_follow_the_generator_and_its_temperature():
    s = setup()
    logits_KV = jnp.log(jnp.array([0.5, 0.3, 0.2]))[None].repeat(4, 0)
    keys = jax.random.key_data(jax.random.split(jax.random.key(1), 3000))

    def shares(**fields):
        o = dataclasses.replace(s.objective, **fields)
        targets = {'key': keys, 'label': jnp.zeros((3000, 4), jnp.int32)}
        drawn = o.sample(jnp.broadcast_to(logits_KV, (3000, 4, 3)), targets)
        return np.bincount(np.asarray(drawn).ravel(), minlength=3) / 12000

    np.testing.assert_allclose(shares(), [0.5, 0.3, 0.2], atol=0.02)
    p = np.array([0.5, 0.3, 0.2]) ** (1 / 0.5)
    np.testing.assert_allclose(shares(temperature=0.5), p / p.sum(), atol=0.02)
    np.testing.assert_allclose(shares(disallow_correct=True), [0, 0.6, 0.4], atol=0.02)


def test_the_generator_reads_masks_and_tokens_of_the_text():
    """85 % [MASK], the rest as it was, no random tokens; specials are never selected."""
    view, targets = setup().corrupt(batch := rows(256))
    masked = np.asarray(targets['masked']) > 0
    assert np.mean(np.asarray(view.tokens)[masked] == MASK) == pytest.approx(0.85, abs=0.03)
    kept = masked & (np.asarray(view.tokens) != MASK)
    np.testing.assert_array_equal(np.asarray(view.tokens)[kept], batch.tokens[kept])
    np.testing.assert_array_equal(np.asarray(view.tokens)[~masked], batch.tokens[~masked])
    assert (batch.tokens[masked] >= FIRST).all()
    assert masked.sum() / (batch.tokens >= FIRST).sum() == pytest.approx(0.15, abs=0.005)


# ---- quirks of the released codes -----------------------------------------------------------------------------------


def test_a_position_written_twice_gets_the_mean_of_the_ids_rounded_down():
    tokens, at = jnp.arange(10, 16), jnp.array([1, 3, 3, 4, 4, 4, 0])
    counts = jnp.array([1, 1, 1, 1, 1, 1, 0]) > 0
    new = jnp.array([50, 40, 45, 7, 7, 9, 99])
    np.testing.assert_array_equal(generator.write(tokens, at, new, counts), [10, 50, 12, 42, 7, 15])


def test_original_draws_with_replacement():
    """By a loop over the slots, with a generator that says another token in each."""
    s, batch = setup(variant='original'), rows(16)
    say = lambda t: (t['label'] * 3 + 11 * jnp.arange(t['at'].shape[1])[None]) % (V - FIRST) + FIRST
    view, targets = spoken(s, batch, say)
    said, twice = np.asarray(say(targets)), 0
    for b in range(16):
        slots = [i for i, w in enumerate(targets['weight'][b]) if w]
        real = int((batch.segment_ids[b] > 0).sum())
        assert len(slots) == max(1, round(0.15 * real))  # special tokens count
        places = {int(targets['at'][b, i]) for i in slots}
        twice += len(slots) - len(places)
        row = batch.tokens[b].copy()
        for at in places:
            ids = [said[b, i] for i in slots if targets['at'][b, i] == at]
            row[at] = sum(ids) // len(ids)
        np.testing.assert_array_equal(view.tokens[b], row)
        np.testing.assert_array_equal(targets['fake'][b], row != batch.tokens[b])
    assert twice > 0
    # Slots count in the generator's loss as often as they are drawn, positions once among the fakes.
    assert float(s.objective.weights(targets)['generator'].sum()) == targets['masked'].sum() + twice


def test_of_two_draws_of_a_position_one_suffices_for_a_mask():
    view, targets = setup(variant='original').corrupt(batch := rows(256))
    times = np.zeros_like(batch.tokens)
    for b in range(256):
        np.add.at(times[b], np.asarray(targets['at'][b]), np.asarray(targets['weight'][b], np.int32))
    masked = np.asarray(view.tokens) == MASK
    np.testing.assert_array_equal(np.asarray(view.tokens)[~masked], batch.tokens[~masked])
    for n in (1, 2):
        assert masked[times == n].mean() == pytest.approx(1 - 0.15**n, abs=0.03)
    assert (times == 2).sum() > 100


def test_deberta_masks_all_and_reads_the_first_token_of_each_text():
    s, batch = setup(variant='deberta'), rows(packed=True)
    view, targets = s.corrupt(batch)
    assert (np.asarray(view.tokens)[np.asarray(targets['masked']) > 0] == MASK).all()
    hidden = jax.random.normal(jax.random.key(0), (B, L, WIDTH))
    x = s.objective.features(SimpleNamespace(hidden_BLD=hidden, view=view), targets)
    half = L // 2
    np.testing.assert_allclose(x[0, 5], hidden[0, 0] + hidden[0, 5])
    np.testing.assert_allclose(x[0, half + 5], hidden[0, half] + hidden[0, half + 5])
    assert {'norm', 'detect'} == set(s.params['heads_electra']['head'])
    assert s.objective.groups() and s.objective.network(s.encoder).width == WIDTH


def test_texts_in_a_row_do_not_see_each_other():
    """Other tokens in the second text change nothing in the first: not its samples, labels, or logits."""
    s, batch = setup(variant='deberta'), rows(packed=True)
    second = (batch.segment_ids == 2) & (batch.tokens >= FIRST)
    changed = dataclasses.replace(batch, tokens=np.where(second, (batch.tokens - FIRST + 9) % 90 + FIRST, batch.tokens))

    def logits(net, view, targets):
        head = net.head['electra']
        view, targets = s.objective.rewrite(head, net.encoder, view, targets, None)
        encoded = net.encoder(view, base=s.objective.base(head))
        return head.head(s.objective.features(encoded, targets))[..., 0], targets['fake']

    run = jax.jit(lambda batch: s.net.apply({'params': s.params}, *s.corrupt(batch), method=logits))
    (a, fake), (b, fake_b) = (jax.device_get(run(x)) for x in (batch, changed))
    first = batch.segment_ids == 1
    np.testing.assert_allclose(a[first], b[first], atol=1e-6)
    np.testing.assert_array_equal(fake[first], fake_b[first])
    assert np.abs(a - b)[second].max() > 1e-3


# ---- metrics and warnings -------------------------------------------------------------------------------------------


def test_auc_of_a_row_against_all_pairs():
    rng = np.random.default_rng(0)
    logits = rng.integers(-3, 3, (4, 20)).astype(np.float32)  # with ties
    fake, weight = (rng.integers(0, 2, (4, 20)).astype(np.float32) for _ in range(2))
    found = electra.within_row_auc(logits, fake, weight)
    for b in range(4):
        pairs = [
            (x > y) + 0.5 * (x == y)
            for x, fx, wx in zip(logits[b], fake[b], weight[b], strict=True)
            for y, fy, wy in zip(logits[b], fake[b], weight[b], strict=True)
            if wx and wy and fx and not fy
        ]
        assert (float(found.sum[b]), float(found.weight[b])) == (sum(pairs), len(pairs))


def test_warnings_name_the_objective_and_what_is_wrong():
    healthy = {'electra/fakes_of_real': 0.08, 'electra/called_fake': 0.07, 'loss': 1.0}
    objectives = setup().objectives
    assert watch.warnings(objectives, healthy) == []
    (few,) = watch.warnings(objectives, healthy | {'electra/fakes_of_real': 0.009})
    assert few.startswith('config.objectives.electra: ') and '1 %' in few
    for share in (0.0, 1.0):
        (same,) = watch.warnings(objectives, healthy | {'electra/called_fake': share})
        assert 'the same of all' in same


def test_loss_at_masked_tokens_only():
    """ELECTRA 15%: weights, and that other tokens' logits do not matter."""
    s, batch = setup(loss='masked'), rows()
    losses, metrics = s.terms(setup().params, batch)
    _, targets = s.corrupt(batch)
    for term in (losses['electra/loss'].term, metrics['electra/accuracy']):
        np.testing.assert_array_equal(term.weight, targets['masked'].sum(-1))
    np.testing.assert_array_equal(s.objective.weights(targets)['loss'], targets['masked'].sum(-1))
    everywhere = setup().objective.weights(setup().corrupt(batch)[1])['loss']
    np.testing.assert_array_equal(everywhere, (batch.segment_ids > 0).sum(-1))


def test_all_tokens_mixture_by_hand():
    from bertx.objectives.all_tokens_mlm import mixture

    rng = np.random.default_rng(0)
    z, copy = rng.normal(size=(2, 6, 9)).astype(np.float32), 3 * rng.normal(size=(2, 6)).astype(np.float32)
    stands, label = rng.integers(0, 3, (2, 2, 6))
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True) / (1 + np.exp(copy))[..., None]
    p += np.eye(9)[stands] / (1 + np.exp(-copy))[..., None]
    np.testing.assert_allclose(p.sum(-1), 1, rtol=1e-5)
    found, best = mixture(jnp.array(z), jnp.array(copy), jnp.array(stands), jnp.array(label))
    np.testing.assert_allclose(np.exp(found), np.take_along_axis(p, label[..., None], -1)[..., 0], rtol=1e-4)
    np.testing.assert_array_equal(best, p.argmax(-1))


# ---- sizes and checks -----------------------------------------------------------------------------------------------


def test_sizes_of_the_generator():
    """ELECTRA-base: 256 wide with 4 heads (google/electra-base-generator); DeBERTaV3-base: 6 layers of 768."""
    config = EncoderConfig(vocab_size=V)
    third = base.make({'electra': {'width': 0.33333}}, 128)['electra'].network(config)
    assert (third.layers, third.width, third.heads, third.mlp_width, third.embedding_width) == (12, 256, 4, 1024, 768)
    half = base.make({'electra': {'variant': 'deberta'}}, 128)['electra'].network(config)
    assert (half.layers, half.width, half.heads, half.mlp_width) == (6, 768, 12, 3072)
    small = base.make({'electra': {}}, 128)['electra'].network(
        EncoderConfig(vocab_size=V, width=256, heads=4, mlp_width=1024, embedding_width=128)
    )
    assert (small.width, small.heads, small.embedding_width) == (64, 1, 128)


def test_flops_count_the_generator():
    objective, config = base.make({'electra': {}}, 128)['electra'], EncoderConfig(vocab_size=V)
    own = objective.network(config)
    output = 2 * objective.k * 768 * (V + own.width)
    head = 2 * 128 * (768 * 768 + 768)
    assert objective.flops(config, 128) == 128 * own.flops_per_token(128) + output + head


@pytest.mark.parametrize(
    ('arguments', 'key'),
    [
        ({'width': 1.5}, 'config.objectives.electra.width'),
        ({'depth': 2.0}, 'config.objectives.electra.depth'),
        ({'width': 'half'}, 'config.objectives.electra.width'),
        ({'weight': 'high'}, 'config.objectives.electra.weight'),
        ({'weight': -1.0}, 'config.objectives.electra.weight'),
        ({'own_optimizer': 1}, 'config.objectives.electra.own_optimizer'),
        ({'embeddings': 'shared'}, 'config.objectives.electra.embeddings'),
        ({'own_optimizer': True}, 'config.objectives.electra.own_optimizer'),
        ({'variant': 'deberta', 'embeddings': 'tied'}, 'config.objectives.electra.own_optimizer'),
        ({'generator_learning_rate': 0.5}, 'config.objectives.electra.own_optimizer'),
        ({'temperature': 0.0}, 'config.objectives.electra.temperature'),
        ({'loss': 'some'}, 'config.objectives.electra.loss'),
        ({'variant': 'electra'}, 'config.objectives.electra.variant'),
        ({'select': {'rate': 0.0}}, 'config.objectives.electra.select.rate'),
        ({'variant': 'original', 'select': {'name': 'tokens'}}, 'config.objectives.electra.select.variant'),
        ({'replace_by': {'mask': 2.0}}, 'config.objectives.electra.replace_by'),
    ],
)
def test_bad_values_are_named(arguments, key):
    with pytest.raises(BadInput, match=re.escape(key)):
        base.make({'electra': arguments}, L)
