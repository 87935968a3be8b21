"""The training step: what it starts from, what it sums, and that devices and micro-batches do not matter."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from bertx import model, optim, parallel
from bertx.encoder_config import REAL_STD, EncoderConfig
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.step import init, step
from bertx.text.rows import RowOptions, Rows
from bertx.train import vocabulary

L = 48
NUMBERS = dict(learning_rate=0.1, warmup=0.0, steps=100.0, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.01, clip=np.inf)
HYPER = {name: np.float32(value) for name, value in (NUMBERS | {'log_every': 1}).items()}
SGD, ADAM = OptimizerOptions(name='sgd'), OptimizerOptions()


class Setup:
    """A small run on the store, with parts that a test may change."""

    def __init__(self, store, names=('mlm', 'nsp'), std=0.1, width=32, options=SGD):
        self.objectives = jax.tree.map(np.float32, base.make({name: {} for name in names}, L))
        labels = tuple(name for name in names if name != 'mlm')
        self.rows = Rows(store, 'train', RowOptions(length=L, labels=labels), seed=0)
        self.encoder = EncoderConfig(
            vocab_size=store.tokenizer.vocab_size,
            layers=2,
            width=width,
            heads=2,
            mlp_width=4 * width,
            max_positions=64,
            std=std,
            unroll=2,
        )
        self.net = model.make_net(self.encoder, self.objectives)
        self.vocab, self.root = vocabulary(store), jax.random.key(0)
        self.init = jax.jit(functools.partial(init, self.net, options))
        self.compiled = functools.cache(lambda micro: jax.jit(functools.partial(step, self.net, options, micro)))

    def start(self, seed=0):
        return self.init(self.objectives, HYPER, jax.random.key(seed), self.vocab, self.rows.batch(np.arange(2)))

    def step(self, micro=1, **hyper):
        numbers = HYPER | jax.tree.map(np.float32, hyper)
        return lambda state, batch: self.compiled(micro)(state, self.objectives, numbers, self.root, self.vocab, batch)


setup = functools.cache(Setup)  # compiles nothing twice


def difference(a, b) -> float:
    return max(jax.tree.leaves(jax.tree.map(lambda x, y: float(np.abs(np.asarray(x) - np.asarray(y)).max()), a, b)))


def test_loss_at_the_start(store):
    """Tied output after a LayerNorm: logits have variance D sigma^2, so the loss is ln V + D sigma^2 / 2."""
    s = setup(store, ('mlm', 'sop'), std=0.02, width=128)
    # The labels are few, so one start's logits of them do not average out.
    windows = [s.step()(s.start(seed), s.rows.batch(np.arange(64)))[1] for seed in range(20)]
    mean = lambda name: np.mean([float(w[f'{name}/loss'].sum / w[f'{name}/loss'].weight) for w in windows])
    v, d, sigma = store.tokenizer.vocab_size, 128, 0.02 * REAL_STD
    assert mean('mlm') == pytest.approx(np.log(v) + d * sigma**2 / 2, abs=0.03)
    assert mean('sop') == pytest.approx(np.log(2), abs=0.01)


def test_arms_of_a_seed_share_their_initial_parameters(store):
    none, nsp = setup(store, ('mlm',)).start().params, setup(store, ('mlm', 'nsp')).start().params
    for name in ('encoder', 'heads_mlm'):
        jax.tree.map(np.testing.assert_array_equal, none[name], nsp[name])
    other = setup(store, ('mlm',)).start(seed=1).params
    assert difference(none, other) > 0.01


def uneven(batch):
    """Rows of very different length: the mean of means is not the mean."""
    keep = np.where(np.arange(len(batch.tokens)) % 2, L, 12)[:, None]
    real = batch.segment_ids * (np.arange(L) < keep)
    return batch.replace(segment_ids=real.astype(np.int32))


@pytest.mark.parametrize('names', [('mlm', 'nsp'), ('mlm', 'sop')])
def test_eight_devices_equal_one(store, names):
    s = setup(store, names)
    batches = [uneven(s.rows.batch(np.arange(16) + 16 * i)) for i in range(5)]
    results = []
    for devices in (1, 8):
        mesh = parallel.data_mesh(devices)
        state, windows, masks = parallel.replicate(mesh, s.start()), [], []
        advance = s.step()
        for i, batch in enumerate(batches):
            on_devices = parallel.split_batch(mesh, batch)
            masks.append(jax.device_get(jax.jit(model.corrupt)(s.objectives, s.root, s.vocab, on_devices)))
            state, window = advance(state, on_devices)
            windows.append(jax.device_get(window))
            if i == 0:
                first = jax.device_get(state.params)
        results.append((masks, windows, first, jax.device_get(state.params)))
    (masks, windows, first, last), (masks8, windows8, first8, last8) = results
    jax.tree.map(np.testing.assert_array_equal, masks, masks8)
    assert difference(windows[0]['loss'].sum, windows8[0]['loss'].sum) < 1e-6
    assert difference(first, first8) < 1e-6 * HYPER['learning_rate'] * 10  # one step's gradients, times the rate
    assert difference(last, last8) < 1e-6
    assert difference(first, s.start().params) > 1e-3


@pytest.mark.parametrize('micro', [2, 4])
def test_micro_batches_equal_one_batch(store, micro):
    s = setup(store)
    batch, state = uneven(s.rows.batch(np.arange(8))), s.start()
    (one, window), (many, window_many) = (s.step(n)(state, batch) for n in (1, micro))
    assert difference(one.params, many.params) < 3e-7  # two units in the last place of a LayerNorm scale
    for name in window:
        if name != 'optimizer/gradient_norm':
            np.testing.assert_allclose(window[name].sum, window_many[name].sum, rtol=1e-5)
            np.testing.assert_allclose(window[name].weight, window_many[name].weight, rtol=1e-6)


def test_padding_changes_neither_loss_nor_gradient(store):
    s = setup(store)
    batch = s.rows.batch(np.arange(8))
    noise = np.random.default_rng(0).integers(5, 50, batch.tokens.shape).astype(np.int32)
    other = batch.replace(tokens=np.where(batch.segment_ids > 0, batch.tokens, noise))
    assert (other.tokens != batch.tokens).any()
    (a, wa), (b, wb) = (s.step()(s.start(), x) for x in (batch, other))
    assert difference(a.params, b.params) == 0
    assert difference(wa, wb) == 0


@pytest.mark.parametrize('names', [('mlm', 'nsp'), ('mlm', 'sop')])
def test_overfits_one_batch(store, names):
    s = setup(store, names, options=ADAM, width=64)
    advance = s.step(learning_rate=3e-3, weight_decay=0.0, steps=1e9)
    state, batch = s.start(), s.rows.batch(np.arange(8))
    for _ in range(75):
        state, window = advance(state, batch)
    for name in names:
        term = window[f'{name}/loss']
        assert float(term.sum / term.weight) < 0.1, name


def test_label_zero_is_learned_and_unweighted_labels_are_not(store):
    """Token id 0 and class 0 are labels like others; slots of weight 0 change nothing."""
    s = setup(store)
    view, targets = jax.jit(model.corrupt)(s.objectives, s.root, s.vocab, s.rows.batch(np.arange(8)))
    params = s.start().params

    @jax.jit
    def loss(targets):
        losses, _ = s.net.apply({'params': params}, s.objectives, view, targets)
        return losses['mlm/loss'].term.sum.sum()

    mlm = targets['mlm']
    changed = jnp.where(mlm['weight'] > 0, mlm['label'], 7)
    assert loss(targets) == loss(targets | {'mlm': mlm | {'label': changed}})
    assert loss(targets) != loss(targets | {'mlm': mlm | {'label': jnp.zeros_like(mlm['label'])}})


def test_window_sums_since_the_last_log_line(store):
    s = setup(store)
    advance, state, single = s.step(log_every=3), s.start(), s.step(log_every=1)
    other, losses = s.start(), []
    for i in range(5):
        batch = s.rows.batch(np.arange(8) + 8 * i)
        state, window = advance(state, batch)
        other, one = single(other, batch)
        losses.append(float(one['mlm/loss'].sum))
    assert float(window['mlm/loss'].sum) == pytest.approx(sum(losses[3:]), rel=1e-5)


@pytest.mark.parametrize('schedule', optim.SCHEDULES)
def test_schedules_against_their_sources(schedule):
    hyper = {'learning_rate': np.float32(2.0), 'warmup': np.float32(10), 'steps': np.float32(100)}
    rate = [float(optim.learning_rate(schedule, hyper, jnp.int32(s))) for s in range(101)]
    if schedule == 'bert':  # optimization.py: polynomial decay from step 0, replaced by a ramp below the warm-up
        expected = [2 * s / 10 if s < 10 else 2 * (1 - s / 100) for s in range(101)]
    elif schedule == 'electra':
        expected = [2 * min(1, s / 10) * (1 - s / 100) for s in range(101)]
    else:
        expected = [2 * (s + 1) / 10 if s < 10 else 2 * (100 - s) / 90 for s in range(101)]
    np.testing.assert_allclose(rate, expected, atol=1e-6)


@pytest.mark.parametrize('bias_correction', [True, False])
def test_adamw_against_a_plain_loop(bias_correction):
    hyper = HYPER | {'learning_rate': np.float32(0.01), 'clip': np.float32(0.5), 'weight_decay': np.float32(0.1)}
    tx = optim.make(OptimizerOptions(bias_correction=bias_correction), hyper)
    rng = np.random.default_rng(0)
    params = {'x': {'kernel': rng.normal(size=(3, 4)), 'bias': rng.normal(size=4)}, 'norm': {'scale': np.ones(4)}}
    params = jax.tree.map(np.float32, params)
    state, expected = tx.init(params), jax.tree.map(np.float64, params)
    m = v = jax.tree.map(lambda p: 0 * p, expected)
    for t in range(1, 6):
        grads = jax.tree.map(lambda p: rng.normal(size=p.shape).astype(np.float32), params)
        updates, state = tx.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        norm = np.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g * min(1, 0.5 / norm), grads)  # noqa: B023
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.98 * v + 0.02 * g * g, v, grads)
        fix = (1 - 0.9**t, 1 - 0.98**t) if bias_correction else (1, 1)
        rate = 0.01 * (100 - (t - 1)) / 100
        new = jax.tree.map(lambda p, m, v: p - rate * (m / fix[0]) / (np.sqrt(v / fix[1]) + 1e-6), expected, m, v)  # noqa: B023
        new['x']['kernel'] = new['x']['kernel'] - rate * 0.1 * expected['x']['kernel']
        expected = new
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), params, expected)


def test_a_step_that_is_not_finite_changes_nothing(store):
    s = setup(store, options=ADAM)
    state, batch = s.start(), s.rows.batch(np.arange(8))
    after, window = s.step(log_every=4)(state, batch)
    broken = dataclasses.replace(
        after, params=after.params | {'heads_mlm': jax.tree.map(lambda x: x * np.nan, after.params['heads_mlm'])}
    )
    again, both = s.step(log_every=4)(broken, batch)
    assert (float(window['optimizer/skipped'].sum), float(both['optimizer/skipped'].sum)) == (0.0, 1.0)
    assert float(both['mlm/loss'].sum) == float(window['mlm/loss'].sum)  # the good step's alone
    jax.tree.map(np.testing.assert_array_equal, again.params['encoder'], after.params['encoder'])
    jax.tree.map(np.testing.assert_array_equal, again.opt, after.opt)
    assert int(again.step) == 2


def test_lamb_is_optax_s_on_each_layer():
    rng = np.random.default_rng(0)
    make = lambda *shape: rng.normal(0, 1, shape).astype(np.float32)
    params = {'layers': {'kernel': make(3, 4, 5), 'bias': make(3, 5)}, 'top': {'kernel': make(5, 2)}}
    grads = jax.tree.map(lambda x: make(*x.shape), params)
    hyper = HYPER | {'eps': np.float32(1e-6)}
    ours = optim.make(OptimizerOptions(name='lamb'), hyper)
    decayed = lambda tree: {'kernel': True, 'bias': False} if 'bias' in tree else {'kernel': True}
    trust = optax.masked(optax.scale_by_trust_ratio(), decayed)
    peer = optax.chain(
        optax.scale_by_adam(0.9, 0.98, 1e-6), optax.add_decayed_weights(0.01, decayed), trust, optax.scale(-0.1)
    )  # fmt: skip
    found, _ = ours.update(grads, ours.init(params), params)
    for i in range(3):
        p, g = (jax.tree.map(lambda x: x[i], tree['layers']) for tree in (params, grads))  # noqa: B023
        expected, _ = peer.update(g, peer.init(p), p)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a[i], b, rtol=1e-5), found['layers'], expected)  # noqa: B023
    expected, _ = peer.update(grads['top'], peer.init(params['top']), params['top'])
    np.testing.assert_allclose(found['top']['kernel'], expected['kernel'], rtol=1e-5)
