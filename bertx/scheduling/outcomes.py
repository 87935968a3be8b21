"""How a run ends that is not done: what ended it, whether it is tried again, and what is written down of it."""

import collections
import contextlib
import logging
import time
from collections.abc import Mapping
from typing import Any

import jax

from bertx import hosts
from bertx.errors import BadInput
from bertx.preemption import Stopped
from bertx.sweep import Planned
from bertx.watch import NotFinite

log = logging.getLogger(__name__)

FAILED, NOT_FINITE, MEMORY, PREEMPTED = 'failed', 'not finite', 'out of memory', 'preempted'
INTERRUPTED = 'interrupted'  # by a person, so it counts for nothing
LIMITS = {FAILED: 0, NOT_FINITE: 0, MEMORY: 0, PREEMPTED: 100}  # how often a run is tried again, by what ended it


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


class Outcomes:
    """failed: id -> reason of the runs that have failed for good, here or elsewhere.

    fail_fast: the first of them ends all. begun: a time; what has failed since then is not tried again.
    """

    def __init__(self, limits: Mapping[str, int], fail_fast: bool, begun: float | None):
        self.limits, self.fail_fast, self.begun = LIMITS | dict(limits), fail_fast, begun or time.time()
        self.failed: dict[str, str] = {}
        self.tries: collections.Counter[tuple[str, str]] = collections.Counter()

    def record(self, p: Planned, kind: str, reason: str) -> None:
        with _told(p):
            p.folder.append('attempts.jsonl', {'time': time.time(), 'kind': kind, 'reason': reason})

    def given_up(self, p: Planned, error: Exception) -> bool:
        """Whether the run is not to be tried again after this error, which is written down."""
        kind, reason = kind_of(error), f'{type(error).__name__}: {error}'
        log.error('%s %s: %s', p.id, kind, reason, exc_info=kind == FAILED and not isinstance(error, BadInput))
        if jax.process_count() > 1 and kind != NOT_FINITE:
            raise error  # the other hosts may not know of it, and would wait
        self.record(p, kind, reason)
        # Those of other processes too; and where they cannot be written down, those of this one.
        self.tries[p.id, kind] += 1
        written = sum(line['kind'] == kind and line['time'] > self.begun for line in p.folder.attempts())
        again = max(self.tries[p.id, kind], written) <= self.limits[kind]
        return not again and self._fail(p, kind, reason)

    def died_too_often(self, p: Planned) -> bool:
        """Whether more processes have ended at the run than may."""
        deaths = hosts.told(sum(line['kind'] == PREEMPTED for line in p.folder.attempts()))
        return deaths > self.limits[PREEMPTED] and self._fail(p, PREEMPTED, f'ended {deaths} times while it ran')

    def failed_elsewhere(self, p: Planned) -> bool:
        """Whether it has failed since this engine's work was begun."""
        result = p.folder.result or {}
        failed = hosts.told(result.get('status') == 'failed' and result.get('ended', 0.0) > self.begun)
        return bool(failed) and self._lost(p, result.get('reason', ''))

    def _fail(self, p: Planned, kind: str, reason: str) -> bool:
        with _told(p):
            steps = max((line['step'] for line in p.folder.metrics()), default=0)
            kinds = collections.Counter(line['kind'] for line in p.folder.attempts())
            p.folder.fail(about(p, steps) | {'kind': kind, 'attempts': dict(kinds), 'ended': time.time()}, reason)
        return self._lost(p, reason)

    def _lost(self, p: Planned, reason: str) -> bool:
        self.failed[p.id] = reason
        if self.fail_fast:
            raise Ended(f'{p.id}: {reason}')
        return True


@contextlib.contextmanager
def _told(p: Planned):
    """What goes wrong while a failure is written down, a full disk say, is told and does not stop the others."""
    try:
        yield
    except (BadInput, OSError) as error:
        log.error('%s: that it failed could not be written: %s', p.folder.path, error)


def about(p: Planned, steps: int) -> dict[str, Any]:
    return {'arm': p.arm, 'seed': p.run.seed, 'step': steps} | p.run.after(steps)
