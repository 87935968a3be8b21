"""Runs grouped into the arms of a sweep, and what was measured on them."""

import dataclasses
import functools
import json
import zipfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bertx.config import EXECUTION, flat
from bertx.errors import BadInput, unknown
from bertx.results import RunFolder

METRIC = 'accuracy'
DEV = 'dev '  # before a downstream head: figures of the validation split, where test has none
# heads of downstream tasks, which are measured by a metric of their own
DOWNSTREAM = ('finetuned', 'frozen', f'{DEV}finetuned', f'{DEV}frozen')

Column = tuple[str, str]  # task, and head: 'refit' or 'own', or one of DOWNSTREAM


@dataclasses.dataclass(eq=False)
class Arm:
    """What is compared: runs that differ in nothing but the seed."""

    name: str
    runs: dict[int, RunFolder] = dataclasses.field(default_factory=dict)  # the finished ones, by seed
    failed: list[RunFolder] = dataclasses.field(default_factory=list)

    @functools.cached_property
    def results(self) -> dict[int, dict[str, Any]]:
        return {seed: folder.result or {} for seed, folder in self.runs.items()}

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return next((folder.read('config.json') for folder in self.runs.values()), {})

    @property
    def corpus(self) -> str:
        """The token store that it read."""
        return next((folder.read('provenance.json').get('corpus', '') for folder in self.runs.values()), '')

    def seeds(self, column: Column, split: str) -> list[int]:
        """Those with this measurement."""
        return [s for s, result in self.results.items() if metric_of(result['values'], column, split)]

    def predictions(self, seeds: Sequence[int], column: Column, split: str) -> tuple[np.ndarray, np.ndarray]:
        """Sums [R, N] of these runs, and the weights [N] that they share."""
        try:
            metric = metric_of(self.results[seeds[0]]['values'], column, split) or METRIC
            read = [self.runs[seed].predictions(*place(column, split), metric) for seed in seeds]
        except FileNotFoundError as error:
            raise BadInput(f'{error.filename} is missing, though its run counts as finished') from None
        except (zipfile.BadZipFile, ValueError, KeyError, EOFError):
            where = ', '.join(str(self.runs[seed].path) for seed in seeds)
            raise BadInput(
                f'predictions of {column[0]} are cut or damaged in one of {where}; delete it and run again'
            ) from None
        weight_N = read[0][1]
        if any(not np.array_equal(weight, weight_N) for _, weight in read):
            raise BadInput(f'the runs of arm {self.name!r} were evaluated on different rows of {column[0]}')
        return np.stack([sum_N for sum_N, _ in read]), weight_N


def place(column: Column, split: str) -> tuple[str, str, str]:
    """Task, head and split of a column's figures."""
    task, head = column
    return (task, head.removeprefix(DEV), 'validation') if head.startswith(DEV) else (task, head, split)


def metric_of(values: Iterable[dict[str, Any]], column: Column, split: str) -> str | None:
    """What a column shows: accuracy; of a downstream task, or its majority baseline, what stands first."""
    there = [v['metric'] for v in values if (v['task'], v['head'], v['split']) == place(column, split)]
    if column[1].removeprefix(DEV) in (*DOWNSTREAM, 'majority'):
        return there[0] if there else None
    return METRIC if METRIC in there else None


def arms(folders: Iterable[RunFolder]) -> list[Arm]:
    """Finished and failed runs by arm, in order of first appearance.

    Runs of one arm whose configs differ in more than the seed become arms of their own, named by what differs.
    Raises BadInput on two finished runs with the same seed.
    """
    grouped: dict[str, list[RunFolder]] = {}
    for folder in folders:
        if (result := folder.result) is not None:
            grouped.setdefault(result['arm'], []).append(folder)
    found: dict[str, Arm] = {}
    for arm, members in grouped.items():
        for name, folder in zip(_names(arm, members), members, strict=True):
            mine, result = found.setdefault(name, Arm(name)), folder.result or {}
            if result['status'] != 'done':
                mine.failed.append(folder)
            elif (other := mine.runs.setdefault(result['seed'], folder)) is not folder:
                both = f'{other.path} and {folder.path}'
                raise BadInput(f'arm {name!r} has two runs with seed {result["seed"]}: {both}; move one away')
    return list(found.values())


def columns_of(found: list[Arm], split: str) -> list[Column]:
    """Tasks in order of appearance, MLM first and downstream ones last; of each, the refitted head before the own.

    A downstream task without figures on test, having no labels there, has those on dev.
    """
    values = [v for arm in found for result in arm.results.values() for v in result['values']]
    values = [v for v in values if v['metric'] == METRIC or v['head'] in DOWNSTREAM]
    mine = dict.fromkeys((v['task'], v['head']) for v in values if v['split'] == split)
    if split == 'test':
        dev = [(v['task'], v['head']) for v in values if v['split'] == 'validation' and v['head'] in DOWNSTREAM]
        mine |= {(task, DEV + head): None for task, head in dev if (task, head) not in mine}
    if values and not mine:
        raise unknown('split', split, {v['split'] for v in values})
    downstream = {task for task, head in mine if head in DOWNSTREAM}
    order = lambda task: (task in downstream, task != 'mlm')
    tasks = dict.fromkeys(sorted((task for task, _ in mine), key=order))
    return [(task, head) for task in tasks for head in ('refit', 'own', *DOWNSTREAM) if (task, head) in mine]


def _names(arm: str, folders: list[RunFolder]) -> list[str]:
    """The arm's name for each run, with the settings in which its runs differ."""
    settings = [flat(folder.read('config.json')) for folder in folders]
    keys = sorted(set().union(*settings) - {'seed', *EXECUTION})
    keys = [key for key in keys if len({json.dumps(s.get(key)) for s in settings if s}) > 1]
    short = [key.rsplit('.', 1)[-1] for key in keys]
    labels = dict(zip(keys, short if len(set(short)) == len(short) else keys, strict=True))
    said = lambda key, value: labels[key] if value == {} else f'{labels[key]}={value}'
    return [' '.join([arm, *(said(key, s[key]) for key in keys if key in s)]) for s in settings]
