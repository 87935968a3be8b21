"""Each arm's learning rate, or any other number, chosen on validation data, with seeds of its own, before the runs
that are reported: else the arm wins whose guess was luckier."""

import json
import math
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bertx.config import plain
from bertx.errors import BadInput
from bertx.results import RunFolder, write_atomically
from bertx.sweep import Planned, Sweep, overlay, prod

FILE = 'tune.json'


def trials(config: ConfigDict, grid: Sweep) -> Sweep:
    """The runs that decide: every arm with each value and each of the tuning seeds. Raises BadInput for settings that
    cannot work."""
    t = config.tune
    reported = {point.get('seed', config.seed) for point in grid}
    if len(t['values']) < 2 or not t.seeds:
        raise BadInput('config.tune wants two values or more, and a seed or more')
    if common := sorted(reported & set(t.seeds)):
        raise BadInput(f'config.tune.seeds has {common[0]}, which is reported; seeds that are not would do')
    if clash := next((point for point in grid if t.key in point), None):
        raise BadInput(f'config.tune.key is {t.key}, which the sweep sets to {clash[t.key]}; one of them would do')
    arms = {json.dumps(_without(point), sort_keys=True): _without(point) for point in grid}
    steps: Sweep = [{'train.steps': t.steps, 'budget.of': ''}] if t.steps else [{}]
    return prod(list(arms.values()), [{t.key: value} for value in t['values']], [{'seed': s} for s in t.seeds], steps)


def check(config: ConfigDict, planned: list[Planned]) -> None:
    """Raises BadInput where the losses are to be added up, and an arm's do not weigh alike in its training."""
    for p in planned:
        for name, objective in p.run.objectives.items():
            weights = {
                field: float(x) for field, x in vars(objective).items() if field.endswith('weight') and x is not None
            }
            if not config.tune.metric and any(weight != 1.0 for weight in weights.values()):
                raise BadInput(
                    f'config.tune.metric is empty, so losses are added up as they are, but arm {p.arm!r} has '
                    f'config.objectives.{name} with {weights}; a metric of all arms would do, such as mlm/loss'
                )


def choose(config: ConfigDict, grid: Sweep, planned: list[Planned], workdir: epath.Path) -> Sweep:
    """The grid, with the best value in each point; what was tried goes to tune.json, for the tables."""
    t, found = config.tune, dict[str, dict[float, list[float]]]()
    for p in planned:
        value = _get(p.run.config, t.key)
        found.setdefault(_rest(p.arm, p.run.config, t), {}).setdefault(value, []).append(score(p.folder, t.metric))
    sign = -1.0 if t.metric and 'loss' not in t.metric else 1.0
    chosen: Sweep = []
    said = dict[str, dict[str, Any]]()
    for point in grid:
        arm = point.get('arm', 'run')
        means = {value: float(np.mean(x)) for value, x in found[_rest(arm, plain(overlay(config, point)), t)].items()}
        best = min(means, key=lambda value: sign * means[value] if math.isfinite(means[value]) else math.inf)
        if not math.isfinite(means[best]):
            raise BadInput(f'config.tune: no value of {t.key} gave arm {arm!r} a finite {t.metric or "loss"}')
        chosen.append(point | {t.key: best})
        said[arm] = {'chosen': best, 'tried': means, 'at the edge': best in (min(means), max(means))}
    about = {'key': t.key, 'metric': t.metric or 'validation loss', 'seeds': list(t.seeds), 'arms': said}
    write_atomically(workdir / FILE, json.dumps(about, indent=1))
    return chosen


def score(folder: RunFolder, metric: str) -> float:
    """A metric at the end, on validation data; '': the sum of the arm's own losses. Infinite for runs that failed."""
    lines = [line for line in folder.metrics() if line['split'] == 'validation']
    if not folder.done or not lines:
        return math.inf
    if not metric:
        return sum(value for name, value in lines[-1].items() if name.endswith('loss'))
    if metric not in lines[-1]:
        raise BadInput(f'config.tune.metric is {metric}; {", ".join(k for k in lines[-1] if "/" in k)} would do')
    return lines[-1][metric]


def _without(point: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in point.items() if key != 'seed'}


def _get(config: dict[str, Any], key: str) -> Any:
    for name in key.split('.'):
        config = config[name]
    return config


def _rest(arm: str, config: dict[str, Any], t) -> str:
    """What is the same in all trials of an arm, as a key."""
    config = json.loads(json.dumps(config))
    *path, last = t.key.split('.')
    _get(config, '.'.join(path)).pop(last, None) if path else config.pop(last, None)
    config['train'].pop('steps')
    return json.dumps(
        [arm, {key: value for key, value in config.items() if key not in ('seed', 'tune', 'budget')}], sort_keys=True
    )
