"""Folders as a person names them: ~ is the home, and a bucket is refused where it cannot be had."""

import importlib.util
import os
from pathlib import Path

from etils import epath

from bertx.errors import BadInput


def anywhere(folder: str | os.PathLike, key: str = '') -> epath.Path:
    """On a disk or in a bucket. key: what errors begin with."""
    path = os.path.expanduser(folder)
    if path.startswith('gs://') and not importlib.util.find_spec('gcsfs'):
        raise BadInput(f'{key}{path}: pip install gcsfs, by which buckets are read and written')
    return epath.Path(path)


def local(folder: str | os.PathLike) -> Path:
    if '://' in str(folder):
        raise BadInput(f'{folder}: only buckets of runs are read; a folder on a disk would do')
    return Path(folder).expanduser()
