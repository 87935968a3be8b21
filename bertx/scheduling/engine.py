"""The engine: takes what is not done, run after run, until nothing is left. Several may work in one folder.

All truth lies in the runs' folders, so an engine may end at any moment and another one goes on. Several hosts that run
one program are one engine: process 0 holds the leases, and what it finds is so for all.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import jax

from bertx import hosts, parallel, train
from bertx.scheduling import leases, together
from bertx.scheduling.outcomes import LIMITS, PREEMPTED, Outcomes, about, kind_of
from bertx.sweep import Planned
from bertx.watch import NotFinite

log = logging.getLogger(__name__)

POLL = 2.0  # seconds between two looks at the runs that others work on
CHECK = 1.0  # seconds between two looks at whether a run is still this process's

Progress = Callable[[str, int, int], Any]  # (title, steps, tokens a step) -> context manager, see `train.fit`
Advance = Callable[[int, dict[str, float]], None]


class Engine:
    """progress: see `Progress`. The rest: see `Outcomes`."""

    def __init__(
        self,
        progress: Progress,
        limits: Mapping[str, int] = LIMITS,
        fail_fast: bool = False,
        begun: float | None = None,
    ):
        self.progress, self.outcomes = progress, Outcomes(limits, fail_fast, begun)

    def __call__(self, planned: list[Planned]) -> dict[str, str]:
        """Works until each run is done or has failed, here or elsewhere. Returns id -> reason of those that failed."""
        left, told = list(planned), False
        while left:
            rest = []
            for p in left:
                for other in left if self.outcomes.fail_fast else []:  # which others may have begun
                    self.outcomes.failed_elsewhere(other)
                rest += [] if self.settled(p) else [p]
            if len(rest) == len(left):
                if not told:
                    log.info('waiting for %d runs that other processes work on', len(rest))
                told = True
                time.sleep(POLL)
            left = rest
        return self.outcomes.failed

    def in_groups(self, planned: list[Planned], size: int) -> None:
        """Trains what has not begun, `size` runs of a graph at a time; what is left over is for `__call__`."""
        kinds: dict[Any, list[Planned]] = {}
        for p in planned:
            if hosts.told(_fresh(p)) and (kind := together.signature(p)) is not None:
                kinds.setdefault(kind, []).append(p)
        for members in kinds.values():
            for at in range(0, len(members), size):
                self.group(members[at : at + size])

    def afterwards(self, planned: list[Planned], function: Callable[[Planned], dict[str, str]]) -> None:
        """A function that returns failures as `__call__` does, on each run that is done, by one process at a time; of
        several hosts only one calls this."""
        left, failed = [p for p in planned if p.folder.done], self.outcomes.failed
        while left:
            busy = []
            for p in left:
                with self.leased(p) as lease:
                    if lease is None:
                        busy.append(p)
                    else:
                        failed |= function(p)
                if failed and self.outcomes.fail_fast:
                    return
            if len(busy) == len(left):
                time.sleep(POLL)
            left = busy

    def settled(self, p: Planned) -> bool:
        """Whether the run needs nobody any more; tries to make it so."""
        if hosts.told(p.folder.done) or self.outcomes.failed_elsewhere(p):
            return True
        try:
            with self.claimed(p) as lease:
                if lease is None:
                    return False
                return bool(hosts.told(p.folder.done)) or self.attempt(p, lease)  # it may be, since it was looked at
        except OSError as error:  # a full disk, say
            return self.outcomes.given_up(p, error)

    def attempt(self, p: Planned, lease: leases.Free) -> bool:
        """Whether the run needs nobody any more, now that this process has worked on it."""
        if self.outcomes.died_too_often(p):
            return True
        log.info('%s', p.id)
        try:
            with self.shown(p.id, p.run.train['steps'], p.run.tokens_per_step, [lease]) as advance:
                run_one(p, advance, lease.check)
        except leases.Lost as error:
            if jax.process_count() > 1:
                raise  # the other hosts are still at it
            log.warning('%s', error)
            return False
        except KeyboardInterrupt as error:  # by a person, or as `Stopped`
            self.outcomes.record(p, kind_of(error), type(error).__name__)
            raise
        except Exception as error:  # noqa: BLE001 - whatever a run dies of, the others go on
            return self.outcomes.given_up(p, error)
        return True

    def group(self, planned: list[Planned]) -> None:
        """Those of the runs that have not begun and that nobody else works on, in one program."""
        with contextlib.ExitStack() as stack:
            held = {p.id: lease for p in planned if (lease := stack.enter_context(self.claimed(p))) is not None}
            ours = [p for p in planned if p.id in held and hosts.told(_fresh(p))]
            if len(ours) < 2:
                return

            for p in ours:
                p.folder.start(p.run, p.store.tokenizer)
            run, title = ours[0].run, f'{len(ours)} runs, {ours[0].id} and others'
            try:
                with self.shown(title, run.train['steps'], len(ours) * run.tokens_per_step, held.values()) as advance:
                    found = together.fit(ours, advance)
            except KeyboardInterrupt as error:  # by a person, or as `Stopped`
                for p in ours:
                    self.outcomes.record(p, kind_of(error), type(error).__name__)
                raise
            except Exception as error:  # noqa: BLE001 - each alone will show whose fault it was
                if jax.process_count() > 1:
                    raise  # the other hosts may not know of it, and would wait
                log.error('%s: %s: %s; one after another then', title, type(error).__name__, error)
                return
            for p in ours:
                try:
                    if isinstance(found[p.id], NotFinite):
                        raise found[p.id]
                    with p.folder.logging():
                        finish(p, found[p.id], held[p.id].check, len(ours))
                except leases.Lost as error:
                    log.warning('%s', error)
                except Exception as error:  # noqa: BLE001
                    self.outcomes.given_up(p, error)

    @contextlib.contextmanager
    def shown(self, title: str, steps: int, tokens: int, held: Iterable[leases.Free]) -> Iterator[Advance]:
        """A function of each step and its numbers, which shows them; it raises Lost where a lease is another's."""
        with self.progress(title, steps, tokens) as show:

            def advance(step: int, numbers: dict[str, float]) -> None:
                for lease in held:
                    lease.check(CHECK)
                show(step, numbers)

            yield advance

    @contextlib.contextmanager
    def claimed(self, p: Planned) -> Iterator[leases.Free | None]:
        """As `leased`, on all hosts: process 0 has the lease, and the others something that stands for it."""
        with self.leased(p) if hosts.leads() else contextlib.nullcontext(leases.Free()) as lease:
            yield lease if hosts.told(lease is not None) else None

    @contextlib.contextmanager
    def leased(self, p: Planned) -> Iterator[leases.Free | None]:
        """The run's lease, None where another process has it."""
        beaten: list[str] = []
        with leases.lease(p.folder.path, beaten) as lease:
            for holder in beaten:
                self.outcomes.record(p, PREEMPTED, f'the process that worked on it has ended: {holder}')
            yield lease


def _fresh(p: Planned) -> bool:
    """Whether nobody has begun the run."""
    return p.folder.result is None and not (p.folder.checkpoints.exists() and any(p.folder.checkpoints.iterdir()))


def run_one(p: Planned, advance: Advance, check: Callable[[], None]) -> None:
    """Trains, evaluates, and records one run. check: raises where the run is not to be written any more."""
    p.folder.start(p.run, p.store.tokenizer)
    with p.folder.logging():
        state = train.fit(p.run, p.store, p.suite, p.folder, parallel.mesh_of(p.run.train), advance)
        finish(p, state, check)


def finish(p: Planned, state, check: Callable[[], None], together: int = 1) -> None:
    """Measures a run that is trained, and writes its result. together: runs that shared the time of training."""
    trained, begun = p.folder.seconds() / together, time.perf_counter()
    measured = p.suite.final(p.run, state)
    for m in measured:
        log.info('%s %s %s, %s head: %.4f', m.split, m.task, m.metric, m.head, m.value)
    wall_s = round(trained + time.perf_counter() - begun, 1)
    check()
    p.folder.finish(about(p, p.run.train['steps']) | {'wall_s': wall_s}, measured)
