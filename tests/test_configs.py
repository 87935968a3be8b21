"""Every file of configs/ makes its runs, and says what they are measured against."""

import importlib
import pathlib

import pytest
from etils import epath

from bertx import sweep
from bertx.errors import BadInput

FOLDER = pathlib.Path(__file__).parent.parent / 'configs'
PATHS = [path.relative_to(FOLDER) for path in sorted(FOLDER.rglob('*.py'))]
NAMES = [str(path.with_suffix('')) for path in PATHS if path.stem not in ('__init__', 'benchmark', 'papers')]
TUNED = [name for name in NAMES if name.startswith('finetune/')]
WEIGHTS = ('sweeps/continued', 'sweeps/domain_adaptation')  # their argument is a folder of weights


@pytest.mark.parametrize('name', [name for name in NAMES if name not in TUNED])
def test_a_config_makes_its_runs(store, tmp_path, name):
    module = importlib.import_module(f'configs.{name.replace("/", ".")}')
    config = module.get_config('' if name in WEIGHTS else 'tiny')
    points = getattr(module, 'sweep', lambda: [{}])()
    config.data.store = str(store.path)
    config.rows.length = 64
    if name == 'distill':
        with pytest.raises(BadInput, match='config.objectives.distill.teacher'):
            sweep.plan(config, points, epath.Path(tmp_path))
        return
    planned = sweep.plan(config, points, epath.Path(tmp_path))
    assert len(planned) == len(points)
    assert {p.run.encoder.layers for p in planned} == {config.encoder.layers or 2}
    assert f'--config=configs/{name}.py' in module.__doc__


@pytest.mark.parametrize('name', TUNED)
def test_a_config_of_fine_tuning_names_its_data(name):
    module = importlib.import_module(f'configs.{name.replace("/", ".")}')
    config = module.get_config()
    assert all(config.tasks.values())
    for point in getattr(module, 'sweep', lambda: [{}])():
        assert set(sweep.overlay(config, point).tasks) == set(config.tasks)
    assert f'--config=configs/{name}.py' in module.__doc__
