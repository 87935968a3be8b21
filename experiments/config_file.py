"""What a config file says beside `get_config()`, in functions of its own: sweep(), downstream(), published()."""

import pathlib
import runpy
from typing import Any

from ml_collections import ConfigDict

from bertx.errors import BadInput
from bertx.sweep import Sweep
from experiments import cli


class ConfigFile:
    """The file in --config, run once."""

    def __init__(self) -> None:
        self.path = cli.config_file()
        self.names = runpy.run_path(self.path)
        self.name = pathlib.Path(self.path).stem
        self.about: str = self.names.get('__doc__') or ''

    def __contains__(self, function: str) -> bool:
        return function in self.names

    def call(self, function: str) -> Any:
        """What it returns. Raises BadInput for whatever goes wrong in it."""
        try:
            return self.names[function]()
        except BadInput:
            raise
        except KeyError as error:
            raise BadInput(f'--config={self.path}: {function}() is not there, or has no key {error}') from None
        except Exception as error:  # noqa: BLE001 - a person's own code
            said = f'{type(error).__name__}: {error}'
            raise BadInput(f'--config={self.path}: {function}() fails with {said}') from None

    def points(self) -> Sweep:
        """What its sweep() returns."""
        if 'sweep' not in self:
            raise BadInput(f'--config={self.path} has no sweep(); for a single run use python -m experiments.pretrain')
        grid = self.call('sweep')
        if not grid or not all(isinstance(point, dict) for point in grid):
            raise BadInput(f'--config={self.path}: its sweep() returns no points; arm, prod and seeds make some')
        return grid

    def downstream(self) -> tuple[ConfigDict, Sweep] | None:
        """What each finished run is to be fine-tuned on, where the file says so."""
        return (self.call('get_downstream'), self.call('downstream')) if 'downstream' in self else None
