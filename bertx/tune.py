"""Each arm's learning rate, or any other number, chosen on validation data, with seeds of its own, before the runs
that are reported: else the arm wins whose guess was luckier."""

import json
import math
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bertx.config import flat, plain
from bertx.errors import BadInput
from bertx.results import RunFolder, write_json
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
    seedless = [{key: value for key, value in point.items() if key != 'seed'} for point in grid]
    arms = {json.dumps(point, sort_keys=True): point for point in seedless}
    steps: Sweep = [{'train.steps': t.steps, 'budget.of': ''}] if t.steps else [{}]
    return prod(list(arms.values()), [{t.key: value} for value in t['values']], [{'seed': s} for s in t.seeds], steps)


def check(config: ConfigDict, planned: list[Planned]) -> None:
    """Raises BadInput where the trials would have nothing to be judged by."""
    t = config.tune
    if t.metric in ('', 'loss') and t.key.startswith('objectives.'):
        raise BadInput(f'config.tune.key is {t.key}, with which the loss itself changes; give config.tune.metric')
    for p in planned:
        if 'validation' not in p.suite.splits:
            raise BadInput('config.tune chooses on validation data; a config.data.validation above 0 would do')
        name = t.metric.partition('/')[0]
        if name not in ('', 'loss', *p.run.objectives):
            raise BadInput(
                f"config.tune.metric is {t.metric}, and arm {p.arm!r} has no {name}; '', each arm's own loss, would do"
            )


def choose(config: ConfigDict, grid: Sweep, planned: list[Planned], workdir: epath.Path) -> Sweep:
    """The grid, with the best value in each point; what was tried goes to tune.json, for the tables."""
    t, found = config.tune, dict[str, dict[float, list[float]]]()
    for p in planned:
        tried = found.setdefault(_rest(p.arm, p.run.config, t), {})
        tried.setdefault(flat(p.run.config)[t.key], []).append(score(p.folder, t.metric))
    sign = 1.0 if falls(planned[0], t.metric) else -1.0
    chosen: Sweep = []
    said = dict[str, dict[str, Any]]()
    for point in grid:
        arm, any_value = point.get('arm', 'run'), {t.key: t['values'][0]}
        tried = found[_rest(arm, plain(overlay(config, point | any_value)), t)]
        means = {value: float(np.mean(x)) for value, x in tried.items()}
        best = min(means, key=lambda value: sign * means[value] if math.isfinite(means[value]) else math.inf)
        if not math.isfinite(means[best]):
            raise BadInput(f'config.tune: no value of {t.key} gave arm {arm!r} a finite {t.metric or "loss"}')
        chosen.append(point | {t.key: best})
        settings = [f'{key}={value}' for key, value in point.items() if key not in ('arm', 'seed', 'objectives')]
        said[' '.join([arm, *settings])] = {
            'chosen': best, 'tried': means, 'at the edge': best in (min(means), max(means))
        }  # fmt: skip
    about = {'key': t.key, 'metric': t.metric or 'loss', 'seeds': list(t.seeds), 'arms': said}
    write_json(workdir / FILE, about)
    return chosen


def score(folder: RunFolder, metric: str) -> float:
    """A metric at the end, on validation data; '': what the arm is trained on. Infinite for runs that failed."""
    lines = [line for line in folder.metrics() if line['split'] == 'validation']
    if not folder.done or not lines:
        return math.inf
    if (metric or 'loss') not in lines[-1]:
        raise BadInput(f'config.tune.metric is {metric}; {", ".join(k for k in lines[-1] if "/" in k)} would do')
    return lines[-1][metric or 'loss']


def falls(p: Planned, metric: str) -> bool:
    """Whether less of it is better: a loss or a perplexity."""
    task, _, name = metric.partition('/')
    losses = {t.name: t.losses for t in p.suite.own_tasks(p.run)}
    return not name or 'perplexity' in name or name in losses[task]


def _rest(arm: str, config: dict[str, Any], t) -> str:
    """What is the same in all trials of an arm, as a key."""
    other = {t.key, 'seed', 'train.steps'}
    same = {k: v for k, v in flat(config).items() if k not in other and not k.startswith(('tune.', 'budget.'))}
    return json.dumps([arm, same], sort_keys=True)
