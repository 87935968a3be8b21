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
    """Holds the folder; the kernel lets go of it however the process ends. A bucket's folders cannot be held;
    of several hosts the first one holds it.

    Raises BadInput where another process holds it.
    """
    if '://' in str(folder) or not hosts.leads():
        yield
        return
    try:
        with _held(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
            yield
    except BlockingIOError:
        raise BadInput(f'--workdir={folder}: another process works there; wait for it, or give another one') from None


@contextlib.contextmanager
def turn_in(folder: epath.Path) -> Iterator[None]:
    """Holds the folder, which is made, as soon as nobody else of this machine does."""
    if '://' in str(folder) or not hosts.leads():
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _held(folder, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def _held(folder: epath.Path, how: int) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
