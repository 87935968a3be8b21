"""The README's objective, as it stands there: a module outside the package, in a run beside MLM."""

import json
import pathlib
import re
import sys

import pytest

from bertx.sweep import arm
from tests.test_sweep import run, small

README = pathlib.Path(__file__).parent.parent / 'README.md'


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder with the README's module in it, where Python finds it."""
    (code,) = re.findall(r'```python\n("""Is a token rare.*?)```', README.read_text(), re.DOTALL)
    package = tmp_path / 'mine'
    package.mkdir()
    (package / 'rare.py').write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ('mine.rare', 'mine'):
        sys.modules.pop(name, None)


def test_an_objective_from_outside_trains_and_is_judged(outside, store, tmp_path):
    config = small(store)
    config.train.update(steps=30, log_every=10, validate_every=30, checkpoint_every=30)
    config.optimizer.update(learning_rate=1e-2, warmup=3)
    objectives = {'mlm': {}, 'mine:rare': {'below': 0.02}}
    [planned], failed = run(config, arm('mine', objectives=objectives), tmp_path / 'runs')
    assert not failed
    lines = [json.loads(line) for line in (planned.folder.path / 'metrics.jsonl').read_text().splitlines()]
    losses = [line['mine:rare/loss'] for line in lines if line['split'] == 'train']
    assert losses[-1] < losses[0] - 0.1
    assert any(v['task'] == 'mine:rare' and v['head'] == 'own' for v in planned.folder.result['values'])
