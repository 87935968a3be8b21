"""One function over many items, in processes of its own.

Not multiprocessing: its processes run the main program first (JAX: 3 s and 250 MB each), and stay behind where that one
is killed. These end with their input.
"""

import collections
import contextlib
import itertools
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, TypeVar

from bertx.errors import BadInput

Item = TypeVar('Item')
Result = TypeVar('Result')
Spread = Callable[[Callable[[Any], Any], Iterable[Any]], Iterator[Any]]  # in_order, or another like it


def in_order(function: Callable[[Item], Result], items: Iterable[Item], processes: int) -> Iterator[Result]:
    """The function of each item, in the items' order, which are read no further than to keep the processes busy.

    Function, items and results are pickled on their way; below 2 processes all stays in this one.
    """
    if processes < 2:
        yield from map(function, items)
        return
    # In a session of their own: Ctrl-C is for this process.
    start: dict[str, Any] = {'stdin': subprocess.PIPE, 'stdout': subprocess.PIPE, 'start_new_session': True}
    start['env'] = os.environ | {'PYTHONPATH': os.pathsep.join(sys.path), 'TOKENIZERS_PARALLELISM': 'false'}
    pool: list[Any] = [
        subprocess.Popen([sys.executable, '-m', 'bertx.text.workers'], **start) for _ in range(processes)
    ]
    busy: collections.deque[Any] = collections.deque()
    try:
        for worker in pool:
            _send(worker.stdin, function)
        for item, worker in zip(items, itertools.cycle(pool), strict=False):
            # A process has one item at a time: with two it might wait to be read while it is written to.
            result = [pickle.load(busy.popleft().stdout)] if len(busy) == processes else []
            _send(worker.stdin, item)
            busy.append(worker)
            yield from result
        while busy:
            yield pickle.load(busy.popleft().stdout)
    except (EOFError, BrokenPipeError, pickle.UnpicklingError):
        raise BadInput(
            'a process that prepares the text ended early, for what it says above or want of memory; the same command '
            'goes on from what is finished'
        ) from None
    finally:
        for worker in pool:
            worker.kill()
            with contextlib.suppress(BrokenPipeError), worker:
                pass


def _send(pipe: IO[bytes], value: Any) -> None:
    pickle.dump(value, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


if __name__ == '__main__':
    results = os.fdopen(os.dup(1), 'wb')
    os.dup2(2, 1)  # what a library prints is no result
    with contextlib.suppress(EOFError, BrokenPipeError):
        function_ = pickle.load(sys.stdin.buffer)
        while True:
            _send(results, function_(pickle.load(sys.stdin.buffer)))
