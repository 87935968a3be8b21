"""Functions that tests have processes of Ray call; those import this file, not the tests."""

import os
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
