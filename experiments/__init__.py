"""What a person runs: `python -m experiments.<name>`."""

import os
import sys


def _use_huge_pages() -> None:
    """Start again with transparent huge pages for malloc.

    On CPU, page faults of fresh buffers take a fifth to a third of a training step; glibc reads the tunable only when
    a process starts.
    """
    if sys.platform == 'linux' and 'GLIBC_TUNABLES' not in os.environ:
        os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.hugetlb=1'
        os.execv(sys.executable, sys.orig_argv)


def _end_quietly(kind, error, trace) -> None:
    """Ctrl-C during the imports: nothing has begun, so there is nothing to say. Later ones are `cli.run`'s."""
    if issubclass(kind, KeyboardInterrupt):
        os._exit(130)
    sys.__excepthook__(kind, error, trace)


if sys.argv[0] == '-m':  # so it reads while `python -m` looks for its module: before any slow import
    sys.excepthook = _end_quietly
    _use_huge_pages()
