"""The table of a sweep: every arm on every task (ALBERT's Table 5, arXiv:1909.11942), and what each figure is worth."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from bertx.errors import BadInput, unknown
from bertx.objectives import base
from bertx.objectives.base import Objective
from bertx.objectives.generator import GeneratorObjective
from bertx.objectives.pair import PairObjective
from bertx.report import stats, table_notes
from bertx.report.arms import DEV, DOWNSTREAM, Arm, Column, arms, columns_of
from bertx.report.max_t import max_t
from bertx.report.stats import Estimate
from bertx.report.table import ALPHA, Cell, Table
from bertx.results import RunFolder


def make(
    folders: Iterable[RunFolder], baseline: str | None = None, split: str = 'test', only: Sequence[str] = ()
) -> Table:
    """The table of these runs, compared with the arm `baseline` (default: the first).

    only: the arms that it is about, in this order; corrections count no others. Raises BadInput on an unknown arm or
    split, and on runs that do not belong together.
    """
    folders = list(folders)
    found = arms(folders)
    for name in [*only, *([] if baseline is None else [baseline])]:
        if name not in (names := [arm.name for arm in found]):
            raise unknown('the baseline arm' if name == baseline else 'the arm', name, names)
    found = [arm for name in only for arm in found if arm.name == name] or found
    baseline = baseline or next((arm.name for arm in found), '')
    columns = columns_of(found, split)
    compare = functools.cache(functools.partial(_compare, split))
    cells: dict[tuple[str, Column], Cell] = {}
    for column in columns:
        having = {arm.name: arm for arm in found if arm.seeds(column, split)}
        for name, arm in having.items():
            score = stats.mean(*arm.predictions(arm.seeds(column, split), column, split))
            against = having.get(baseline)
            difference = None if against in (None, arm) else compare(arm, against, column)
            p = math.nan if difference is None or difference.method == 'one run' else difference.p
            cells[name, column] = Cell(score, difference, p)
        mark_best(cells, column, list(having), lambda a, b: compare(having[a], having[b], column))  # noqa: B023 - at once
    table = Table(found, columns, corrected(cells), _references(found, columns, split), baseline, split)
    return dataclasses.replace(table, notes=(*table_notes.about_cells(table), *table_notes.about_runs(table, folders)))


def mark_best(
    cells: dict[tuple[str, Column], Cell], column: Column, arms: list[str],
    compare: Callable[[str, str], Estimate | None],
) -> None:  # fmt: skip
    """Of a column's arms the best one, and what is not significantly worse; none where none can be compared with it.

    compare: the first less the second.
    """
    best = max(arms, key=lambda name: cells[name, column].score.value)
    behind = {name: compare(name, best) for name in arms if name != best}
    good = [name for name, less in behind.items() if less and less.p >= ALPHA]
    for name in [best, *good] if any(behind.values()) else []:
        cells[name, column] = dataclasses.replace(cells[name, column], best=True)


def corrected(cells: dict[tuple[str, Column], Cell]) -> dict[tuple[str, Column], Cell]:
    """With the p-values of all tested cells as one family."""
    tested = {key: cell.difference for key, cell in cells.items() if cell.difference and not math.isnan(cell.p)}
    holm = dict(zip(tested, stats.holm([cells[key].p for key in tested]), strict=True))
    joint = dict(zip(tested, max_t(list(tested.values())), strict=True))
    return cells | {k: dataclasses.replace(cells[k], p_holm=float(holm[k]), p_max_t=float(joint[k])) for k in tested}


def chance(task: str) -> float | None:
    """The accuracy of a coin on a pair task, whose labels are balanced; None for other tasks."""
    objective = _objective(task)
    return 1 / objective.classes if objective and issubclass(objective, PairObjective) else None


def _objective(task: str) -> type[Objective] | None:
    """None where the task is none, or is of a module that is not here: a table can be made without it."""
    try:
        return base.find(task)
    except (BadInput, ImportError):
        return None


def _compare(split: str, arm: Arm, other: Arm, column: Column) -> Estimate | None:
    """The first arm less the other; None where they were not measured on the same examples."""
    seeds, other_seeds = arm.seeds(column, split), other.seeds(column, split)
    common = [seed for seed in seeds if seed in other_seeds]
    sum_RN, weight_N = arm.predictions(common or seeds, column, split)
    other_RN, other_N = other.predictions(common or other_seeds, column, split)
    alike = _measured_on(arm, column) == _measured_on(other, column)
    if not alike or not np.array_equal(weight_N, other_N):
        return None
    return stats.difference(sum_RN, other_RN, weight_N, paired=bool(common), keep_draws=True)


def _measured_on(arm: Arm, column: Column) -> Any:
    """What decides on the examples: equal for arms that can be compared on the column."""
    config, (task, head) = arm.config, column
    evaluation = config.get('evaluation', {})
    if head in DOWNSTREAM:
        return None
    shape = {key: value for key in ('format', 'packing') if (value := evaluation.get(key))}  # see evaluate.Suite
    same = arm.corpus, config.get('data'), config.get('rows', {}) | shape, evaluation
    if head != 'own' or task in evaluation.get('tasks', (task,)):
        return same
    # Not a task for all: each arm's own arguments made these examples, and its own network if it has a generator.
    objective = _objective(task)
    by_generator = objective and issubclass(objective, GeneratorObjective)
    return *same, object() if by_generator else config.get('objectives', {}).get(task)


def _references(found: list[Arm], columns: list[Column], split: str) -> dict[Column, tuple[str, Estimate]]:
    """The unigram or majority guess, which is the same for every run; chance for pair tasks."""
    figures = {}
    for column in columns:
        kind = 'majority' if column[1] in DOWNSTREAM else 'unigram'
        guess = (column[0], DEV * column[1].startswith(DEV) + kind)
        arm, seeds = next(((arm, seeds) for arm in found if (seeds := arm.seeds(guess, split))), (None, []))
        if arm is not None:
            figures[column] = kind, stats.mean(*arm.predictions(seeds[:1], guess, split))
        elif (value := chance(column[0])) is not None:
            figures[column] = 'chance', Estimate(value, math.nan, math.nan, 0, 0, 'exact', 0.0, math.nan, math.nan)
    return figures
