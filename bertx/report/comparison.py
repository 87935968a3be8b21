"""Two arms beside each other: every column's difference, what it is worth, and what would decide it."""

import dataclasses
import math
from collections.abc import Iterable

from bertx.errors import BadInput
from bertx.report import table_notes, tables
from bertx.report.arms import Column
from bertx.report.power import ALPHA, POWER, detectable, seeds_to_decide
from bertx.report.table import ABSENT, Cell, Table, escaped, markdown
from bertx.results import RunFolder

HEAD = ('task', 'difference', 'p', 'p Holm', 'p max-|t|', 'detectable', 'seeds to decide', "examples' share")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The first arm less the second."""

    table: Table  # of the two arms alone, the second one its baseline
    notes: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, str]:
        return self.table.arms[0].name, self.table.arms[1].name

    @property
    def title(self) -> str:
        return f'{self.names[0]} less {self.names[1]}'

    @property
    def cells(self) -> dict[Column, Cell]:
        """Those with a difference."""
        return {column: cell for (_, column), cell in self.table.cells.items() if cell.difference}

    @property
    def head(self) -> list[str]:
        return [*HEAD[:1], *self.names, *HEAD[1:]]

    @property
    def rows(self) -> list[list[str]]:
        """As printed below the head."""
        return [self._row(column, cell) for column, cell in self.cells.items()]

    def markdown(self) -> str:
        rows = [[escaped(text) for text in row] for row in [self.head, *self.rows]]
        return markdown(rows, self.notes)

    def _row(self, column: Column, cell: Cell) -> list[str]:
        found = cell.difference
        assert found
        scores = [self.table.cells[name, column].score.value for name in self.names]
        interval = '' if math.isnan(found.low) else f' [{found.low:+.3f}, {found.high:+.3f}]'
        share = found.example_variance / found.standard_error**2 if found.standard_error else math.nan
        return [
            self.table.title(column),
            *(f'{score:.3f}' for score in scores),
            f'{found.value:+.3f}{interval}{cell.mark}',
            *map(_p, (cell.p, cell.p_holm, cell.p_max_t)),
            _number(detectable(found), '.3f'),
            _number(seeds_to_decide(found), ',.0f'),
            _number(share, '.0%'),
        ]


def compare(folders: Iterable[RunFolder], first: str, second: str, split: str = 'test') -> Comparison:
    """Raises BadInput on an unknown arm, or the same one twice, and where the arms have nothing in common."""
    folders = list(folders)
    if first == second:
        raise BadInput(f'--compare={first},{second} names one arm twice; name two')
    found = Comparison(tables.make(folders, second, split, only=(first, second)))
    if not found.cells:
        raise BadInput(
            f'--compare={first},{second}: no task on whose {split} split both were measured on the same examples'
        )
    return dataclasses.replace(found, notes=(_paired(found), *_notes(found), *table_notes.about_runs(found.table, [])))


def _paired(c: Comparison) -> str:
    """What the arms share."""
    seeds = [set(arm.runs) for arm in c.table.arms]
    examples = ', '.join(f'{c.table.title(key)} {cell.score.examples:,}' for key, cell in c.cells.items())
    rows = f'{c.table.split} examples (the same for both arms: {examples})'
    said = lambda numbers: ', '.join(map(str, sorted(numbers))) or 'none'
    if not (common := seeds[0] & seeds[1]):
        each = '; '.join(f'{name}: {said(numbers)}' for name, numbers in zip(c.names, seeds, strict=True))
        return f'paired: {rows}; not paired: seeds, as the arms share none ({each})'
    alone = seeds[0] ^ seeds[1]
    left = f'; seeds that one arm lacks are left out of the differences: {said(alone)}' if alone else ''
    encoders = [{key: arm.config.get(key) for key in ('encoder', 'init_from')} for arm in c.table.arms]
    alike = 'initialisation and ' * (encoders[0] == encoders[1])
    return f'paired: seeds {said(common)} (the same {alike}order of documents) and {rows}{left}'


def _notes(c: Comparison) -> list[str]:
    runs = {cell.difference.runs for cell in c.cells.values() if cell.difference}
    lacking = ', '.join(dict.fromkeys(c.table.title(key) for _, key in c.table.cells if key not in c.cells))
    return [
        c.table.notes[0],
        f'difference: {c.title}; p by the two-way t, corrected over the {len(c.cells)} columns by Holm and by max-|t|, '
        f'which heeds how they are correlated; {table_notes.MARKED}',
        f'detectable: the true difference that these seeds and examples find with {POWER:.0%} power (p < {ALPHA}, '
        'uncorrected)',
        f'seeds to decide: seeds an arm that would find the observed difference with {POWER:.0%} power, if it and the '
        'variances are as observed; ∞: these examples alone hide it, whatever the seeds',
        "examples' share: of the squared standard error, what more seeds do not remove",
        *(['one run an arm: no test, as it says nothing of other seeds'] if 1 in runs else []),
        *([f'not compared, as not measured on both arms alike: {lacking}'] if lacking else []),
    ]


def _p(value: float) -> str:
    return ABSENT if math.isnan(value) else '<0.001' if value < 0.001 else f'{value:.3f}'


def _number(value: float, form: str) -> str:
    return ABSENT if math.isnan(value) else '∞' if value == math.inf else f'{value:{form}}'
