"""One command at a time in a folder."""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from etils import epath

from bertx import hosts
from bertx.errors import BadInput


@contextlib.contextmanager
def alone_in(folder: epath.Path) -> Iterator[None]:
    """Holds the folder. Raises BadInput where another process holds it."""
    try:
        with _held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield
    except BlockingIOError:
        raise BadInput(f'--workdir={folder}: another process works there; wait for it, or give another one') from None


@contextlib.contextmanager
def turn_in(folder: epath.Path) -> Iterator[None]:
    """Holds the folder, which is made, as soon as nobody else of this machine does."""
    if _can_be_held(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _held(folder: epath.Path, how: int) -> Iterator[None]:
    """The kernel lets go of it however the process ends."""
    if not _can_be_held(folder):
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _can_be_held(folder: epath.Path) -> bool:
    """A bucket's folders cannot; of several hosts the first one holds it."""
    return '://' not in str(folder) and hosts.leads()
