"""One run: the loop around the step, its log lines, validation and checkpoints. It does not wait for what it began."""

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from bertx import footprint, hosts, model, parallel
from bertx.checkpoint import Checkpoints
from bertx.config import Run
from bertx.errors import BadInput
from bertx.evaluate import Suite
from bertx.preemption import Stopped, asked_to_stop
from bertx.pretrained import start_from
from bertx.results import RunFolder
from bertx.step import State, init, step
from bertx.text import tables
from bertx.text.pipeline import BatchSource, batches
from bertx.text.rows import Rows
from bertx.types import Example, Vocabulary
from bertx.watch import Watch

log = logging.getLogger(__name__)


@functools.lru_cache
def compiled(encoder, structure, optimizer, micro_batches: int, mesh, kind: str):
    """(init, step) for one graph. Numbers are arguments, so runs that differ only in them share the compilation."""
    net = model.make_net(encoder, model.rebuilt(structure))
    make = jax.jit(parallel.laid_out(mesh, functools.partial(init, net, optimizer)))
    advance = functools.partial(step, net, optimizer, micro_batches)
    if kind == 'pmap':
        return make, parallel.mapped(mesh, functools.partial(advance, axis='data'))
    corrupt, spread = parallel.by_rows(mesh, model.corrupt), functools.partial(parallel.by_device, mesh)
    advance = functools.partial(advance, corrupt=corrupt, spread=spread)
    return make, jax.jit(parallel.laid_out(mesh, advance), donate_argnums=0)


def compilations() -> int:
    """Training steps compiled in this process so far."""
    return sum(getattr(function, '_cache_size', lambda: 1)() for function in _steps)  # pmap does not tell


_steps: set[Any] = set()


def counted(function):
    """A training step, which `compilations` counts from now on."""
    _steps.add(function)
    return function


def functions(run: Run, mesh):
    structure, t = jax.tree.structure(run.objectives), run.train
    make, advance = compiled(run.encoder, structure, run.optimizer, t['micro_batches'], mesh, t['parallel'])
    return make, counted(advance)


def vocabulary(store) -> Vocabulary:
    t = store.tokenizer
    return Vocabulary(
        mask=np.int32(t.mask_id),
        ordinary_V=t.ordinary(),
        unigram_V=store.unigram_V.astype(np.float32),
        first_char_V=tables.first_char(t),
        type_V=tables.token_type(t, store.language, store.unigram_V),
    )


class Clock:
    """Tokens per second between two log lines, and the time the loop waited for the host."""

    def __init__(self, step: int):
        self.step, self.start, self.waited = step, time.perf_counter(), 0.0

    def lap(self, step: int, run: Run) -> dict[str, float]:
        seconds, waited = time.perf_counter() - self.start, self.waited
        tokens = run.after(step)['tokens'] - run.after(self.step)['tokens']
        self.__init__(step)  # type: ignore[misc]
        return {'wall_s': seconds, 'tokens_per_s': tokens / seconds, 'host_wait_s': waited}


def start(run: Run, rows: Rows, vocab: Vocabulary, mesh) -> State:
    """The state before step 0."""
    if rows.tokenizer.vocab_size > run.encoder.vocab_size:
        raise BadInput(f'the store has {rows.tokenizer.vocab_size} token ids, the encoder {run.encoder.vocab_size}')
    make, _ = functions(run, mesh)
    example = rows.batch(np.arange(mesh.size))  # only its shape matters
    root = parallel.replicate(mesh, jax.random.key(run.seed))
    state = make(run.objectives, run.hyper, root, vocab, example)
    if run.source:
        fresh = parallel.gathered(parallel.local(mesh), state.params)
        state = dataclasses.replace(state, params=parallel.place(mesh, start_from(run.source, fresh)))
    frozen = {f'heads_{name}': found for name, o in run.objectives.items() if (found := o.frozen()) is not None}
    return dataclasses.replace(state, frozen=parallel.place(mesh, frozen)) if frozen else state


def announce(run: Run, mesh, train_step, state: State, *arguments) -> None:
    """What the step is going to need; it is compiled here, for the loop too. pmap would compile it once more."""
    known = hasattr(train_step, 'lower')
    compiled_step = footprint.compiled(train_step, run, mesh, state, *arguments) if known else None
    for line in footprint.describe(run, mesh, state, compiled_step):
        log.info(line)
    if run.encoder.attention != 'plain' and run.train['attention_dropout']:
        log.info('attention is computed plainly, not by %s, which has no dropout', run.encoder.attention)


