"""Probes of all layers x trials x penalties in one compiled program, with early stopping on dev.

A trial is a probe seed and a number of training examples (the online code's portions are trials too). Every trial draws
its own batches, the same for all layers and penalties, so that the vectors of a batch are read once for all penalties.
A fit that has stopped keeps its best parameters; the program ends when all have stopped.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import struct

from bertx.errors import BadInput
from bertx.types import Array

CHUNK = 1024  # examples scored at once
LEAST_STEPS = 16


@struct.dataclass
class Examples:
    """`at` says which rows of the features an example reads, -1 for none; targets are whatever the probe wants."""

    at: Array  # [n, ...] int32
    target: Any  # arrays [n, ...]

    def take(self, index) -> 'Examples':
        return jax.tree.map(lambda x: x[index], self)

    def __len__(self) -> int:
        return len(self.at)


@dataclasses.dataclass(frozen=True)
class Options:
    """How probes are fitted.

    The penalty is times half the squared weights, added to the mean loss: 1 / (C n) in scikit-learn's terms. The grid
    is SentEval's (Conneau & Kiela 2018). After a round without gain the rate is halved, after `patience` ones it ends.
    """

    penalties: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2)
    seeds: int = 3
    batch: int = 256
    steps: int = 64  # at most, of a round, after which dev is looked at; of fewer examples one pass, but LEAST_STEPS
    rounds: int = 60
    patience: int = 4
    gain: float = 1e-3  # of the dev loss, relative: less is none
    learning_rate: float = 3e-3

    def check(self) -> 'Options':
        for name in ('seeds', 'batch', 'steps', 'rounds', 'patience'):
            if getattr(self, name) < 1:
                raise BadInput(f'probe option {name} is {getattr(self, name)}; 1 or more would do')
        if not self.penalties or min(self.penalties) < 0:
            raise BadInput(f'probe penalties are {self.penalties}; one or more, none below 0, would do')
        return self


class Probe:
    """What is fitted: a hashable object whose functions look at one layer, trial and penalty. Others override this."""

    def init(self, key, width: int, layers: int) -> Any:
        raise NotImplementedError

    def read(self, x_LND, layer, at) -> Any:
        """The vectors of a batch: [B, ..., D] of one layer."""
        return x_LND[layer, at]

    def outputs(self, params, x, target, layer) -> dict[str, Array]:
        """What is kept of each example, [B, ...]; 'loss' is in it."""
        raise NotImplementedError

    def loss(self, params, x, target, layer) -> Array:
        """[B]"""
        return self.outputs(params, x, target, layer)['loss']


@dataclasses.dataclass
class Fitted:
    """The probes that dev chose of each layer and trial, among penalties and rounds."""

    probe: Probe
    params: Any  # [L, T, ...]
    dev_LT: np.ndarray  # loss
    penalty_LT: np.ndarray
    rounds: int

    def scores(self, x_LND, examples: Examples) -> dict[str, np.ndarray]:
        """The probe's outputs, [L, T, n, ...]."""
        found = []
        for start in range(0, len(examples), CHUNK):
            index = np.arange(start, min(start + CHUNK, len(examples)))
            part = examples.take(np.resize(index, min(CHUNK, len(examples))))
            out = jax.device_get(_score(self.probe, x_LND, part, self.params))
            found.append({name: x[:, :, : len(index)] for name, x in out.items()})
        return {name: np.concatenate([part[name] for part in found], axis=2) for name in found[0]}


def standardised(x_LND: np.ndarray, train_rows: np.ndarray) -> Array:
    """Each feature of each layer with the mean and deviation of the rows that training reads; on the device, once.

    One learning rate and one grid of penalties then suit all layers, whose norms differ by an order of magnitude.
    """
    out = np.empty(x_LND.shape, np.float32)
    for layer, x_ND in enumerate(x_LND):
        known = np.asarray(x_ND[train_rows], np.float32)
        out[layer] = (x_ND - known.mean(0)) / (known.std(0) + 1e-6)
    return jnp.asarray(out)


