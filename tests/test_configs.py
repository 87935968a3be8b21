"""Every file of configs/ makes a run, and says what it is measured against."""

import importlib
import pathlib

import pytest
from etils import epath

from bertx import sweep
from bertx.errors import BadInput

FOLDER = pathlib.Path(__file__).parent.parent / 'configs'
NAMES = sorted(path.stem for path in FOLDER.glob('*.py') if path.stem not in ('__init__', 'benchmark'))


@pytest.mark.parametrize('name', NAMES)
def test_a_config_makes_a_run(store, tmp_path, name):
    module = importlib.import_module(f'configs.{name}')
    config = module.get_config('tiny')
    config.data.store = str(store.path)
    config.rows.length = 64
    if name == 'distill':
        with pytest.raises(BadInput, match='config.objectives.distill.teacher'):
            sweep.plan(config, [{}], epath.Path(tmp_path))
        return
    (planned,) = sweep.plan(config, [{}], epath.Path(tmp_path))
    assert planned.run.encoder.layers == 2
    assert f'--config=configs/{name}.py' in module.__doc__
