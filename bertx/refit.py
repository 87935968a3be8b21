"""A fresh head on a frozen encoder, with one fixed budget: every arm is judged alike, whatever it was trained on."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertx.encoder_config import EncoderConfig
from bertx.model import rebuilt
from bertx.types import Term


@dataclasses.dataclass(frozen=True)
class RefitOptions:
    """batch: predictions in a step: a row of MLM gives as many as it has slots, a pair one."""

    rows: int = 4096
    steps: int = 500
    batch: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 0.01


@dataclasses.dataclass
class Features:
    """What a head reads of N rows, and is to say of them."""

    x_NKD: Any
    targets: Any
    table_VE: Any  # the frozen encoder's, for heads that are tied to it


@functools.lru_cache
def compiled(config: EncoderConfig, structure, options: RefitOptions):
    """(train, score): from features, targets and table of the training rows to the head's parameters, and from these
    and likewise of other rows to each loss and metric per example."""
    objective = rebuilt(structure)
    head = objective.build(config)
    # Linear decay to zero, so that the last steps average out and the number of steps matters little.
    schedule = optax.linear_schedule(options.learning_rate, 0.0, options.steps)
    optimizer = optax.adamw(schedule, weight_decay=options.weight_decay)

    def scores(params, x_BKD, targets, table_VE):
        return objective.scores(functools.partial(head.apply, {'params': params}), x_BKD, table_VE, targets)

    def loss(params, x_BKD, targets, table_VE):
        losses, _ = scores(params, x_BKD, targets, table_VE)
        return sum(x.term.sum.sum() / jnp.maximum(x.term.weight.sum(), 1.0) for x in losses.values())

    @jax.jit
    def train(x_NKD, targets, table_VE):
        # The same initial head and batches for every arm and seed: the refit adds no variance of its own.
        params = head.init(jax.random.key(0), x_NKD[:1], table_VE)['params']
        rows = max(1, options.batch // x_NKD.shape[1])

        def step(carry, key):
            params, state = carry
            at = jax.random.randint(key, (rows,), 0, len(x_NKD))
            grads = jax.grad(loss)(params, x_NKD[at], jax.tree.map(lambda y: y[at], targets), table_VE)
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        keys = jax.random.split(jax.random.key(1), options.steps)
        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), keys)
        return params

    @jax.jit
    def score(params, x_NKD, targets, table_VE) -> dict[str, Term]:
        losses, metrics = scores(params, x_NKD, targets, table_VE)
        return {name: loss.term for name, loss in losses.items()} | metrics

    return train, score


def refit(config: EncoderConfig, structure, options: RefitOptions, train: Features, test: Features) -> dict[str, Term]:
    """Losses and metrics per test example of a head trained on `train`. structure: the objective's tree structure.

    Features are standardised with the training rows' mean and deviation, so that one learning rate suits all encoders.
    """
    # numpy would sum bfloat16 in bfloat16
    x_NKD, test_NKD = (np.asarray(x, np.float32) for x in (train.x_NKD, test.x_NKD))
    center, spread = x_NKD.mean((0, 1)), x_NKD.std((0, 1)) + 1e-6
    fit, score = compiled(config, structure, options)
    params = fit((x_NKD - center) / spread, train.targets, train.table_VE)
    return jax.device_get(score(params, (test_NKD - center) / spread, test.targets, test.table_VE))
