"""Optimizer and schedule, built inside the trace from traced numbers, so that sweeping them never recompiles."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertx.errors import BadInput, one_of
from bertx.types import Array

Hyper = dict[str, Array]

SCHEDULES = ('join', 'bert', 'electra')
OPTIMIZERS = ('adamw', 'lamb', 'sgd')


@dataclasses.dataclass(frozen=True)
class OptimizerOptions:
    """The static part. bias_correction=False is google-research/bert's Adam; 'sgd' is for tests of exactness."""

    name: str = 'adamw'
    schedule: str = 'join'
    bias_correction: bool = True
    freeze_encoder: bool = False  # only the heads learn

    def check(self) -> None:
        one_of('config.optimizer.name', self.name, OPTIMIZERS)
        one_of('config.optimizer.schedule', self.schedule, SCHEDULES)


def check(hyper: dict[str, float]) -> None:
    """Raises BadInput for numbers out of range."""
    for name in ('b1', 'b2'):
        if not 0 <= hyper[name] < 1:
            raise BadInput(f'config.optimizer.{name} is {hyper[name]:g}; from 0 to below 1 would do')
    for name in ('learning_rate', 'eps'):
        if not hyper[name] > 0:
            raise BadInput(f'config.optimizer.{name} is {hyper[name]:g}; it must be above 0')
    if hyper['warmup'] > hyper['steps']:
        raise BadInput(f'config.optimizer.warmup is {hyper["warmup"]:g} of {hyper["steps"]:g} steps; give fewer')


def learning_rate(schedule: str, hyper: Hyper, step: Array) -> Array:
    """The rate of a step (from 0), with warm-up w of N steps, then linear to 0. Three readings of where they meet.

    join     up to the peak over w steps, then straight from the peak to 0 at N: the BERT paper's text
    bert     the line to 0 starts at step 0 and is only looked at from w on, so the rate falls from the peak to
             peak * (1 - w/N) at the join, and the first step's rate is 0: google-research/bert optimization.py
    electra  the product of both: google-research/electra optimization.py
    """
    peak, warmup, steps = hyper['learning_rate'], hyper['warmup'], hyper['steps']
    step = step.astype(jnp.float32)
    up = step / jnp.maximum(warmup, 1.0)
    down = jnp.maximum(0.0, 1.0 - step / steps)
    if schedule == 'bert':
        return peak * jnp.where(step < warmup, up, down)
    if schedule == 'electra':
        return peak * jnp.minimum(1.0, up) * down
    joined = jnp.clip((steps - step) / jnp.maximum(steps - warmup, 1.0), 0.0, 1.0)
    return peak * jnp.where(step < warmup, (step + 1.0) / jnp.maximum(warmup, 1.0), joined)


def decayed(params) -> Any:
    """True for what weight decay acts on: matrices and tables, not biases and LayerNorms (BERT). By path, since
    stacked biases are matrices too."""
    named = lambda path, _: getattr(path[-1], 'key', '') in ('kernel', 'embedding')
    return jax.tree_util.tree_map_with_path(named, params)


def trusted(updates, params) -> Any:
    """LAMB (You et al. 2020): each update as long as its parameter, layer by layer where layers are stacked.

    Not those without decay, as in google-research/albert lamb_optimizer.py.
    """

    def one(path, update, param, is_decayed):
        if not is_decayed:
            return update
        stacked = any(getattr(part, 'key', '') == 'layers' for part in path)
        norm = lambda x: jnp.sqrt((x**2).sum(axis=tuple(range(int(stacked), x.ndim)), keepdims=True))
        size, length = norm(param), norm(update)
        return update * jnp.where((size > 0) & (length > 0), size / jnp.where(length > 0, length, 1.0), 1.0)

    return jax.tree_util.tree_map_with_path(one, updates, params, decayed(params))


def scale_by_uncorrected_adam(b1: Array, b2: Array, eps: Array) -> optax.GradientTransformation:
    """Adam without bias correction (google-research/bert optimization.py); optax only has the corrected one."""

    def init(params):
        zeros = lambda: jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(jnp.zeros((), jnp.int32), zeros(), zeros())

    def update(updates, state, params=None):
        mu = jax.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mu, updates)
        nu = jax.tree.map(lambda v, g: b2 * v + (1 - b2) * g * g, state.nu, updates)
        updates = jax.tree.map(lambda m, v: m / (jnp.sqrt(v) + eps), mu, nu)
        return updates, optax.ScaleByAdamState(state.count + 1, mu, nu)

    return optax.GradientTransformation(init, update)


def make(
    options: OptimizerOptions, hyper: Hyper, groups: dict[str, Array] | None = None
) -> optax.GradientTransformation:
    """Clip, Adam, decoupled decay, schedule. `hyper` may hold tracers.

    groups: path prefix -> factor of the learning rate. Each is clipped by its own norm, and so is the rest.
    """
    groups = dict(groups or {})
    if not groups and not options.freeze_encoder:
        return _one(options, hyper, 1.0)

    def labels(params):
        group = lambda path: next((g for g in groups if path.startswith(g)), 'rest')
        named = lambda path, _: group('/'.join(str(getattr(part, 'key', part)) for part in path))
        return jax.tree_util.tree_map_with_path(named, params)

    parts = {name: _one(options, hyper, factor) for name, factor in ({'rest': 1.0} | groups).items()}
    if options.freeze_encoder:
        groups['encoder/'], parts['encoder/'] = 0.0, optax.set_to_zero()
    return optax.partition(parts, labels)


def _one(options: OptimizerOptions, hyper: Hyper, factor: Array | float) -> optax.GradientTransformation:
    scale = optax.scale_by_learning_rate(lambda step: factor * learning_rate(options.schedule, hyper, step))
    if options.name == 'sgd':
        return scale
    adam = optax.scale_by_adam if options.bias_correction else scale_by_uncorrected_adam
    return optax.chain(
        optax.clip_by_global_norm(hyper['clip']),
        adam(hyper['b1'], hyper['b2'], hyper['eps']),
        optax.add_decayed_weights(hyper['weight_decay'], mask=decayed),
        *([optax.stateless(trusted)] if options.name == 'lamb' else []),
        scale,
    )
