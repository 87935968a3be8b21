"""What the commands share: flags, one-line errors, exit codes, progress."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable

from absl import flags
from ml_collections import config_flags
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bertx.errors import BadInput

DONE, BAD_INPUT, SOME_FAILED, INTERRUPTED = 0, 2, 3, 130

console = Console(stderr=True)
CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'A file of configs/, with an argument after a colon.', lock_config=True
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for everything that is written; may be gs://.')


def use_huge_pages() -> None:
    """Start again with transparent huge pages for malloc.

    On CPU, page faults of fresh buffers take a fifth to a third of a training step; glibc reads the tunable only when
    a process starts.
    """
    if sys.platform == 'linux' and 'GLIBC_TUNABLES' not in os.environ:
        os.environ['GLIBC_TUNABLES'] = 'glibc.malloc.hugetlb=1'
        os.execv(sys.executable, sys.orig_argv[:1] + sys.orig_argv[1:])


def workdir() -> str:
    return os.path.expanduser(WORKDIR.value or '')


def run(main: Callable[[], int], required: tuple[str, ...] = ('config', 'workdir')) -> None:
    """Parses flags and calls main; what a person can mend ends in one line and exit code 2."""
    use_huge_pages()
    flags.mark_flags_as_required(required)

    def guarded(argv: list[str]) -> int:
        if len(argv) > 1:
            raise BadInput(f'what is {argv[1]!r}? every argument is a --flag=value')
        return main()

    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=logging.INFO, format='%(message)s', handlers=[handler], force=True)
    for noisy in ('absl', 'orbax', 'jax'):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        code = guarded(flags.FLAGS(sys.argv))
    except (BadInput, flags.Error) as error:
        code = _complain(str(error))
    except (AttributeError, KeyError) as error:
        if 'config' not in str(error).lower() and 'Key' not in str(error):
            raise
        code = _complain(str(error))
    except KeyboardInterrupt:
        console.print('interrupted; the same command goes on from the last checkpoint')
        code = INTERRUPTED
    sys.exit(code)


def _complain(message: str) -> int:
    print('error: ' + ' '.join(message.split()), file=sys.stderr)
    return BAD_INPUT


@contextlib.contextmanager
def bar(title: str, steps: int, tokens_per_step: int):
    """A progress bar; its value is called with the step and the latest numbers."""
    columns = (
        TextColumn('{task.description}'), BarColumn(), MofNCompleteColumn(), TextColumn('{task.fields[numbers]}'),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=steps, numbers='')

        def advance(step: int, numbers: dict[str, float]) -> None:
            speed = progress.tasks[0].speed or 0.0
            loss = f'loss {numbers["loss"]:.3f}' if 'loss' in numbers else ''
            progress.update(task, completed=step, numbers=f'{loss} {speed * tokens_per_step:,.0f} tokens/s')

        yield advance
