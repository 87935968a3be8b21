"""Who works on a run: a file in its folder that one process makes, and touches while it lives.

So several engines, on one machine or on many with a shared disk, may walk the same runs. A bucket has no files that
only one can make: there one engine works at a time.
"""

import contextlib
import json
import os
import pathlib
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator

BEAT, STALE = 10.0, 90.0  # seconds between two touches, and after how long without one the holder counts as dead


class Lost(Exception):
    """Another process took the run over, since this one did not touch its lease for long."""


class Free:
    """Stands for a lease where none is needed."""

    def check(self, every: float = 0.0) -> None:
        pass


class Lease(Free):
    """Of its numbered files the last one counts: to take a run over is to make the next one, which one process can."""

    def __init__(self, file: pathlib.Path):
        self.file, self.text, self.checked = file, file.read_text(), time.monotonic()
        self.released = threading.Event()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while not self.released.wait(BEAT):
            with contextlib.suppress(OSError):
                os.utime(self.file)

    def check(self, every: float = 0.0) -> None:
        """Raises Lost where the run is somebody else's by now, or was and is done with. It reads the disk, which may be
        far away: not again before `every` seconds have passed."""
        if time.monotonic() - self.checked < every:
            return
        self.checked = time.monotonic()
        if not self.mine():
            raise Lost(f'{self.file.parent} was taken over by another process')

    def mine(self) -> bool:
        """Whether the last file is the one that this process made: numbers begin anew once a run is released."""
        files = _files(self.file.parent)
        try:
            return bool(files) and files[-1].read_text() == self.text
        except FileNotFoundError:
            return False

    def release(self) -> None:
        self.released.set()
        self.thread.join()
        if self.mine():
            for file in _files(self.file.parent):  # the last one last: while it stands nobody takes the run
                file.unlink(missing_ok=True)


@contextlib.contextmanager
def lease(folder, beaten: list[str] | None = None) -> Iterator[Free | None]:
    """Holds a run's folder meanwhile; None where a living process holds it. In a bucket whoever asks is alone.

    beaten: gets what is known of a dead holder whose run is taken over.
    """
    if '://' in str(folder):
        yield Free()
        return
    found = take(pathlib.Path(folder), beaten)
    try:
        yield found
    finally:
        if found:
            found.release()


def take(folder: pathlib.Path, beaten: list[str] | None = None) -> Lease | None:
    folder.mkdir(parents=True, exist_ok=True)
    files = _files(folder)
    if files and not _dead(files[-1]):
        return None
    file = folder / f'lease-{_number(files[-1]) + 1 if files else 1}'
    try:
        with open(file, 'x') as made:
            json.dump(_machine() | {'pid': os.getpid(), 'token': uuid.uuid4().hex}, made)
    except FileExistsError:
        return None  # another one was faster
    if files and beaten is not None:
        with contextlib.suppress(OSError):
            beaten.append(files[-1].read_text())
    return Lease(file)


def _machine() -> dict[str, str]:
    """Whose processes have numbers of their own: containers may share a host's name, but not its processes."""
    found = {'host': socket.gethostname()}
    with contextlib.suppress(OSError):  # not on Linux
        found['processes'] = os.readlink('/proc/self/ns/pid')
        found['boot'] = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    return found


def held(folder) -> bool:
    """Whether a living process works there, as far as one can know: of a bucket one cannot."""
    files = [] if '://' in str(folder) else _files(pathlib.Path(folder))
    return bool(files) and not _dead(files[-1])


def _number(file: pathlib.Path) -> int:
    return int(file.name.partition('-')[2])


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.glob('lease-*'), key=_number)


def _age(file: pathlib.Path) -> float:
    """Seconds since it was touched, by the clock of the disk: that of this machine may be another."""
    touched = file.stat().st_mtime
    try:
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix='.now-') as now:
            os.utime(now.name)
            return os.stat(now.name).st_mtime - touched
    except OSError:  # a full disk; a reader may look all the same
        return time.time() - touched


def _dead(file: pathlib.Path) -> bool:
    """Whether nobody touches the file any more; of this machine's processes it is known at once."""
    try:
        age = _age(file)
        holder = json.loads(file.read_text() or '{}')
    except FileNotFoundError:
        return False  # released this moment: the next look will tell
    except ValueError:
        holder = {}  # it is being written
    if all(holder.get(key) == value for key, value in _machine().items()):
        try:
            os.kill(holder['pid'], 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
    return age > STALE
