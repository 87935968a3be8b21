"""Tables of probe accuracies: arms by tasks at the layer that dev chose, and arms by layers of one task."""

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping

import numpy as np

from analysis.probing.profiles import Profile
from bertx.errors import one_of
from bertx.report import stats, table_notes
from bertx.report.arms import Arm, Column
from bertx.report.stats import Estimate
from bertx.report.table import Cell, Table
from bertx.report.tables import corrected, mark_best

BEST = 'best layer'
Runs = Mapping[int, Profile]  # by seed
Found = Mapping[str, Mapping[str, Runs]]  # task -> arm -> runs
Fresh = Mapping[str, Mapping[str, Profile]]  # task -> arm -> its untrained encoder


class ProbeTable(Table):
    """All columns are measured on all arms, also where there is only one arm."""

    @functools.cached_property
    def alone(self) -> list[Column]:
        return []

    def title(self, column: Column) -> str:
        return column[0] if column[1] == BEST else column[1]


def chosen(runs: Runs) -> int:
    """The layer with the least dev loss, the mean over runs: one for an arm, so that its seeds say the same thing."""
    return int(np.mean([p.dev_L for p in runs.values()], axis=0).argmin())


def estimate(runs: Runs, layer: int) -> Estimate:
    """Accuracy of a layer over seeds and test groups."""
    return stats.mean([p.hit_LG[layer] for p in runs.values()], _weights(runs))


def selectivity(runs: Runs, layer: int) -> Estimate:
    """Accuracy less that on the control task, of the same examples."""
    hit, control = ([getattr(p, name)[layer] for p in runs.values()] for name in ('hit_LG', 'control_LG'))
    return stats.difference(hit, control, _weights(runs))


def compare(arm: Runs, other: Runs, layer: int, other_layer: int) -> Estimate | None:
    """The first less the second, paired by the seeds that both have; None where test groups differ."""
    common = [seed for seed in arm if seed in other]
    a, b = [[runs[seed] for seed in common or runs] for runs in (arm, other)]
    if not np.array_equal(a[0].weight_G, b[0].weight_G) or not np.array_equal(a[0].group_G, b[0].group_G):
        return None
    hits = [p.hit_LG[layer] for p in a], [p.hit_LG[other_layer] for p in b]
    return stats.difference(*hits, a[0].weight_G, paired=bool(common), keep_draws=True)


def _weights(runs: Runs) -> np.ndarray:
    return np.stack([p.weight_G for p in runs.values()])


def by_task(found: Found, arms: list[Arm], untrained: Fresh, baseline: str | None) -> ProbeTable:
    """A column a task, at the layer that dev chose for each arm."""
    baseline = _named(baseline, arms)
    layers = {(task, arm): chosen(runs) for task, by_arm in found.items() for arm, runs in by_arm.items()}
    columns = {(task, BEST): (found[task], {arm: layers[task, arm] for arm in found[task]}) for task in found}
    references = {(task, BEST): _reference(fresh, baseline, fresh[baseline].best) for task, fresh in untrained.items()}
    table = _table(columns, arms, references, baseline)
    notes = table_notes.about_cells(table)
    notes.append('each arm at the layer that dev chose (0: the embedding); examples of an interval: test sentences or '
                 'documents')  # fmt: skip
    for task, by_arm in found.items():
        at = ', '.join(f'{layers[task, arm]} ({arm})' for arm in by_arm)
        notes.append(f'{task}: layer {at}; {controls(by_arm, layers, task, untrained[task])}')
    return dataclasses.replace(table, notes=tuple(notes))


def by_layer(
    task: str, by_arm: Mapping[str, Runs], arms: list[Arm], untrained: Mapping[str, Profile], baseline: str | None,
    title: str = 'layer {}',
) -> ProbeTable:  # fmt: skip
    """A column a layer; an arm has as many as its encoder."""
    baseline = _named(baseline, arms)
    count = {name: len(next(iter(runs.values())).hit_LG) for name, runs in by_arm.items()}
    columns, references = {}, {}
    for n in range(max(count.values())):
        deep = {name: runs for name, runs in by_arm.items() if n < count[name]}
        columns[task, title.format(n)] = deep, dict.fromkeys(deep, n)
        if baseline in deep:
            references[task, title.format(n)] = _reference(untrained, baseline, n)
    table = _table(columns, arms, references, baseline)
    return dataclasses.replace(table, notes=tuple(table_notes.about_cells(table)))


