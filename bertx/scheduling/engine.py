"""The engine: takes what is not done, run after run, until nothing is left. Several may work in one folder.

All truth lies in the runs' folders, so an engine may end at any moment and another one goes on. Several hosts that run
one program are one engine: process 0 holds the leases, and what it finds is so for all.
"""

import collections
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax

from bertx import hosts, parallel, train
from bertx.errors import BadInput
from bertx.preemption import Stopped
from bertx.scheduling import leases, together
from bertx.sweep import Planned
from bertx.watch import NotFinite

log = logging.getLogger(__name__)

FAILED, NOT_FINITE, MEMORY, PREEMPTED = 'failed', 'not finite', 'out of memory', 'preempted'
INTERRUPTED = 'interrupted'  # by a person, so it counts for nothing
LIMITS = {FAILED: 0, NOT_FINITE: 0, MEMORY: 0, PREEMPTED: 100}  # how often a run is tried again, by what ended it
POLL = 2.0  # seconds between two looks at the runs that others work on
CHECK = 1.0  # seconds between two looks at whether a run is still this process's

Progress = Callable[[str, int, int], Any]  # (title, steps, tokens a step) -> context manager, see `train.fit`


class Ended(Exception):
    """Some run has failed, and no other is to be begun."""


def kind_of(error: BaseException) -> str:
    """What ended a run."""
    if isinstance(error, Stopped):
        return PREEMPTED
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, NotFinite):
        return NOT_FINITE
    said = str(error)
    return MEMORY if isinstance(error, MemoryError) or 'RESOURCE_EXHAUSTED' in said or 'not fit' in said else FAILED


class Engine:
    """progress: see `Progress`. fail_fast: the first run that fails for good ends all. begun: a time; what has failed
    since then, here or elsewhere, is not tried again."""

    def __init__(
        self,
        progress: Progress,
        limits: Mapping[str, int] = LIMITS,
        fail_fast: bool = False,
        begun: float | None = None,
    ):
        self.progress, self.limits, self.fail_fast = progress, LIMITS | dict(limits), fail_fast
        self.begun, self.failed = begun or time.time(), dict[str, str]()
        self.tries: collections.Counter[tuple[str, str]] = collections.Counter()

    def __call__(self, planned: list[Planned]) -> dict[str, str]:
        """Works until each run is done or has failed, here or elsewhere. Returns id -> reason of those that failed."""
        left, told = list(planned), False
        while left:
            rest = []
            for p in left:
                for other in left if self.fail_fast else []:  # which others may have begun
                    self.failed_elsewhere(other)
                rest += [] if self.settled(p) else [p]
            if len(rest) == len(left):
                if not told:
                    log.info('waiting for %d runs that other processes work on', len(rest))
                told = True
                time.sleep(POLL)
            left = rest
        return self.failed

    def in_groups(self, planned: list[Planned], size: int) -> None:
        """Trains what has not begun, `size` runs of a graph at a time; what is left over is for `__call__`."""
        kinds: dict[Any, list[Planned]] = {}
        for p in planned:
            if hosts.told(_fresh(p)) and (kind := together.signature(p)) is not None:
                kinds.setdefault(kind, []).append(p)
        for members in kinds.values():
            for at in range(0, len(members), size):
                self.group(members[at : at + size])

    def group(self, planned: list[Planned]) -> None:
        with contextlib.ExitStack() as stack:
            held = [(p, lease) for p in planned if (lease := stack.enter_context(self.held(p))) is not None]
            ours = [p for p, _ in held if hosts.told(_fresh(p))]
            if len(ours) < 2:
                return

            for p in ours:
                p.folder.start(p.run, p.store.tokenizer)
            run = ours[0].run
            title = f'{len(ours)} runs, {ours[0].id} and others'
            try:
                with self.progress(title, run.train['steps'], len(ours) * run.tokens_per_step) as show:

                    def advance(step: int, numbers: dict[str, float]) -> None:
                        for _, lease in held:
                            lease.check(CHECK)
                        show(step, numbers)  # noqa: B023 - called inside the block

                    found = together.fit(ours, advance)
            except Exception as error:  # noqa: BLE001 - each alone will show whose fault it was
                if jax.process_count() > 1:
                    raise  # the other hosts may not know of it, and would wait
                log.error('%s: %s: %s; one after another then', title, type(error).__name__, error)
                return
            own = {p.id: lease.check for p, lease in held}
            for p in ours:
                try:
                    if isinstance(found[p.id], NotFinite):
                        raise found[p.id]
                    with p.folder.logging():
                        finish(p, found[p.id], own[p.id], len(ours))
                except leases.Lost as error:
                    log.warning('%s', error)
                except Exception as error:  # noqa: BLE001
                    self.ended(p, error)

    def afterwards(self, planned: list[Planned], function: Callable[[Planned], dict[str, str]]) -> None:
        """A function that returns failures as `__call__` does, on each run that is done, by one process at a time; of
        several hosts only one calls this."""
        left = [p for p in planned if p.folder.done]
        while left:
            busy = []
            for p in left:
                with self.leased(p) as lease:
                    if lease is None:
                        busy.append(p)
                    else:
                        self.failed |= function(p)
                if self.failed and self.fail_fast:
                    return
            if len(busy) == len(left):
                time.sleep(POLL)
            left = busy

    def settled(self, p: Planned) -> bool:
        """Whether the run needs nobody any more; tries to make it so."""
        result = p.folder.result or {}
        if hosts.told(result.get('status') == 'done'):
            return True
        if self.failed_elsewhere(p):
            return True
        try:
            with self.held(p) as lease:
                if lease is None:
                    return False
                return bool(hosts.told(p.folder.done)) or self.attempt(p, lease)  # it may be, since it was looked at
        except OSError as error:  # a full disk, say
            return self.ended(p, error)

    @contextlib.contextmanager
    def held(self, p: Planned):
        """As `leased`, on all hosts: process 0 has the lease, and the others something that stands for it."""
        with self.leased(p) if hosts.leads() else contextlib.nullcontext(leases.Free()) as lease:
            yield lease if hosts.told(lease is not None) else None

    @contextlib.contextmanager
    def leased(self, p: Planned):
        """The run's lease, None where another process has it; where files cannot be leased, whoever calls is alone."""
        if '://' in str(p.folder.path):
            yield leases.Free()
            return
        beaten: list[str] = []
        with leases.lease(p.folder.path, beaten) as lease:
            for holder in beaten:
                self.record(p, PREEMPTED, f'the process that worked on it has ended: {holder}')
            yield lease

    def attempt(self, p: Planned, lease: leases.Free) -> bool:
        deaths = hosts.told(sum(line['kind'] == PREEMPTED for line in p.folder.attempts()))
        if deaths > self.limits[PREEMPTED]:
            return self.give_up(p, PREEMPTED, f'ended {deaths} times while it ran')
        log.info('%s', p.id)
        try:
            with self.progress(p.id, p.run.train['steps'], p.run.tokens_per_step) as show:

                def advance(step: int, numbers: dict[str, float]) -> None:
                    lease.check(CHECK)
                    show(step, numbers)

                run_one(p, advance, lease.check)
        except leases.Lost as error:
            if jax.process_count() > 1:
                raise  # the other hosts are still at it
            log.warning('%s', error)
            return False
        except (Stopped, KeyboardInterrupt) as error:
            self.record(p, kind_of(error), type(error).__name__)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a run dies of, the others go on
            return self.ended(p, error)
        return True

    def ended(self, p: Planned, error: Exception) -> bool:
        kind, reason = kind_of(error), f'{type(error).__name__}: {error}'
        log.error('%s %s: %s', p.id, kind, reason, exc_info=kind == FAILED and not isinstance(error, BadInput))
        if jax.process_count() > 1 and kind != NOT_FINITE:
            raise error  # the other hosts may not know of it, and would wait
        self.record(p, kind, reason)
        # Those of other processes too; and where they cannot be written down, those of this one.
        self.tries[p.id, kind] += 1
        written = sum(line['kind'] == kind and line['time'] > self.begun for line in p.folder.attempts())
        if max(self.tries[p.id, kind], written) <= self.limits[kind]:
            return False  # once more
        return self.give_up(p, kind, reason)

    def give_up(self, p: Planned, kind: str, reason: str) -> bool:
        with _told(p):
            steps = max((line['step'] for line in p.folder.metrics()), default=0)
            kinds = collections.Counter(line['kind'] for line in p.folder.attempts())
            p.folder.fail(about(p, steps) | {'kind': kind, 'attempts': dict(kinds), 'ended': time.time()}, reason)
        return self.lost(p, reason)

    def failed_elsewhere(self, p: Planned) -> bool:
        """Whether it has failed since this engine's work was begun."""
        result = p.folder.result or {}
        failed = hosts.told(result.get('status') == 'failed' and result.get('ended', 0.0) > self.begun)
        return bool(failed) and self.lost(p, result.get('reason', ''))

    def lost(self, p: Planned, reason: str) -> bool:
        """It has failed for good, here or elsewhere."""
        self.failed[p.id] = reason
        if self.fail_fast:
            raise Ended(f'{p.id}: {reason}')
        return True

    def record(self, p: Planned, kind: str, reason: str) -> None:
        with _told(p):
            p.folder.append('attempts.jsonl', {'time': time.time(), 'kind': kind, 'reason': reason})


