"""A machine that is taken away sends SIGTERM first: the run leaves a checkpoint at the step it has reached."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator

import jax
from jax.experimental import multihost_utils


class Stopped(KeyboardInterrupt):
    """The process was asked to end, and has left a checkpoint."""


@contextlib.contextmanager
def asked_to_stop() -> Iterator[Callable[[int], bool]]:
    """A function of the step that says whether to stop there. Of several processes, all stop at the same step.

    Who was asked ends with `Stopped`, also where an error came first or the last step was done: the next run is not
    begun.
    """
    if jax.process_count() > 1:
        yield multihost_utils.reached_preemption_sync_point
        return
    if threading.current_thread() is not threading.main_thread():  # which alone may set handlers
        yield lambda _: False
        return
    signals: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    try:
        yield lambda _: bool(signals)
    except Exception as error:
        if signals:
            raise Stopped from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    if signals:
        raise Stopped
