"""Every objective, in plain and in packed rows: the same five promises, from one table."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

from bertx import model, parallel
from bertx.encoder_config import REAL_STD, EncoderConfig
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.step import init, step
from bertx.text.rows import Rows, options_for
from bertx.train import vocabulary
from bertx.types import Term

L, WIDTH, STD = 48, 32, 0.1
NUMBERS = dict(learning_rate=3e-3, warmup=0.0, steps=400.0, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.0, clip=np.inf)
HYPER = {name: np.float32(value) for name, value in (NUMBERS | {'log_every': 1}).items()}

# name in the test's output -> objective, arguments
CASES = {
    'mlm': ('mlm', {}),
    'mlm words': ('mlm', {'select': {'name': 'whole_words'}}),
    'mlm ngrams': ('mlm', {'select': {'name': 'ngrams'}}),
    'mlm spans': ('mlm', {'select': {'name': 'spans'}}),
    'sbo': ('sbo', {}),
    'electra tied': ('electra', {'embeddings': 'tied'}),
    'electra untied': ('electra', {'embeddings': 'untied'}),
    'electra gdes': ('electra', {'embeddings': 'gdes'}),
    'electra 15 %': ('electra', {'loss': 'masked'}),
    'replace_mlm': ('replace_mlm', {}),
    'all_tokens_mlm': ('all_tokens_mlm', {}),
    'clm': ('clm', {}),
    'shuffled_token': ('shuffled_token', {}),
    'random_token': ('random_token', {}),
    'token_type': ('token_type', {}),
    'first_char': ('first_char', {}),
    'nsp': ('nsp', {}),
    'sop': ('sop', {}),
    'three_way': ('three_way', {}),
}


class Case:
    """A small run of one objective; its rows are packed or not."""

    def __init__(self, store, case: str, packing: int):
        self.name, arguments = CASES[case]
        objectives = base.make({self.name: arguments}, L)
        settings = {'format': 'segment_pair', 'length': L, 'packing': packing}
        self.rows = Rows(store, 'train', options_for([o.needs for o in objectives.values()], **settings), 0)
        # Short pairs, so that several fit in a row.
        encoder = EncoderConfig(store.tokenizer.vocab_size, 1, WIDTH, 2, 2 * WIDTH, 64, std=STD)
        for objective in objectives.values():
            encoder = objective.adapt(encoder)
        self.objectives = jax.tree.map(np.float32, objectives)
        self.net, options = model.make_net(encoder, self.objectives), OptimizerOptions()
        self.vocab, self.root = vocabulary(store), jax.random.key(0)
        self.batch = self.rows.batch(np.arange(16))
        self.init = jax.jit(functools.partial(init, self.net, options))
        self.step = jax.jit(functools.partial(step, self.net, options, 1))

    def start(self):
        return self.init(self.objectives, HYPER, self.root, self.vocab, self.batch)


cases = functools.cache(Case)
every = pytest.mark.parametrize(('case', 'packing'), [(case, packing) for case in CASES for packing in (1, 3)])


def mean(term) -> float:
    return float(term.sum.sum() / term.weight.sum())


@every
def test_loss_at_the_start_and_weights(store, case, packing):
    """Losses are those of a guess: ln of the number of choices; and `weights` says beforehand what `terms` weighs."""
    c = cases(store, case, packing)
    state = c.start()
    view, targets = model.corrupt(c.objectives, c.root, c.vocab, c.batch)
    losses, metrics = c.net.apply({'params': state.params}, c.objectives, view, targets)
    weights = c.objectives[c.name].weights(targets[c.name])
    assert {f'{c.name}/{name}' for name in weights} == set(losses)
    v, spread = store.tokenizer.vocab_size, WIDTH * (STD * REAL_STD) ** 2 / 2
    choices = {'nsp': 2, 'sop': 2, 'three_way': 3, 'shuffled_token': 2, 'random_token': 2, 'token_type': 4}
    for name, weight in weights.items():
        found = losses[f'{c.name}/{name}'].term
        np.testing.assert_allclose(found.weight, weight, rtol=1e-6)
        assert weight.sum() > 0
        if c.name in choices:
            assert mean(found) == pytest.approx(np.log(choices[c.name]), abs=0.1)
        elif c.name in ('mlm', 'clm', 'sbo', 'replace_mlm'):
            assert mean(found) == pytest.approx(np.log(v) + spread, abs=0.15)
    assert all(isinstance(term, Term) and term.sum.shape == (16,) for term in metrics.values())


@every
def test_overfits_a_batch(store, case, packing):
    c = cases(store, case, packing)
    state, first = c.start(), None
    for _ in range(150):
        state, window = c.step(state, c.objectives, HYPER, c.root, c.vocab, c.batch)
        first = first or {name: mean(term) for name, term in window.items()}
    for name in c.objectives[c.name].weights(model.corrupt(c.objectives, c.root, c.vocab, c.batch)[1][c.name]):
        last = mean(window[f'{c.name}/{name}'])
        assert last < 0.75 * first[f'{c.name}/{name}'], f'{name}: {first[f"{c.name}/{name}"]:.3f} -> {last:.3f}'


@every
def test_eight_devices_equal_one(store, case, packing):
    c = cases(store, case, packing)
    results = []
    for devices in (1, 8):
        mesh = parallel.data_mesh(devices)
        state = parallel.replicate(mesh, c.start())
        sgd = jax.jit(functools.partial(step, c.net, OptimizerOptions(name='sgd'), 1))
        state = dataclasses.replace(state, opt=_sgd_state(state.params))
        state, window = sgd(state, c.objectives, HYPER, c.root, c.vocab, parallel.split_batch(mesh, c.batch))
        results.append(jax.device_get((window, state.params)))
    (one, params), (eight, params8) = results
    for name in one:
        np.testing.assert_allclose(mean(one[name]), mean(eight[name]), rtol=1e-5, atol=1e-6, err_msg=name)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6), params, params8)


def _sgd_state(params):
    from bertx import optim

    return optim.make(OptimizerOptions(name='sgd'), HYPER).init(params)


@every
def test_other_numbers_compile_nothing(store, case, packing):
    c = cases(store, case, packing)
    state = c.start()
    c.step(state, c.objectives, HYPER, c.root, c.vocab, c.batch)
    before = c.step._cache_size()
    other = jax.tree.map(lambda x: np.float32(x * 0.9), c.objectives)
    c.step(state, other, HYPER | {'learning_rate': np.float32(1e-4)}, c.root, c.vocab, c.batch)
    assert c.step._cache_size() == before


@every
def test_gradients_reach_what_is_trained(store, case, packing):
    """Every parameter gets one, but the tables that a tied generator or a pair head leaves untouched."""
    c = cases(store, case, packing)
    state = c.start()
    view, targets = model.corrupt(c.objectives, c.root, c.vocab, c.batch)

    def loss(params):
        losses, _ = c.net.apply({'params': params}, c.objectives, view, targets)
        return sum(x.term.sum.sum() for x in losses.values())

    grads = jax.grad(loss)(state.params)
    paths = jax.tree_util.tree_leaves_with_path(grads)
    dead = ['/'.join(p.key for p in path) for path, g in paths if not np.abs(np.asarray(g)).max() > 0]
    # Softmax does not see what all keys share: the key bias has no gradient but rounding.
    assert not [path for path in dead if not path.endswith('key/bias')], dead


@every
def test_no_row_by_vocabulary_array(store, case, packing):
    """The compiled step holds no array of batch x length x vocabulary."""
    c = cases(store, case, packing)
    v = store.tokenizer.vocab_size
    state = jax.eval_shape(c.init, c.objectives, HYPER, c.root, c.vocab, c.batch)
    text = c.step.lower(state, c.objectives, HYPER, c.root, c.vocab, c.batch).as_text()
    assert f'tensor<16x{L}x{WIDTH}xf32>' in text  # the search finds what is there
    assert f'16x{L}x{v}x' not in text and f'{16 * L}x{v}x' not in text
