"""Several runs of one graph in one program, each with its own numbers, rows and noise (vmap), spread over the devices.

It pays where a run is too small to fill a device: on two CPU cores it does not. What a run computes is what it
computes alone but for the order of sums; a run whose values are no longer finite changes no other.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from bertx import model, parallel, step, train
from bertx.preemption import Stopped, asked_to_stop
from bertx.sweep import Planned
from bertx.text.rows import Rows
from bertx.watch import NotFinite


def signature(p: Planned) -> Any:
    """Equal for runs that can be trained together; None for one that cannot be with any."""
    run, t = p.run, p.run.train
    alone = run.second or run.source or t['parallel'] != 'jit' or t['fsdp'] > 1
    if alone or any(o.frozen() is not None for o in run.objectives.values()):
        return None
    names = 'devices', 'batch', 'micro_batches', 'steps', 'log_every', 'validate_every', 'checkpoint_every'
    numbers = [t[name] for name in names]
    graph = run.encoder, jax.tree.structure(run.objectives), run.optimizer, tuple(run.hyper)
    return *graph, run.rows.length, run.rows.packing, run.rows.labels, p.store, *numbers


@functools.lru_cache
def compiled(encoder, structure, optimizer, micro_batches: int, mesh):
    """(init, step) for stacked runs."""
    net = model.make_net(encoder, model.rebuilt(structure))
    make = jax.vmap(functools.partial(step.init, net, optimizer), in_axes=(0, 0, 0, None, 0))
    advance = jax.vmap(functools.partial(step.step, net, optimizer, micro_batches), in_axes=(0, 0, 0, 0, None, 0))
    spread: Any = functools.partial(jax.jit, out_shardings=parallel.first_axis(mesh))
    return spread(make), train.counted(spread(advance, donate_argnums=0))


def fit(planned: list[Planned], advance: Callable[[int, dict[str, float]], None] = lambda *_: None) -> dict[str, Any]:
    """Trains runs of one `signature` that have no checkpoint yet; id -> final state, or the NotFinite that ended it.

    Raises Stopped after a checkpoint of each: they go on alone.
    """
    first = planned[0].run
    mesh = parallel.over_runs(len(planned), first.train['devices'])
    put = functools.partial(parallel.split_batch, mesh)
    stacked = lambda trees: put(jax.tree.map(lambda *x: np.stack(x), *trees))
    recorders = {p.id: train.Recorder(p.run, p.store, p.suite, p.folder) for p in planned}
    rows = [Rows(p.store, 'train', p.run.rows, p.run.seed) for p in planned]
    vocab = parallel.replicate(mesh, train.vocabulary(planned[0].store))
    roots = jax.vmap(jax.random.key)(put(np.array([p.run.seed for p in planned], np.uint32)))
    numbers = stacked([(p.run.objectives, p.run.hyper) for p in planned])
    structure, micro_batches = jax.tree.structure(first.objectives), first.train['micro_batches']
    make, train_step = compiled(first.encoder, structure, first.optimizer, micro_batches, mesh)
    state = make(*numbers, roots, vocab, stacked([r.batch(np.arange(1)) for r in rows]))
    for recorder in recorders.values():
        recorder.begin(0)
    ended: dict[str, Any] = {}
    one = lambda tree, i: jax.tree.map(lambda x: np.asarray(x[i]), tree)
    with contextlib.ExitStack() as stack:
        for recorder in recorders.values():
            stack.callback(recorder.checkpoints.close)
        asked = stack.enter_context(asked_to_stop())
        streams = [train.host_feed(p.run, p.store) for p in planned]
        for done in range(1, first.train['steps'] + 1):
            batch = stacked([next(stream)[1] for stream in streams])
            state, window = train_step(state, *numbers, roots, vocab, batch)
            stop = asked(done)
            advance(done, recorders[planned[0].id].watch.shown)
            for i, p in enumerate(planned):
                if p.id in ended:
                    continue
                recorder = recorders[p.id]
                try:
                    recorder.after(done, functools.partial(one, state, i), functools.partial(one, window, i), stop)
                except NotFinite as error:
                    ended[p.id] = error
            if len(ended) == len(planned):
                break
            if stop and done < first.train['steps']:
                raise Stopped
    return {p.id: one(state, i) for i, p in enumerate(planned)} | ended
