"""Every objective, in plain and in packed rows: the same five promises, from one table."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertx import model, parallel
from bertx.encoder_config import REAL_STD
from bertx.errors import BadInput
from bertx.families import encoder_of
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.step import init, step
from bertx.text.rows import Rows, options_for
from bertx.train import vocabulary
from bertx.types import FIRST_CHARS, Term

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
    'shuffled_random': ('shuffled_random', {}),
    'token_type': ('token_type', {}),
    'first_char': ('first_char', {}),
    'nsp': ('nsp', {}),
    'sop': ('sop', {}),
    'three_way': ('three_way', {}),
}


class Case:
    """A small run of one objective; its rows are packed or not."""

    def __init__(self, store, case: str, packing: int, family: str = 'bert', **encoder_settings):
        self.name, arguments = CASES[case]
        objectives = base.make({self.name: arguments}, L)
        settings = {'format': 'segment_pair', 'length': L, 'packing': packing, 'short_probability': 0.5}
        self.rows = Rows(store, 'train', options_for({self.name: objectives[self.name].needs}, **settings), 0)
        sizes = {'layers': 1, 'width': WIDTH, 'heads': 2, 'mlp_width': 2 * WIDTH, 'max_positions': 64, 'std': STD}
        encoder = encoder_of(family, 'tiny', store.tokenizer.vocab_size, **sizes | encoder_settings)
        for objective in objectives.values():
            encoder = objective.adapt(encoder)
        self.objectives = jax.tree.map(np.float32, objectives)
        self.net, options = model.make_net(encoder, self.objectives), OptimizerOptions()
        self.vocab, self.root = jax.tree.map(jnp.asarray, vocabulary(store)), jax.random.key(0)
        self.batch = self.rows.batch(np.arange(16))
        self.init = jax.jit(functools.partial(init, self.net, options))
        self.step = jax.jit(functools.partial(step, self.net, options, 1))
        self.gradient = jax.jit(jax.grad(self.loss, has_aux=True))

    @functools.cached_property
    def state(self):
        return self.init(self.objectives, HYPER, self.root, self.vocab, self.batch)

    def loss(self, params, batch):
        """Sum of the losses' means, as the step has it; (losses, metrics, the objective's own weights)."""
        view, targets = model.corrupt(self.objectives, self.root, self.vocab, batch)
        losses, metrics = self.net.apply({'params': params}, self.objectives, view, targets)
        weights = self.objectives[self.name].weights(targets[self.name])
        mean = sum(x.term.sum.sum() / weights[name.split('/')[1]].sum() for name, x in losses.items())
        return mean, ({name: x.term for name, x in losses.items()}, metrics, weights)


def mean(term) -> float:
    return float(term.sum.sum() / term.weight.sum())


# Packed rows are the harder ones, and a class's first case stands for its selections and embeddings; all with -m slow.
VARIANTS = ('mlm words', 'mlm ngrams', 'mlm spans', 'electra untied', 'electra gdes', 'electra 15 %')
QUICK = [('mlm', 1), *((case, 3) for case in CASES if case not in VARIANTS)]
GRID = [
    pytest.param((case, packing), id=f'{case}-{packing}', marks=[pytest.mark.slow] * ((case, packing) not in QUICK))
    for case in CASES
    for packing in (1, 3)
]


@pytest.fixture(params=GRID)
def c(request, store):
    return Case(store, *request.param)


def test_an_objective_keeps_its_promises(c, store):
    if c.rows.options.packing > 1:
        assert c.batch.segment_ids.max() > 1  # several pairs in a row
    grads, (losses, metrics, weights) = c.gradient(c.state.params, c.batch)
    starts_as_a_guess(c, losses, metrics, weights, store.tokenizer.vocab_size)
    gradients_reach_what_is_trained(grads)
    eight_devices_equal_one(c, grads, losses)
    overfits_a_batch(c, losses)
    other_numbers_compile_nothing(c)
    no_row_by_vocabulary_array(c, store.tokenizer.vocab_size)


def starts_as_a_guess(c, losses, metrics, weights, v):
    """Losses are ln of the number of choices; and `weights` says beforehand what `terms` weighs."""
    assert {f'{c.name}/{name}' for name in weights} == set(losses)
    spread = WIDTH * (STD * REAL_STD) ** 2 / 2
    choices = {'nsp': 2, 'sop': 2, 'three_way': 3, 'shuffled_token': 2, 'random_token': 2, 'token_type': 4}
    choices |= {'first_char': FIRST_CHARS, 'shuffled_random': 3}
    for name, weight in weights.items():
        found = losses[f'{c.name}/{name}']
        np.testing.assert_allclose(found.weight, weight, rtol=1e-6)
        assert weight.sum() > 0
        if c.name in choices:
            assert mean(found) == pytest.approx(np.log(choices[c.name]), abs=0.1)
        elif c.name in ('mlm', 'clm', 'sbo', 'replace_mlm'):
            assert mean(found) == pytest.approx(np.log(v) + spread, abs=0.2)  # some 90 predictions of few words
    assert all(isinstance(term, Term) and term.sum.shape == (16,) for term in metrics.values())


def gradients_reach_what_is_trained(grads):
    """Every parameter has one. Not what all keys share: softmax does not see it."""
    paths = jax.tree_util.tree_leaves_with_path(grads)
    dead = ['/'.join(p.key for p in path) for path, g in paths if not np.abs(np.asarray(g)).max() > 0]
    assert not [path for path in dead if not path.endswith('key/bias')], dead


def eight_devices_equal_one(c, grads, losses):
    mesh = parallel.data_mesh(8)
    grads8, (losses8, *_) = c.gradient(parallel.replicate(mesh, c.state.params), parallel.split_batch(mesh, c.batch))
    for name, found in losses.items():
        np.testing.assert_allclose(found.sum, losses8[name].sum, rtol=1e-5, atol=1e-5, err_msg=name)
    # ELECTRA's coefficient is 50, and so its gradients are.
    scale = max(1.0, max(float(jnp.abs(g).max()) for g in jax.tree.leaves(grads)))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-6 * scale), grads, jax.device_get(grads8))


def overfits_a_batch(c, losses):
    state = c.state
    for _ in range(200):
        state, window = c.step(state, c.objectives, HYPER, c.root, c.vocab, c.batch)
    for name, first in losses.items():
        assert mean(window[name]) < 0.75 * mean(first), f'{name}: {mean(first):.3f} -> {mean(window[name]):.3f}'


def other_numbers_compile_nothing(c):
    before = c.step._cache_size()
    other = jax.tree.map(lambda x: np.float32(x * 0.9), c.objectives)
    c.step(c.state, other, HYPER | {'learning_rate': np.float32(1e-4)}, c.root, c.vocab, c.batch)
    assert c.step._cache_size() == before


def no_row_by_vocabulary_array(c, v):
    """The compiled program of a step holds no array of batch x length x vocabulary."""
    text = c.step.lower(c.state, c.objectives, HYPER, c.root, c.vocab, c.batch).compile().as_text()
    assert f'f32[16,{L},{WIDTH}]' in text  # the search finds what is there
    assert not re.search(rf'\[(16,{L}|{16 * L}),{v}\b', text)


@pytest.mark.parametrize(
    ('objectives', 'message'),
    [
        ({'random_token': {'rate': 1.0}}, 'random_token.rate is 1, which leaves no token'),
        ({'mlm': {'select': {'name': 3}}}, "mlm.select.name '3' is unknown"),
        ({':mlm': {}}, "objective ':mlm' is unknown"),
        ({'bertx:objectives:base': {}}, "objective 'bertx:objectives:base' is unknown"),
        ({'generator': {}}, "objective 'generator' is unknown"),
        ({'mlm': {'weight': 1e39}}, r'mlm.weight is 1e\+39; a value like 1.0'),
        ({'mlm': {'zzz': 1}}, "mlm: argument 'zzz' is unknown"),
        ({'sbo': {'select': {'name': 'tokens', 'variant': 'electra'}}}, 'draws a position twice'),
        ({3: {}}, "objective '3' is unknown"),
    ],
)
def test_bad_values_are_named(objectives, message):
    with pytest.raises(BadInput, match=message):
        base.make(objectives, L)


def test_whole_numbers_are_sizes():
    made = base.make({'mlm': {'k': 48.0, 'select': {'name': 'ngrams', 'most': 3.0}}}, 128)['mlm']
    assert type(made.select.most) is int
    assert base.make({'electra': {'width': None}}, L)


def test_a_released_selection_wants_one_input_a_row():
    for select in ({'name': 'spans', 'variant': 'original'}, {'name': 'tokens', 'variant': 'bert'}):
        needs = base.make({'mlm': {'select': select}}, 128)['mlm'].needs
        with pytest.raises(BadInput, match='config.rows.packing is 3'):
            options_for({'mlm': needs}, format='sentence_pair', length=128, packing=3)