def _named(baseline: str | None, arms: list[Arm]) -> str:
    names = [arm.name for arm in arms]
    one_of('the baseline arm', baseline or names[0], names)
    return baseline or names[0]


def _reference(fresh: Mapping[str, Profile], baseline: str, layer: int) -> tuple[str, Estimate]:
    """Of the baseline's encoder, where arms differ in theirs."""
    one = all(np.array_equal(p.hit_LG, fresh[baseline].hit_LG) for p in fresh.values())
    return 'untrained' if one else f'untrained {baseline}', estimate({0: fresh[baseline]}, layer)


def depth(found: Found, kinds: Mapping[str, str]) -> str:
    """Do surface tasks peak in lower layers than syntactic ones, and these in lower than semantic ones? A line; ''
    where one kind of task is asked. kinds: of tasks."""
    layer = {(task, arm): chosen(runs) for task, by_arm in found.items() for arm, runs in by_arm.items()}
    mean: dict[str, dict[str, float]] = {}
    for kind in ('surface', 'syntax', 'semantics'):
        if tasks := [task for task in found if kinds[task] == kind]:
            mean[kind] = {arm: float(np.mean([layer[task, arm] for task in tasks])) for arm in found[tasks[0]]}
    said = [f'{kind} {np.mean(list(by_arm.values())):.1f}' for kind, by_arm in mean.items()]
    for low, high in itertools.pairwise(mean):
        lower = sum(mean[low][arm] < mean[high][arm] for arm in mean[low])
        said.append(f'{low} peaks lower than {high} in {lower} of {len(mean[low])} arms')
    return f'best layer by dev, mean over tasks and arms: {", ".join(said)}' if len(mean) > 1 else ''


def controls(by_arm: Mapping[str, Runs], layers, task: str, untrained: Mapping[str, Profile]) -> str:
    """'arm: control 0.71, selectivity +0.22 [+0.21, +0.23]; majority 0.18'"""
    said = []
    for arm, runs in by_arm.items():
        first, layer = next(iter(runs.values())), layers[task, arm]
        if first.lost:
            said.append(f'{arm}: {first.lost:,} examples without a vector left out')
        if _reference(untrained, arm, 0)[0] != 'untrained':
            said.append(f'{arm}: untrained {estimate({0: untrained[arm]}, untrained[arm].best).value:.3f}')
        if len(first.control_LG):
            control = np.mean([p.control_LG[layer].sum() / p.weight_G.sum() for p in runs.values()])
            s = selectivity(runs, layer)
            said.append(f'{arm}: control {control:.3f}, selectivity {s.value:+.3f} [{s.low:+.3f}, {s.high:+.3f}]')
    first = next(iter(next(iter(by_arm.values())).values()))
    return '; '.join([*said, f'majority {first.majority_G.sum() / first.weight_G.sum():.3f}'])


def _table(columns, arms: list[Arm], references, baseline: str) -> ProbeTable:
    """columns: column -> (runs of each arm, layer of each arm)."""
    cells: dict[tuple[str, Column], Cell] = {}
    for column, (by_arm, layer) in columns.items():
        between = lambda a, b: compare(by_arm[a], by_arm[b], layer[a], layer[b])  # noqa: B023 - called at once
        for name, runs in by_arm.items():
            difference = None if name == baseline or baseline not in by_arm else between(name, baseline)
            p = math.nan if difference is None or difference.method == 'one run' else difference.p
            cells[name, column] = Cell(estimate(runs, layer[name]), difference, p)
        mark_best(cells, column, list(by_arm), between)
    return ProbeTable(arms, list(columns), corrected(cells), references, baseline, 'test')
