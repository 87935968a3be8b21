"""A fresh head on a frozen encoder, with one fixed budget: every arm is judged alike, whatever it was trained on."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from bertx.encoder_config import EncoderConfig
from bertx.objectives.pair import PairObjective
from bertx.types import Term


@dataclasses.dataclass(frozen=True)
class RefitOptions:
    rows: int = 4096
    steps: int = 500
    batch: int = 512
    learning_rate: float = 1e-3
    weight_decay: float = 0.01


@functools.lru_cache
def _train(config: EncoderConfig, objective_type: type[PairObjective], options: RefitOptions):
    """Compiled: (features, targets) of the training rows -> the head's parameters."""
    objective = objective_type()
    head = objective.build(config)
    # Linear decay to zero, so that the last steps average out and the number of steps matters little.
    schedule = optax.linear_schedule(options.learning_rate, 0.0, options.steps)
    optimizer = optax.adamw(schedule, weight_decay=options.weight_decay)

    def loss(params, x_BSD, targets):
        losses, _ = objective.scores(functools.partial(head.apply, {'params': params}), x_BSD, targets)
        term = losses['loss'].term
        return term.sum.sum() / jnp.maximum(term.weight.sum(), 1.0)

    @jax.jit
    def train(x_NSD, targets):
        # The same initial head and batches for every arm and seed: the refit adds no variance of its own.
        params = head.init(jax.random.key(0), x_NSD[:1])['params']

        def step(carry, key):
            params, state = carry
            rows = jax.random.randint(key, (options.batch,), 0, len(x_NSD))
            grads = jax.grad(loss)(params, x_NSD[rows], jax.tree.map(lambda y: y[rows], targets))
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        keys = jax.random.split(jax.random.key(1), options.steps)
        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), keys)
        return params

    return train


@functools.lru_cache
def score_function(config: EncoderConfig, objective_type: type[PairObjective]):
    """Compiled: (head's parameters, features, targets) -> accuracy per example."""
    objective = objective_type()
    head = objective.build(config)

    @jax.jit
    def score(params, x_NSD, targets) -> Term:
        return objective.scores(functools.partial(head.apply, {'params': params}), x_NSD, targets)[1]['accuracy']

    return score


def refit(
    config: EncoderConfig, objective_type, options: RefitOptions, train: tuple[Any, Any], test: tuple[Any, Any]
) -> Term:
    """Accuracy per test example of a head trained on `train`; both are (features [N, S, D], targets).

    Features are standardised with the training rows' mean and deviation, so that one learning rate suits all encoders.
    """
    (x_NSD, targets), (test_NSD, test_targets) = train, test
    x_NSD, test_NSD = (np.asarray(x, np.float32) for x in (x_NSD, test_NSD))  # numpy would sum bfloat16 in bfloat16
    center, spread = x_NSD.mean((0, 1)), x_NSD.std((0, 1)) + 1e-6
    params = _train(config, objective_type, options)((x_NSD - center) / spread, targets)
    score = score_function(config, objective_type)(params, (test_NSD - center) / spread, test_targets)
    return jax.tree.map(np.asarray, score)
