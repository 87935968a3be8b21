"""Small packed rows made by hand, and runs of one or more objectives on them, for the tests of objectives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from bertx import model
from bertx.encoder_config import EncoderConfig
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.step import init, step
from bertx.types import Example, Vocabulary

B, L, V, D = 8, 32, 100, 32
PAD, UNK, CLS, SEP, MASK = range(5)
NUMBERS = dict(learning_rate=3e-3, warmup=0.0, steps=1e9, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.0, clip=np.inf)
HYPER = {name: np.float32(value) for name, value in (NUMBERS | {'log_every': 1}).items()}


def vocabulary() -> Vocabulary:
    """Ids from 5 on are text; those from 80 on never occur in the corpus."""
    at = np.arange(V)
    return Vocabulary(
        mask=jnp.int32(MASK),
        ordinary_V=jnp.asarray(at > MASK),
        unigram_V=jnp.where((at > MASK) & (at < 80), 1.0 + at % 7, 0.0),
        first_char_V=jnp.asarray(at % 29, jnp.int32),
        type_V=jnp.asarray(at % 4, jnp.int32),
    )


def rows(count: int = B, seed: int = 0) -> Example:
    """Two pairs in each row, the second shorter, and padding."""
    rng = np.random.default_rng(seed)
    zeros = lambda: np.zeros((count, L), np.int32)
    tokens, segment, position, kind, word = zeros(), zeros(), zeros(), zeros(), zeros()
    starts = np.zeros((count, 2), np.int32)
    for row in range(count):
        at = 0
        for number, (a, b) in enumerate([rng.integers(4, 8, 2), rng.integers(2, 4, 2)]):
            text = [CLS, *rng.integers(5, 80, a), SEP, *rng.integers(5, 80, b), SEP]
            here = slice(at, at + len(text))
            tokens[row, here], segment[row, here], position[row, here] = text, number + 1, np.arange(len(text))
            kind[row, at + a + 2 : at + len(text)] = 1
            starts[row, number] = at
            at += len(text)
        begins = (tokens[row] <= MASK) | (rng.random(L) < 0.6)
        begins[1:] |= tokens[row, :-1] <= MASK
        word[row] = np.cumsum(begins)
    labels = {}
    for name, classes in (('nsp', 2), ('sop', 2), ('three_way', 3)):
        labels[name] = rng.integers(0, classes, (count, 2)).astype(np.int32)
        labels[name][0, 1] = -1  # no such pair
    number = np.arange(count, dtype=np.uint32)
    return Example(tokens, segment, position, kind, word, word, starts, labels, number * 0, number)


class Case:
    """A run of these objectives: name -> arguments. Every function is compiled once."""

    def __init__(self, objectives, std: float = 0.1, width: int = D, **sizes):
        made = base.make(objectives, L)
        config = EncoderConfig(
            vocab_size=V, **{'layers': 1, 'width': width, 'heads': 2, 'mlp_width': 2 * width} | sizes, std=std
        )
        for objective in made.values():
            config = objective.adapt(config)
        self.config, self.objectives = config, jax.tree.map(np.float32, made)
        self.net, self.vocab, self.root = model.make_net(config, self.objectives), vocabulary(), jax.random.key(0)
        options = OptimizerOptions()
        self._init = jax.jit(functools.partial(init, self.net, options))
        self.compiled = jax.jit(functools.partial(step, self.net, options, 1))
        self.corrupt = functools.partial(jax.jit(model.corrupt), self.objectives, self.root, self.vocab)

        def loss(params, frozen, view, targets):
            losses, metrics = self.net.apply({'params': params, 'frozen': frozen}, self.objectives, view, targets)
            return sum(x.coefficient * x.term.sum.sum() for x in losses.values()), (losses, metrics)

        self.gradient = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))
        self.batch = rows()

    def terms(self, view, targets, params=None):
        """Losses and metrics."""
        return self.gradient(self.state.params if params is None else params, self.state.frozen, view, targets)[1]

    @functools.cached_property
    def state(self):
        return self._init(self.objectives, HYPER, self.root, self.vocab, self.batch)

    def step(self, state, objectives=None, **hyper):
        numbers = HYPER | {name: np.float32(value) for name, value in hyper.items()}
        return self.compiled(state, objectives or self.objectives, numbers, self.root, self.vocab, self.batch)

    def fit(self, steps: int, state=None):
        """The means of all terms before the first update, and after the last but one."""
        state, found = state or self.state, []
        for _ in range(steps):
            state, window = self.step(state)
            found.append(window)
        return tuple({name: mean(term) for name, term in window.items()} for window in (found[0], found[-1]))

    @functools.cached_property
    def hlo(self) -> str:
        """The training step as XLA runs it."""
        arguments = (self.state, self.objectives, HYPER, self.root, self.vocab, self.batch)
        return self.compiled.lower(*arguments).compile().as_text()


cases = functools.cache(lambda *names: Case({name: {} for name in names}))


def mean(term) -> float:
    return float(np.sum(term.sum) / np.sum(term.weight))


def check_weights(case: Case) -> None:
    """What an objective says beforehand is what its losses come with."""
    view, targets = case.corrupt(case.batch)
    losses, metrics = case.terms(view, targets)
    for name, objective in case.objectives.items():
        weights = objective.weights(targets[name])
        assert {f'{name}/{key}' for key in weights} == {key for key in losses if key.startswith(f'{name}/')}
        for key, weight_B in weights.items():
            np.testing.assert_allclose(losses[f'{name}/{key}'].term.weight, weight_B, rtol=1e-6)
            assert np.sum(weight_B) > 0
    assert all(term.sum.shape == (B,) for term in metrics.values())


def check_gradients(case: Case) -> None:
    """They reach every parameter. All keys share their bias, which softmax does not see."""
    view, targets = case.corrupt(case.batch)
    (grads, _), _ = case.gradient(case.state.params, case.state.frozen, view, targets)
    found = jax.tree_util.tree_leaves_with_path(grads)
    dead = [jax.tree_util.keystr(path) for path, g in found if not float(np.abs(g).max()) > 0]
    assert not [path for path in dead if 'key' not in path], dead


def check_one_compilation(case: Case) -> None:
    state, _ = case.step(case.state)
    before = case.compiled._cache_size()
    case.step(state, jax.tree.map(lambda x: np.float32(0.9 * x), case.objectives), learning_rate=1e-4)
    assert case.compiled._cache_size() == before


def check_segments_are_apart(case: Case) -> None:
    """Other text in the pairs of one segment changes nothing of what is said of the other's."""
    view, targets = case.corrupt(case.batch)
    for kept, changed in ((1, 2), (2, 1)):
        there = (view.segment_ids == changed) & (view.tokens > MASK)
        other = view.replace(tokens=np.where(there, 5 + view.tokens % 70, view.tokens))
        own = {name: of_segment(target, case.batch.segment_ids, kept) for name, target in targets.items()}
        a, b = (case.terms(v, own)[0] for v in (view, other))
        for name in a:
            assert np.sum(a[name].term.weight) > 0
            np.testing.assert_allclose(a[name].term.sum, b[name].term.sum, rtol=1e-5, err_msg=name)
        whole, after = (case.terms(v, targets)[0] for v in (view, other))
        assert any(np.abs(whole[name].term.sum - after[name].term.sum).max() > 1e-4 for name in whole)


def of_segment(targets, segment_BL, number: int):
    """The targets with weight for positions of one segment only."""
    at = targets.get('at', np.broadcast_to(np.arange(L), segment_BL.shape))
    here = np.take_along_axis(segment_BL, np.asarray(at), axis=1) == number
    return targets | {name: targets[name] * here for name in ('weight', 'inside') if name in targets}
