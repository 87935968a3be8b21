"""A small network of one objective of the ELECTRA family on rows made by hand, for its tests."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from bertx import model, optim
from bertx.encoder_config import EncoderConfig
from bertx.objectives import base
from bertx.optim import OptimizerOptions
from bertx.step import State, init_variables, step
from bertx.types import Example, Vocabulary

V, L, B, WIDTH, STD = 509, 64, 8, 32, 0.14
PAD, CLS, SEP, MASK, FIRST = 0, 2, 3, 4, 5

VOCAB = Vocabulary(jnp.int32(MASK), jnp.arange(V) >= FIRST, jnp.ones(V))
NUMBERS = dict(learning_rate=0.1, warmup=0.0, steps=1e9, b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.0, clip=np.inf)
HYPER = {name: np.float32(value) for name, value in (NUMBERS | {'log_every': 1}).items()}
ROOT, ADAM = jax.random.key(0), OptimizerOptions()


def rows(count: int = B, length: int = L, packed: bool = False) -> Example:
    """[CLS] text [SEP] of uneven lengths, or two of these in a row. A text counts upwards from some token."""
    rng, zeros = np.random.default_rng(0), lambda: np.zeros((count, length), np.int32)
    tokens, segments, positions, words = (zeros() for _ in range(4))
    for b in range(count):
        ends = (length // 2, length - 3) if packed else (length - b % 4,)
        begin = 0
        for s, end in enumerate(ends):
            n = end - begin
            text = (rng.integers(V) + np.arange(n - 2)) % (V - FIRST) + FIRST
            tokens[b, begin:end] = [CLS, *text, SEP]
            segments[b, begin:end], positions[b, begin:end] = s + 1, np.arange(n)
            words[b, begin:end] = np.arange(begin, end)
            begin = end
    index = np.arange(count, dtype=np.uint32)
    starts = np.zeros((count, 1), np.int32)
    return Example(tokens, segments, positions, zeros(), words, words, starts, {}, 0 * index, index)


class Setup:
    """A small network of one objective."""

    def __init__(self, name='electra', **arguments):
        self.name = name
        objectives = base.make({name: arguments}, L)
        (objective,) = objectives.values()
        self.encoder = objective.adapt(
            EncoderConfig(vocab_size=V, layers=1, width=WIDTH, heads=2, mlp_width=4 * WIDTH, max_positions=L, std=STD)
        )
        self.objectives = jax.tree.map(np.float32, objectives)
        self.net = model.make_net(self.encoder, self.objectives)

    @property
    def objective(self):
        return self.objectives[self.name]

    @functools.cached_property
    def params(self):
        variables = functools.partial(init_variables, self.net)
        return jax.jit(variables)(self.objectives, ROOT, VOCAB, rows(2))['params']

    @functools.cached_property
    def state(self):
        optimizer = optim.make(ADAM, HYPER, model.groups(self.objectives))
        return State(jnp.int32(0), self.params, jax.jit(optimizer.init)(self.params), {})

    @functools.cached_property
    def compiled(self):
        one = jax.jit(functools.partial(step, self.net, ADAM, 1))
        return one.lower(self.state, self.objectives, HYPER, ROOT, VOCAB, rows()).compile()

    def step(self, state, batch, objectives=None, **hyper):
        hyper = HYPER | jax.tree.map(np.float32, hyper)
        state, window = self.compiled(state, objectives or self.objectives, hyper, ROOT, VOCAB, batch)
        return dataclasses.replace(state, window={}), window

    @functools.cached_property
    def corrupt(self):
        """Compiled: batch -> what the generator reads, and the targets."""

        def corrupt(batch):
            view, targets = model.corrupt(self.objectives, ROOT, VOCAB, batch)
            return view, targets[self.name]

        return jax.jit(corrupt)

    @functools.cached_property
    def rewritten(self):
        """Compiled: (parameters, batch) -> what the encoder reads, and the targets."""

        def rewrite(net, view, targets):
            return self.objective.rewrite(net.head[self.name], net.encoder, view, targets, None)

        return jax.jit(lambda params, batch: self.net.apply({'params': params}, *self.corrupt(batch), method=rewrite))

    @functools.cached_property
    def terms(self):
        """Compiled: (parameters, batch) -> losses and metrics per example."""

        def terms(params, batch):
            view, targets = model.corrupt(self.objectives, ROOT, VOCAB, batch)
            return self.net.apply({'params': params}, self.objectives, view, targets)

        return jax.jit(terms)

    @functools.cached_property
    def gradients(self):
        """Of the generator's loss alone, and of the encoder's alone."""
        value = lambda params, loss: self.terms(params, rows())[0][f'{self.name}/{loss}'].term.sum.sum()
        return jax.jit(lambda params: [jax.grad(value)(params, loss) for loss in ('generator', 'loss')])(self.params)


setup = functools.cache(Setup)  # compiles nothing twice


def mean(term) -> float:
    return float(term.sum.sum() / term.weight.sum())


def largest(tree) -> float:
    return max(float(jnp.abs(x).max()) for x in jax.tree.leaves(tree))
