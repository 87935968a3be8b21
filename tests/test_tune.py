"""A number is chosen for each arm on validation data, and the reported runs have it."""

import json
import math

import pytest
from etils import epath

from bertx import sweep, tune
from bertx.errors import BadInput
from bertx.scheduling import engine
from bertx.sweep import arm, prod, seeds
from tests.test_sweep import ARMS, silent, small

GRID = prod(ARMS[:2], seeds(2))


def tuned(store, **settings):
    config = small(store)
    config.tune.update(
        {'key': 'optimizer.learning_rate', 'values': (1e-6, 1e-2), 'seeds': (7, 8), 'steps': 6} | settings
    )
    return config


def test_the_better_value_is_taken_by_every_point_of_the_arm(store, tmp_path):
    config, workdir = tuned(store), epath.Path(tmp_path)
    trials = sweep.plan(config, tune.trials(config, GRID), workdir / 'tuning')
    assert len(trials) == 2 * 2 * 2
    assert {p.run.seed for p in trials} == {7, 8}
    assert {p.run.train['steps'] for p in trials} == {6}
    engine.Engine(silent)(trials)
    grid = tune.choose(config, GRID, trials, workdir)
    assert [point['optimizer.learning_rate'] for point in grid] == [1e-2] * 4
    said = json.loads((workdir / tune.FILE).read_text())['arms']['nsp']
    assert said['chosen'] == 1e-2 and said['at the edge']
    assert said['tried']['0.01'] < said['tried']['1e-06']
    planned = sweep.plan(config, grid, workdir)
    assert {p.run.config['optimizer']['learning_rate'] for p in planned} == {1e-2}
    # A larger metric is better where it is no loss.
    worse = tune.choose(tuned(store, metric='mlm/loss'), GRID, trials, workdir)
    assert worse == grid
    assert tune.score(trials[0].folder, 'mlm/accuracy') <= 1
    with pytest.raises(BadInput, match=r'config.tune.metric is mlm/acuracy'):
        tune.score(trials[0].folder, 'mlm/acuracy')


def test_a_trial_that_failed_is_never_chosen(store, tmp_path):
    config = tuned(store, values=(1e30, 1e-3), seeds=(7,))
    trials = sweep.plan(config, tune.trials(config, GRID[:1]), epath.Path(tmp_path) / 'tuning')
    engine.Engine(silent)(trials)
    assert tune.score(trials[0].folder, '') == math.inf
    (point,) = tune.choose(config, GRID[:1], trials, epath.Path(tmp_path))
    assert point['optimizer.learning_rate'] == 1e-3


def test_what_trials_are_judged_by(store, tmp_path):
    """Their own loss as it is trained, weights and all, by whatever names an objective has for its parts."""
    arms = arm('electra', objectives={'electra': {}, 'nsp': {'weight': 0.1}})
    plan = lambda config: sweep.plan(config, tune.trials(config, arms), epath.Path(tmp_path) / 'tuning')
    trials = plan(config := tuned(store, steps=2, seeds=(7,)))
    tune.check(config, trials)
    assert all(tune.falls(trials[0], m) for m in ('', 'electra/generator', 'electra/generator perplexity'))
    assert not tune.falls(trials[0], 'electra/accuracy')
    engine.Engine(silent)(trials[:1])
    (line,) = [line for line in trials[0].folder.metrics() if line['split'] == 'validation']
    own = line['electra/generator'] + 50 * line['electra/loss'] + 0.1 * line['nsp/loss']
    assert line['loss'] == pytest.approx(own)
    assert tune.score(trials[0].folder, '') == line['loss']


def test_trials_that_nothing_could_judge_are_refused(store, tmp_path):
    plan = lambda config: sweep.plan(config, tune.trials(config, GRID), epath.Path(tmp_path) / 'tuning')
    with pytest.raises(BadInput, match="metric is nsp/accuracy, and arm 'none' has no nsp"):
        tune.check(config := tuned(store, metric='nsp/accuracy'), plan(config))
    for metric in ('', 'loss'):
        with pytest.raises(BadInput, match='with which the loss itself changes'):
            tune.check(tuned(store, key='objectives.mlm.weight', metric=metric), [])


@pytest.mark.parametrize(
    ('settings', 'said'),
    [
        ({'values': (1.0,)}, 'two values'),
        ({'seeds': (1, 5)}, r'config.tune.seeds has 1, which is reported'),
        ({'key': 'objectives'}, 'which the sweep sets'),
    ],
)
def test_settings_that_cannot_work_are_refused(store, settings, said):
    with pytest.raises(BadInput, match=said):
        tune.trials(tuned(store, **settings), GRID)
