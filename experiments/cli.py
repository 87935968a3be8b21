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

from bertx import paths
from bertx.errors import BadInput

DONE, BAD_INPUT, SOME_FAILED, INTERRUPTED = 0, 2, 3, 130

console = Console(stderr=True)
CONFIG = config_flags.DEFINE_config_file(
    'config', None, 'A file of configs/, with an argument after a colon.', lock_config=True
)
WORKDIR = flags.DEFINE_string('workdir', None, 'Folder for everything that is written; may be gs://.')


def workdir() -> str:
    """--workdir. Raises BadInput where it is, or lies in, a file or a folder that cannot be written."""
    path = str(paths.anywhere(WORKDIR.value or '', '--workdir='))
    if '://' not in path:
        there = os.path.abspath(path)
        while not os.path.lexists(there):
            there = os.path.dirname(there)
        if not os.path.isdir(there) or not os.access(there, os.W_OK):
            raise BadInput(f'--workdir={path}: {there} is no folder that can be written; give another')
    return path


def config_file() -> str:
    """The path in --config, without the argument after its colon."""
    return config_flags.get_config_filename(flags.FLAGS['config']).partition(':')[0]


def run(main: Callable[[], int], required: tuple[str, ...] = ('config', 'workdir')) -> None:
    """Parses flags and calls main; what a person can mend ends in one line and exit code 2."""
    handler = RichHandler(console=console, show_path=False)
    logging.basicConfig(level=logging.INFO, format='%(message)s', handlers=[handler], force=True)
    for noisy in ('absl', 'orbax', 'jax'):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        _parse(required)
        code = main()
    except BadInput as error:
        print('error: ' + ' '.join(str(error).split()), file=sys.stderr)
        code = BAD_INPUT
    except KeyboardInterrupt:
        console.print('interrupted; the same command goes on from what is finished')
        code = INTERRUPTED
    sys.exit(code)


def _parse(required: tuple[str, ...]) -> None:
    """Raises BadInput for whatever is wrong with the command line or with running the config file."""
    try:
        rest = flags.FLAGS(sys.argv)[1:]
        missing = [name for name in required if not flags.FLAGS[name].value]  # reading --config runs its file
    except flags.Error as error:
        raise BadInput(str(error)) from None
    except FileNotFoundError as error:
        raise BadInput(f'--config: there is no file {error.filename}') from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # how ml_collections refuses a key or value
        said: object = error
        while isinstance(said, Exception) and said.args:  # an error of an error, whose str would be quoted twice
            said = said.args[0]
        raise BadInput(f'--config: there is no key or value like this: {said}') from None
    except BadInput:
        raise
    except Exception as error:  # noqa: BLE001 - a person's own code
        raise BadInput(f'--config: the file cannot be run: {type(error).__name__}: {error}') from None
    if rest:
        raise BadInput(f'what is {rest[0]!r}? every argument is a --flag=value')
    if missing:
        raise BadInput(f'--{missing[0]} is missing')
    if 'config' in required and not os.path.exists(path := config_file()):
        raise BadInput(f'--config: there is no file {path}')


def ended(failed: dict[str, str]) -> int:
    """The exit code of a command that has done runs, after it says which of them failed and why."""
    for name, reason in failed.items():
        console.print(f'failed: {name}: {reason}', style='red', highlight=False)
    return SOME_FAILED if failed else DONE


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
