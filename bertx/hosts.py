"""Several hosts run one program, a process on each. Process 0 alone writes what there is one of.

All see one workdir: a bucket, or a shared disk.
"""

import contextlib
import functools
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils


def leads() -> bool:
    """Whether this is the process that writes."""
    return jax.process_index() == 0


def wait() -> None:
    """Until all are here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices('bertx')


def told(value: int) -> int:
    """The value of process 0, which all call with theirs: of a shared disk some see later what others wrote."""
    return int(multihost_utils.broadcast_one_to_all(np.int32(value))) if jax.process_count() > 1 else value


@contextlib.contextmanager
def one_first() -> Iterator[None]:
    """What process 0 makes here, the others find made; an error of its comes to them as their own."""
    if not leads():
        wait()
    try:
        yield
    finally:
        if leads():
            wait()


def by_one(method):
    """A method that does nothing in the processes that do not write."""

    @functools.wraps(method)
    def wrapped(*arguments, **named):
        return method(*arguments, **named) if leads() else None

    return wrapped
