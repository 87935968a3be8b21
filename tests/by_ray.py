"""Functions that tests have processes of Ray call; those import this file, not the tests."""

import os
import pathlib
import signal
import time

from bertx.errors import BadInput


def noted(folder, function, item):
    """What the function finds, a moment later; the folder has a file for each call."""
    (folder / f'{item}-{os.getpid()}').touch(exist_ok=False)
    time.sleep(0.05)
    return function(item)


def fatal(folder, function, item):
    """The first time of all it takes its process along."""
    try:
        (folder / 'killed').touch(exist_ok=False)
    except FileExistsError:
        return function(item)
    os.kill(os.getpid(), signal.SIGKILL)


def failing(item):
    raise BadInput(f'{item} is no number')


def record(arguments):
    """The flags of a slice's host to a file, as soon as all four hosts are at it."""
    folder, *said = arguments
    name, number = os.environ['TPU_NAME'], os.environ['TPU_WORKER_ID']
    pathlib.Path(folder, f'{name}-{number}').write_text(' '.join(said))
    until = time.monotonic() + 120
    while len(os.listdir(folder)) < 4:
        assert time.monotonic() < until, 'the others do not come'
        time.sleep(0.1)
    return int(number)


def one_host_dies(arguments):
    """The first time on each host: the second one is lost, and the first one complains."""
    number = os.environ['TPU_WORKER_ID']
    try:
        pathlib.Path(arguments[0], number).touch(exist_ok=False)
    except FileExistsError:
        return 0
    if number == '1':
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError('the other host is gone')
