"""One training step, the same for every objective: noise, one pass, one division by the global weight, one update."""

import dataclasses
import functools
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct

from bertx import model, optim
from bertx.optim import Hyper, OptimizerOptions
from bertx.types import Array, DropoutRates, Example, Term, Vocabulary, total


@struct.dataclass
class State:
    """All that a run changes. `window` sums the terms of the steps since the last log line, so that it resumes too."""

    step: Array
    params: Any
    opt: Any
    window: dict[str, Term]
    frozen: Any = struct.field(default_factory=dict)  # outside gradient and optimizer: a teacher


def named(root, name: str):
    """The random root of one purpose."""
    return jax.random.fold_in(root, zlib.crc32(name.encode()))


def dropout_rates(hyper: Hyper) -> DropoutRates | None:
    """Dropout is in the graph where `hyper` has rates for it."""
    if 'dropout' not in hyper:
        return None
    return DropoutRates(hyper['dropout'], hyper.get('attention_dropout'))


def init_variables(net: model.Net, objectives: model.Objectives, root, vocab: Vocabulary, batch: Example):
    """Fresh 'params', and 'frozen' where an objective has such.

    They follow from root and path: arms of a seed start alike where they share parts.
    """
    view, targets = model.corrupt(objectives, root, vocab, batch)
    return net.init(named(root, 'init'), objectives, view, targets)


def init(net, options: OptimizerOptions, objectives, hyper: Hyper, root, vocab, batch) -> State:
    variables = init_variables(net, objectives, root, vocab, batch)
    params = variables['params']
    opt = optim.make(options, hyper, model.groups(objectives)).init(params)
    state = State(jnp.int32(0), params, opt, {}, variables.get('frozen', {}))
    _, report = jax.eval_shape(lambda s: step(net, options, 1, s, objectives, hyper, root, vocab, batch), state)
    return dataclasses.replace(state, window=jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), report))


def step(
    net, options: OptimizerOptions, micro_batches: int, state: State, objectives, hyper: Hyper, root, vocab, batch,
    axis: str | None = None, corrupt=model.corrupt, spread=lambda gradient: gradient,
):  # fmt: skip
    """-> new State, and the window with this step in it: sums over the batch of each loss and metric.

    A step whose loss or gradient is not finite changes nothing but the count of such steps.
    hyper: see `optim.learning_rate` and `optim.make`; `log_every` says after how many steps the window starts anew.
    axis: of pmap, where `batch` is one device's part of it; under jit it is all of it.
    corrupt: `model.corrupt`, however it is spread over devices. spread: see `parallel.by_device`.
    """
    over_devices = functools.partial(jax.lax.psum, axis_name=axis) if axis else lambda tree: tree
    view, targets = corrupt(objectives, named(root, 'noise'), vocab, batch)
    weights = {
        f'{name}/{key}': jnp.maximum(over_devices(weight_B.sum()), 1.0)
        for name, objective in objectives.items()
        for key, weight_B in objective.weights(targets[name]).items()
    }

    def share_of_loss(params, frozen, key, view, targets):
        """A micro-batch's part of the whole batch's loss: its sums over the weights of all."""
        if options.freeze_encoder:
            params = params | {'encoder': jax.lax.stop_gradient(params['encoder'])}
        losses, metrics = net.apply(
            {'params': params, 'frozen': frozen},
            objectives, view, targets, dropout_rates(hyper), rngs={'dropout': key},
        )  # fmt: skip
        loss = sum(loss.coefficient * loss.term.sum.sum() / weights[name] for name, loss in losses.items())
        terms = {name: total(loss.term) for name, loss in losses.items()} | jax.tree.map(
            total, metrics, is_leaf=lambda x: isinstance(x, Term)
        )
        return loss, terms

    gradient = functools.partial(spread(jax.value_and_grad(share_of_loss, has_aux=True)), state.params, state.frozen)
    key = jax.random.fold_in(named(root, 'dropout'), state.step)
    keys = jax.random.split(jax.random.fold_in(key, jax.lax.axis_index(axis)) if axis else key, micro_batches)
    if micro_batches == 1:
        sums = gradient(keys[0], view, targets)
    else:
        # Micro-batch m takes rows m, m + n, ...: each device's rows stay where they are.
        parts = jax.tree.map(lambda x: x.reshape(-1, micro_batches, *x.shape[1:]).swapaxes(0, 1), (view, targets))
        add = lambda sums, part: (jax.tree.map(jnp.add, sums, gradient(*part)), None)
        shapes = jax.eval_shape(gradient, keys[0], *jax.tree.map(lambda x: x[0], parts))
        zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
        sums, _ = jax.lax.scan(add, zeros, (keys, *parts))
    (loss, terms), grads = over_devices(sums)
    norm = optax.global_norm(grads)
    one = jnp.float32(1.0)
    terms |= {'loss': Term(loss, one), 'optimizer/gradient_norm': Term(norm, one)}
    updates, opt = optim.make(options, hyper, model.groups(objectives)).update(grads, state.opt, state.params)
    good = jnp.isfinite(loss) & jnp.isfinite(norm)
    keep = lambda new, old: jax.tree.map(lambda x, y: jnp.where(good, x, y), new, old)
    window = jax.tree.map(lambda x: jnp.where(good, x, 0.0), terms)
    window['optimizer/skipped'] = Term(1.0 - good, one)
    if state.window:
        fresh = state.step % hyper['log_every'].astype(jnp.int32) == 0
        window = jax.tree.map(lambda old, new: jnp.where(fresh, 0.0, old) + new, state.window, window)
    params, opt = keep((optax.apply_updates(state.params, updates), opt), (state.params, state.opt))
    return State(state.step + 1, params, opt, window, state.frozen), window