def fit(
    probe: Probe, x_LND, train: Examples, dev: Examples, options: Options, counts: np.ndarray | None = None
) -> Fitted:
    """Fits all of them. counts: for each trial how many of its training examples it may see; default: all, for each of
    options.seeds. With counts every trial has the same order of examples and starts from the same parameters."""
    options.check()
    if not len(train) or not len(dev):
        raise BadInput('a probe wants training and dev examples; there are none')
    seeds = np.arange(options.seeds) if counts is None else np.zeros(len(counts), int)
    counts = np.full(len(seeds), len(train)) if counts is None else np.asarray(counts)
    penalty_R = jnp.asarray(options.penalties)
    steps = min(options.steps, max(LEAST_STEPS, len(train) // options.batch))
    static = dataclasses.replace(options, penalties=(), seeds=0, steps=steps)
    params, loss_LTR, rounds = _fit(probe, static, x_LND, train, dev, seeds, counts, penalty_R)
    loss_LTR = np.asarray(loss_LTR)
    best_LT = loss_LTR.argmin(-1)
    chosen = jax.vmap(jax.vmap(lambda tree, r: jax.tree.map(lambda x: x[r], tree)))(params, best_LT)
    return Fitted(probe, chosen, loss_LTR.min(-1), np.asarray(options.penalties)[best_LT], int(rounds))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _fit(probe: Probe, o: Options, x_LND, train: Examples, dev: Examples, seed_T, count_T, penalty_R):
    """Best parameters [L, T, R, ...], their dev losses [L, T, R], rounds."""
    L, T, R = len(x_LND), len(seed_T), len(penalty_R)
    layers, adam = jnp.arange(L), optax.scale_by_adam()

    keys_T = jax.vmap(jax.random.key)(seed_T)
    start_T = jax.vmap(lambda key: probe.init(key, x_LND.shape[-1], L))(keys_T)
    params = jax.tree.map(lambda x: jnp.broadcast_to(x[None, :, None], (L, T, R, *x.shape[1:])), start_T)

    def objective(p, penalty, x, target, layer):
        kernels = [jnp.sum(w**2) for w in jax.tree.leaves(p) if w.ndim > 1]
        return probe.loss(p, x, target, layer).mean() + 0.5 * penalty * sum(kernels)

    def gradients(layer, p_R, index_B):
        batch = train.take(index_B)
        x = probe.read(x_LND, layer, batch.at)  # outside the penalties' vmap: read once
        return jax.vmap(jax.grad(objective), (0, 0, None, None, None))(p_R, penalty_R, x, batch.target, layer)

    # Dev goes in parts of a training batch: all of it at once, for every fit, would be 10 GB of edge probes' spans.
    size = min(o.batch, len(dev))
    index_PB = jnp.arange(-(-len(dev) // size) * size).reshape(-1, size)
    parts = dev.take(index_PB % len(dev)), (index_PB < len(dev)) / len(dev)

    def dev_loss(layer, p_TR):
        def summed(part):
            examples, weight_B = part
            x = probe.read(x_LND, layer, examples.at)
            return jax.vmap(jax.vmap(lambda p: probe.loss(p, x, examples.target, layer) @ weight_B))(p_TR)

        return jax.lax.map(summed, parts).sum(0)

    def one_round(carry):
        params, state, best, best_LTR, rate_LTR, bad_LTR, number = carry

        def step(carry, key):
            params, state = carry
            u_TB = jax.random.uniform(key, (T, o.batch))  # with replacement, so that one shape fits all counts
            index_TB = (u_TB * count_T[:, None]).astype(jnp.int32)
            grads = jax.vmap(jax.vmap(gradients, (None, 0, 0)), (0, 0, None))(layers, params, index_TB)
            updates, state = adam.update(grads, state)
            scale = lambda p, u: p - _over(o.learning_rate * rate_LTR, u) * u
            return (jax.tree.map(scale, params, updates), state), None

        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), number), o.steps)
        (params, state), _ = jax.lax.scan(step, (params, state), keys)
        loss_LTR = jax.vmap(dev_loss)(layers, params)
        active = bad_LTR < o.patience
        better = active & (loss_LTR < best_LTR)
        gained = active & (loss_LTR < best_LTR * (1 - o.gain))
        best = jax.tree.map(lambda new, old: jnp.where(_over(better, new), new, old), params, best)
        bad_LTR = jnp.where(gained, 0, bad_LTR + 1 * active)
        rate_LTR = jnp.where(gained, rate_LTR, rate_LTR / 2)
        best_LTR = jnp.where(better, loss_LTR, best_LTR)
        return params, state, best, best_LTR, rate_LTR, bad_LTR, number + 1

    go_on = lambda carry: (carry[5] < o.patience).any() & (carry[6] < o.rounds)
    one = jnp.ones((L, T, R))
    carry = (params, adam.init(params), params, jnp.inf * one, one, jnp.zeros((L, T, R), jnp.int32), 0)
    _, _, best, best_LTR, _, _, rounds = jax.lax.while_loop(go_on, one_round, carry)
    return best, best_LTR, rounds


def _over(x_LTR, like):
    """With axes of length 1 behind, to go with `like`."""
    return x_LTR.reshape(x_LTR.shape + (1,) * (like.ndim - x_LTR.ndim))


@functools.partial(jax.jit, static_argnums=0)
def _score(probe: Probe, x_LND, examples: Examples, params):
    def one(layer, p_T):
        x = probe.read(x_LND, layer, examples.at)
        return jax.vmap(lambda p: probe.outputs(p, x, examples.target, layer))(p_T)

    return jax.vmap(one)(jnp.arange(len(x_LND)), params)