def host_feed(run: Run, store, at: int = 0) -> Iterator[tuple[Run, Example]]:
    """For each step from `at` on: its phase of the run, and this host's share of its batch."""
    for phase, first, end in run.phases:
        if at < end:
            rows = Rows(store, 'train', phase.rows, run.seed)
            source = BatchSource(rows, phase.train['batch'], end - first, jax.process_index(), jax.process_count())
            for batch in batches(source, max(at - first, 0)):
                yield phase, batch


class Recorder:
    """A run's log lines, validations and checkpoints."""

    def __init__(self, run: Run, store, suite: Suite, folder: RunFolder):
        self.run, self.suite, self.folder = run, suite, folder
        self.pending: tuple[int, Any] | None = None
        self.about = {'config': run.config, 'fingerprint': run.fingerprint, 'hash': run.hash}
        self.about['tokenizer'] = store.tokenizer.fingerprint
        self.checkpoints = Checkpoints(folder.checkpoints, run.train['keep_checkpoints'])

    def restore(self, state: State) -> tuple[int, State]:
        """The newest checkpoint's step and state, 0 and the given state where there is none."""
        at = 0
        if found := self.checkpoints.restore(state):
            at, state = found
            log.info('resumed at step %d', at)
        self.begin(at)
        return at, state

    def begin(self, at: int) -> None:
        self.folder.rewind(at)
        hosts.wait()  # the watch reads the lines that are left
        self.clock, self.watch = Clock(at), Watch(self.run, self.folder)

    def flush(self) -> None:
        """Write the line of the last window; its values are there by now, or are waited for."""
        if self.pending:
            self.watch.line(*self.pending)
            self.pending = None

    def after(self, done: int, state: Callable[[], State], window: Callable[[], Any], stop: bool = False) -> None:
        """What is due after that many steps, of functions that give state and window; `stop`: a checkpoint is."""
        t, last = self.run.train, done == self.run.train['steps']
        self.flush()  # of an earlier step, while this one runs
        if done % t['log_every'] == 0 or last:
            self.pending = done, window()
            self.folder.append('timing.jsonl', {'step': done} | self.clock.lap(done, self.run))
        if done % t['validate_every'] == 0 or last:
            self.flush()
            measured = self.suite.validate(self.run, state())
            if values := {f'{m.task}/{name}': value for m in measured for name, value in m.shown.items()}:
                line = {'step': done, 'split': 'validation', 'tokens': self.run.after(done)['tokens']}
                line['loss'] = sum(m.coefficient * m.value for m in measured if m.coefficient and m.weight_N.any())
                self.folder.append('metrics.jsonl', line | values)
            self.clock = Clock(done)
        if done % t['checkpoint_every'] == 0 or last or stop:
            self.flush()
            self.checkpoints.save(done, state(), self.about)


def fit(
    run: Run,
    store,
    suite: Suite,
    folder: RunFolder,
    mesh,
    advance: Callable[[int, dict[str, float]], None] = lambda *_: None,
) -> State:
    """Trains to the last step, from the newest checkpoint if there is one, and leaves a checkpoint at the end.

    advance(step, numbers): called at every step; the numbers are those of the last log line.
    Raises `watch.NotFinite`, and `preemption.Stopped` after a checkpoint at the step that was reached.
    """
    for each, *_ in run.phases:
        parallel.check_divisible(mesh, each.train['batch'], each.train['micro_batches'])
    vocab = parallel.replicate(mesh, vocabulary(store))
    root = parallel.replicate(mesh, jax.random.key(run.seed))
    hyper = parallel.replicate(mesh, run.hyper)
    recorder = Recorder(run, store, suite, folder)
    at, state = recorder.restore(start(run, Rows(store, 'train', run.rows, run.seed), vocab, mesh))
    with contextlib.ExitStack() as stack:
        stack.callback(recorder.checkpoints.close)
        asked = stack.enter_context(asked_to_stop())
        stream = host_feed(run, store, at)
        phase: Run | None = None
        for done in range(at + 1, run.train['steps'] + 1):
            begun = time.perf_counter()
            now, batch = next(stream)
            batch = parallel.split_batch(mesh, batch)
            recorder.clock.waited += time.perf_counter() - begun
            if now is not phase:
                phase = now
                _, train_step = functions(phase, mesh)
                objectives = parallel.replicate(mesh, phase.objectives)
                announce(phase, mesh, train_step, state, objectives, hyper, root, vocab, batch)
            state, window = train_step(state, objectives, hyper, root, vocab, batch)
            stop = asked(done)
            advance(done, recorder.watch.shown)  # which may find that the run is another process's: before any writing
            recorder.after(done, lambda: state, lambda: window, stop)  # noqa: B023 - called before the next step
            if stop and done < run.train['steps']:
                raise Stopped
    return state
