"""A paper's contrasts beside ours: the figures, whether the signs agree, and what our seeds could have found."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from etils import epath

from bertx import tables
from bertx.arms import Column
from bertx.power import ALPHA, POWER, detectable
from bertx.results import RunFolder, read_json, write_atomically
from bertx.table import ABSENT, escaped, markdown

FILE = 'published.json'
MASKED = (('mlm', 'own'), ('mlm', 'refit'))  # fixed masks; the second where an arm has no head for it
HEAD = ('contrast', 'measure', 'paper', 'ours, on', 'difference', 'sign agrees', 'p < 0.05', 'detectable')

# Where a paper's data are to be had, as sources of a downstream task (bertx/tasks/sources.py).
DATA = {
    'MNLI-m': 'tfds:glue/mnli', 'QNLI': 'tfds:glue/qnli', 'MRPC': 'tfds:glue/mrpc', 'SST-2': 'tfds:glue/sst2',
    'QQP': 'tfds:glue/qqp', 'SQuAD 1.1': 'tfds:squad/v1.1', 'SQuAD 2.0': 'tfds:squad/v2.0', 'NER': 'tfds:conll2003',
    'GLUE': 'tfds:glue/*', 'RACE': 'multiple choice, which bertx has no task for',
    'CMRC 2018': 'its SQuAD-like json files', 'XNLI': 'a tsv file, its Chinese part',
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Published:
    """What a paper reports of two arms, in percent."""

    arm: str
    baseline: str
    measure: str
    figures: tuple[float, float] | None  # the arm's and the baseline's
    columns: tuple[Column, ...]  # of ours, the first that there is: its own data, then what stands in for them

    @property
    def difference(self) -> float:
        return self.figures[0] - self.figures[1] if self.figures else math.nan


def of_table(
    measures: Sequence[str], baseline: str, rows: Mapping[str, Sequence[float]], columns: Mapping[str, Column] | Column
) -> list[Published]:
    """Every row of a paper's table against one of them. columns: what stands in, for all measures or for each."""
    stand_in = lambda measure: columns if isinstance(columns, tuple) else columns[measure]
    own = lambda measure: (DATA.get(measure, '').rpartition('/')[2], 'finetuned')
    return [
        Published(arm, baseline, measure, (value, rows[baseline][i]), (own(measure), stand_in(measure)))
        for arm, values in rows.items()
        for i, (measure, value) in enumerate(zip(measures, values, strict=True))
        if arm != baseline
    ]


def record(workdir: epath.Path, published: Iterable[Published]) -> None:
    """For `experiments.report`, which does not know the sweep's config file."""
    write_atomically(workdir / FILE, json.dumps([dataclasses.asdict(p) for p in published], indent=1))


def recorded(workdir: epath.Path) -> list[Published]:
    if not (workdir / FILE).exists():
        return []
    tuples = lambda p: p | {'figures': tuple(p['figures']), 'columns': tuple(map(tuple, p['columns']))}
    return [Published(**tuples(p)) for p in read_json(workdir / FILE)]


def rows(published: Sequence[Published], folders: Iterable[RunFolder], split: str) -> list[dict[str, Any]]:
    """A line a contrast, with HEAD's fields; those of ours are empty where there is no such column or arm."""
    folders, lines = list(folders), []
    made = {b: tables.make(folders, b, split) for b in {p.baseline for p in published} & _arms(folders)}
    for p in _with_masks(published):
        table = made.get(p.baseline)
        there = [c for asked in p.columns for c in (table.columns if table else ()) if _is(asked, c)]
        found = [(c, table.cells[p.arm, c]) for c in there if table and (p.arm, c) in table.cells]
        column, cell = next(((c, cell) for c, cell in found if cell.difference), (None, None))
        line = dict.fromkeys(HEAD, ABSENT)
        line |= {'contrast': f'{p.arm} less {p.baseline}', 'measure': p.measure}
        if p.figures:
            line['paper'] = f'{p.figures[0]:g} less {p.figures[1]:g}: {p.difference:+.1f}'
        if table and column and cell and (d := cell.difference):
            line['ours, on'] = table.title(column)
            interval = '' if math.isnan(d.low) else f' [{100 * d.low:+.1f}, {100 * d.high:+.1f}]'
            line['difference'] = f'{100 * d.value:+.1f}{interval}'
            if p.figures:
                line['sign agrees'] = 'yes' if d.value * p.difference > 0 else 'no'
            line['p < 0.05'] = 'yes' if d.p < ALPHA else 'no'
            least = detectable(d)
            line['detectable'] = ABSENT if math.isnan(least) else f'{100 * least:.1f}'
        if p.figures or line['difference'] != ABSENT:
            lines.append(line)
    return lines


def _with_masks(published: Sequence[Published]) -> list[Published]:
    """And each arm's MLM with a mask of 15 %, which no paper reports for all arms."""
    pairs = {(p.arm, p.baseline): None for p in published if not any(MASKED[0] in q.columns for q in published)}
    return [*published, *(Published(arm, baseline, ABSENT, None, MASKED) for arm, baseline in pairs)]


def report(published: Sequence[Published], folders: Iterable[RunFolder], split: str) -> str:
    """Markdown: the contrasts, and what is not here."""
    lines = rows(published, folders, split)
    absent = dict.fromkeys(p.measure for p, line in zip(published, lines, strict=False) if _stands_in(p, line))
    notes = [
        f'in percent; detectable: the true difference that our seeds and examples find with {POWER:.0%} power '
        f'(p < {ALPHA}, uncorrected)'
    ]
    if absent:
        notes.append(
            'n/a here, so another column stands in: '
            + ', '.join(f'{m} ({DATA[m]})' for m in absent)
            + '; with the data in get_downstream() they are measured'
        )
    return markdown([[escaped(text) for text in row] for row in [HEAD, *(line.values() for line in lines)]], notes)


def _is(asked: Column, column: Column) -> bool:
    """A downstream task's column says how many examples it was trained on: 'era n=2000'."""
    return column == asked or (column[0].partition(' n=')[0], column[1]) == asked


def _stands_in(p: Published, line: dict[str, Any]) -> bool:
    return p.measure in DATA and not line['ours, on'].startswith(p.columns[0][0])


def _arms(folders: Iterable[RunFolder]) -> set[str]:
    return {(folder.result or {}).get('arm', '') for folder in folders}
