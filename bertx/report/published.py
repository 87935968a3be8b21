"""A paper's contrasts beside ours: the figures, whether the signs agree, and what our seeds could have found."""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence

from etils import epath

from bertx.report import tables
from bertx.report.arms import Column
from bertx.report.power import ALPHA, POWER, detectable
from bertx.report.stats import Estimate
from bertx.report.table import ABSENT, Cell, Table, escaped, markdown
from bertx.results import RunFolder, read_json, write_atomically

FILE = 'published.json'
MASKED = (('mlm', 'own'), ('mlm', 'refit'))  # fixed masks; the second where an arm has no head for it
HEAD = ('contrast', 'paper', 'ours, on', 'difference', 'sign agrees', 'significant', 'detectable')

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


@dataclasses.dataclass(frozen=True)
class Contrast:
    """An arm less a baseline on one of our columns, and all that the paper reports of what this column measures."""

    arm: str
    baseline: str
    reported: tuple[Published, ...]
    ours: str = ''  # the column's title; '': there is no such column or arm
    cell: Cell | None = None

    @property
    def difference(self) -> Estimate | None:
        return self.cell.difference if self.cell else None

    @property
    def figures(self) -> list[Published]:
        return [p for p in self.reported if p.figures]

    @property
    def sign_agrees(self) -> str:
        if not (self.difference and self.figures):
            return ABSENT
        agree = sum(self.difference.value * p.difference > 0 for p in self.figures)
        return {0: 'no', len(self.figures): 'yes'}.get(agree, f'{agree} of {len(self.figures)}')

    @property
    def significant(self) -> str:
        if not (self.cell and self.difference) or math.isnan(self.difference.p):
            return ABSENT
        return 'yes' if self.cell.mark else 'uncorrected' if self.difference.p < ALPHA else 'no'

    def row(self) -> list[str]:
        """HEAD's fields, in percent."""
        paper = ', '.join(f'{p.measure} {p.figures[0]:g} less {p.figures[1]:g}' for p in self.figures if p.figures)
        found = [f'{self.arm} less {self.baseline}', paper or ABSENT, self.ours or ABSENT]
        if not (d := self.difference):
            return [*found, *[ABSENT] * 4]
        interval = '' if math.isnan(d.low) else f' [{100 * d.low:+.1f}, {100 * d.high:+.1f}]'
        least = detectable(d)
        least_text = ABSENT if math.isnan(least) else f'{100 * least:.1f}'
        return [*found, f'{100 * d.value:+.1f}{interval}', self.sign_agrees, self.significant, least_text]


def contrasts(published: Sequence[Published], folders: Iterable[RunFolder], split: str) -> list[Contrast]:
    """One for each arm, baseline and column of ours; those without a column come last, if the paper has figures."""
    folders = list(folders)
    made = {b: tables.make(folders, b, split) for b in {p.baseline for p in published} & _arms(folders)}
    found: dict[tuple[str, str, Column | None], list[Published]] = {}
    for p in _with_masks(published):
        found.setdefault((p.arm, p.baseline, _column(p, made.get(p.baseline))), []).append(p)
    with_column, without = [], []
    for (arm, baseline, column), reported in found.items():
        if column:
            title, cell = made[baseline].title(column), made[baseline].cells[arm, column]
            with_column.append(Contrast(arm, baseline, tuple(reported), title, cell))
        elif any(p.figures for p in reported):
            without.append(Contrast(arm, baseline, tuple(reported)))
    return with_column + without


def _column(p: Published, table: Table | None) -> Column | None:
    """The first of those asked for on which the arm was compared with the baseline."""
    if table is None:
        return None
    compared = [c for c in table.columns if (cell := table.cells.get((p.arm, c))) and cell.difference]
    return next((c for asked in p.columns for c in compared if _is(asked, c)), None)


def _with_masks(published: Sequence[Published]) -> list[Published]:
    """And each arm's MLM with a mask of 15 %, which no paper reports for all arms."""
    pairs = {(p.arm, p.baseline): None for p in published if not any(MASKED[0] in q.columns for q in published)}
    return [*published, *(Published(arm, baseline, ABSENT, None, MASKED) for arm, baseline in pairs)]


def report(published: Sequence[Published], folders: Iterable[RunFolder], split: str) -> str:
    """Markdown: the contrasts, and what is not here."""
    found = contrasts(published, folders, split)
    notes = [
        'in percent; significant: p < 0.05 after both corrections of the table above, or uncorrected only',
        f'detectable: the true difference that our seeds and examples find with {POWER:.0%} power '
        f'(p < {ALPHA}, uncorrected)',
    ]
    lacking = [(p.measure, c.ours) for c in found for p in c.reported if _stands_in(p, c.ours)]
    if absent := dict.fromkeys(measure for measure, _ in lacking):
        other = ', so another column stands in' if any(ours for _, ours in lacking) else ''
        where = ', '.join(f'{measure} ({DATA[measure]})' for measure in absent)
        notes.append(f'n/a here{other}: {where}; with the data in get_downstream() they are measured')
    return markdown([[escaped(text) for text in row] for row in [HEAD, *(c.row() for c in found)]], notes)


def _is(asked: Column, column: Column) -> bool:
    """A downstream task's column says how many examples it was trained on: 'era n=2000'."""
    return column == asked or (column[0].partition(' n=')[0], column[1]) == asked


def _stands_in(p: Published, ours: str) -> bool:
    return p.measure in DATA and not ours.startswith(p.columns[0][0])


def _arms(folders: Iterable[RunFolder]) -> set[str]:
    return {(folder.result or {}).get('arm', '') for folder in folders}