def _fresh(p: Planned) -> bool:
    """Whether nobody has begun the run."""
    return p.folder.result is None and not (p.folder.checkpoints.exists() and any(p.folder.checkpoints.iterdir()))


@contextlib.contextmanager
def _told(p: Planned):
    """What goes wrong while a failure is written down, a full disk say, is told and does not stop the others."""
    try:
        yield
    except (BadInput, OSError) as error:
        log.error('%s: that it failed could not be written: %s', p.folder.path, error)


def run_one(p: Planned, advance, check: Callable[[], None] = lambda: None) -> None:
    """Trains, evaluates, and records one run. check: raises where the run is not to be written any more."""
    p.folder.start(p.run, p.store.tokenizer)
    with p.folder.logging():
        state = train.fit(p.run, p.store, p.suite, p.folder, parallel.mesh_of(p.run.train), advance)
        finish(p, state, check)


def finish(p: Planned, state, check: Callable[[], None] = lambda: None, together: int = 1) -> None:
    """Measures a run that is trained, and writes its result. together: runs that shared the time of training."""
    trained, begun = p.folder.seconds() / together, time.perf_counter()
    measured = p.suite.final(p.run, state)
    for m in measured:
        log.info('%s %s %s, %s head: %.4f', m.split, m.task, m.metric, m.head, m.value)
    wall_s = round(trained + time.perf_counter() - begun, 1)
    check()
    p.folder.finish(about(p, p.run.train['steps']) | {'wall_s': wall_s}, measured)


def about(p: Planned, steps: int) -> dict[str, Any]:
    return {'arm': p.arm, 'seed': p.run.seed, 'step': steps} | p.run.after(steps)
