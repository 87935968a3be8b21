"""A table's cells, and how it is printed: alike as Markdown, LaTeX and by rich; in full precision as csv and json."""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from bertx import results
from bertx.report import power
from bertx.report.arms import Arm, Column
from bertx.report.power import ALPHA
from bertx.report.stats import Estimate
from bertx.results import RunFolder

MARK, FAILED, ABSENT = '†', '✗', '–'
COLUMNS = (
    'arm', 'task', 'head', 'mean', 'low', 'high', 'n_seeds', 'n_examples', 'difference', 'diff_low', 'diff_high', 'p',
    'p_holm', 'p_max_t', 'mark', 'method', 'diff_error', 'diff_df', 'detectable', 'seeds_to_decide',
)  # fmt: skip

OWN: Column = ('own task', 'own')  # of the printed tables: what only the arm itself is measured on


@dataclasses.dataclass(frozen=True)
class Cell:
    """An arm's accuracy on a task with one kind of head."""

    score: Estimate
    difference: Estimate | None = None  # to the baseline; None for the baseline itself and where that has no such cell
    p: float = math.nan  # NaN: not tested; single runs are not, since they say nothing of seeds
    p_holm: float = math.nan  # over all compared cells of the table
    p_max_t: float = math.nan  # likewise; see bertx/report/max_t.py
    best: bool = False  # of its column, or not significantly worse than the best

    @property
    def mark(self) -> str:
        return MARK if self.p_holm < ALPHA and not self.p_max_t >= ALPHA else ''  # by Holm alone where that is NaN


@dataclasses.dataclass(frozen=True)
class Shown:
    """A cell as printed."""

    text: str
    mark: str = ''
    bold: bool = False


@dataclasses.dataclass(frozen=True)
class Line:
    """A line as printed: an arm's scores, its differences to the baseline, or reference figures."""

    kind: str  # 'score', 'difference', 'reference'
    label: str
    seeds: str
    cells: list[Shown]


@dataclasses.dataclass(frozen=True)
class Table:
    """Arms by columns; `cells` lacks what an arm has no head for. Printed by rich's Console.print."""

    arms: list[Arm]
    columns: list[Column]
    cells: dict[tuple[str, Column], Cell]
    references: dict[Column, tuple[str, Estimate]]  # what needs no model: 'unigram' or 'chance', and its accuracy
    baseline: str
    split: str
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def alone(self) -> list[Column]:
        """Columns with one arm's figure each: its own head on a task that no other arm is judged on."""
        judged = {task for task, head in self.columns if head == 'refit'}
        count = lambda column: sum(key == column for _, key in self.cells)
        return [column for column in self.columns if column[0] not in judged and count(column) == 1]

    @functools.cached_property
    def printed(self) -> list[Column]:
        """The columns, with those in `alone` made one."""
        if len(self.alone) < 2:
            return self.columns
        return [column for column in self.columns if column not in self.alone] + [OWN]

    def shown(self, arm: Arm, column: Column) -> Shown:
        """An arm's score."""
        if column == OWN:
            own = [(self.title(c), self.cells[arm.name, c]) for c in self.alone if (arm.name, c) in self.cells]
            return Shown(', '.join(f'{name} {_number(c.score, len(arm.runs))}' for name, c in own) or ABSENT)
        cell = self.cells.get((arm.name, column))
        return Shown(_number(cell.score, len(arm.runs)), bold=cell.best) if cell else Shown(ABSENT)

    def title(self, column: Column) -> str:
        """The task; with the kind of head where a task may have two."""
        task, head = column
        return task if head == 'own' and (task, 'refit') not in self.columns else f'{task} {head}'

    @functools.cached_property
    def lines(self) -> list[Line]:
        """What every rendering prints."""
        lines = []
        for arm in self.arms:
            cells = [self.cells.get((arm.name, column)) for column in self.printed]
            shown = [self.shown(arm, column) for column in self.printed]
            failed = f' {FAILED}{len(arm.failed)}' if arm.failed else ''
            lines.append(Line('score', arm.name, f'{len(arm.runs)}{failed}', shown))
            compared = [(c.difference, c.mark) if c else (None, '') for c in cells]
            if pairs := max((d.runs for d, _ in compared if d), default=0):
                shown = [Shown(_number(d, pairs, '+'), mark) if d else Shown('') for d, mark in compared]
                lines.append(Line('difference', f'Δ {self.baseline}', str(pairs), shown))
        if self.references:
            label = ' / '.join(dict.fromkeys(kind for kind, _ in self.references.values()))
            known = [self.references.get(column) for column in self.printed]
            lines.append(Line('reference', label, '', [Shown(_number(r[1]) if r else ABSENT) for r in known]))
        return lines

    def markdown(self) -> str:
        """A GitHub table and the notes."""
        rows = [['arm', 'seeds', *(escaped(self.title(column)) for column in self.printed)]]
        for line in self.lines:
            texts = [re.sub(r'^(\S+)', r'**\1**', s.text) if s.bold else s.text for s in line.cells]
            cells = [text + (s.mark or ' ') for text, s in zip(texts, line.cells, strict=True)]
            rows.append([escaped(line.label), line.seeds, *cells])
        return markdown(rows, self.notes)

    @functools.cached_property
    def records(self) -> list[dict[str, Any]]:
        """One line a cell, in full precision; a field is '' where there is nothing to say."""
        found = [_record(name, column, cell) for (name, column), cell in self.cells.items()]
        found += [{'arm': arm.name, 'n_seeds': 0} for arm in self.arms if not arm.runs]
        found += [_record(kind, column, Cell(figure)) for column, (kind, figure) in self.references.items()]
        return found

    def csv(self) -> str:
        return results.csv_text(COLUMNS, self.records)

    def json(self) -> str:
        """The csv's lines with null for nothing, the runs that they were made of, and the notes."""
        cells = [{key: None if value == '' else value for key, value in line.items()} for line in self.records]
        arms = [{'arm': arm.name, 'runs': _ids(arm.runs.values()), 'failed': _ids(arm.failed)} for arm in self.arms]
        about = {'split': self.split, 'baseline': self.baseline, 'notes': self.notes}
        return json.dumps(about | {'arms': arms, 'cells': cells}, indent=1, ensure_ascii=False) + '\n'

    def __rich_console__(self, console, options):
        """As many columns side by side as the terminal is wide, the others below them; then the notes."""
        printed = [[s.text + (s.mark or ' ') for s in line.cells] for line in self.lines]
        texts = [text for cells in printed for text in cells] + [f'{self.title(column)} ' for column in self.printed]
        width = max(map(len, texts), default=1)
        lead = max([3, *(len(line.label) for line in self.lines)]) + max([5, *(len(line.seeds) for line in self.lines)])
        fit = max(1, (options.max_width - min(lead + 4, options.max_width // 3)) // (width + 2))
        for start in range(0, max(1, len(self.printed)), fit):
            part = slice(start, start + fit)
            grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
            grid.add_column('arm', overflow='fold')
            grid.add_column('seeds', justify='right', no_wrap=True)
            for column in self.printed[part]:
                # Aligned here: rich's right alignment would drop the blank that stands where others have a mark.
                grid.add_column(Text(f'{self.title(column)} '.rjust(width)), no_wrap=True)
            for line, texts in zip(self.lines, printed, strict=True):
                plain = '' if line.kind == 'score' else 'dim'
                styles = ['bold' if s.bold else plain for s in line.cells]
                cells = [Text(text.rjust(width), style) for text, style in zip(texts, styles, strict=True)]
                grid.add_row(Text(line.label, plain), Text(line.seeds, plain), *cells[part])
            yield grid
            yield ''
        yield from (Text(note, 'dim') for note in self.notes)


def markdown(rows: list[list[str]], notes: Sequence[str]) -> str:
    """A GitHub table of escaped cells, padded so that it also reads as plain text; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rule = ['-' * widths[0], *('-' * (width - 1) + ':' for width in widths[1:])]
    padded = [[first.ljust(widths[0]), *map(str.rjust, others, widths[1:])] for first, *others in rows]
    lines = [f'| {" | ".join(row)} |' for row in [padded[0], rule, *padded[1:]]]
    return '\n'.join([*lines, '', *(f'- {escaped(note)}' for note in notes), ''])


def escaped(text: str) -> str:
    """For Markdown."""
    return re.sub(r'([\\`*_|<>~\[\]])', r'\\\1', text)


def _ids(folders: Iterable[RunFolder]) -> list[str]:
    return [folder.path.name for folder in folders]


def _record(arm: str, column: Column, cell: Cell) -> dict[str, Any]:
    s, d = cell.score, cell.difference
    numbers = (s.value, s.low, s.high, s.runs or '', s.examples or '', *((d.value, d.low, d.high) if d else ('',) * 3))
    planned = [d.standard_error, d.df, power.detectable(d), power.seeds_to_decide(d)] if d else [math.nan] * 4
    line = (arm, *column, *numbers, cell.p, cell.p_holm, cell.p_max_t, cell.mark, s.method, *planned)
    said = ['' if value != value else 'inf' if value == math.inf else value for value in line]  # NaN is not itself
    return dict(zip(COLUMNS, said, strict=True))


def _number(e: Estimate, usual: int = 0, sign: str = '') -> str:
    """0.612 [0.587, 0.637], and the number of runs where it is not the line's usual one."""
    interval = '' if math.isnan(e.low) else f' [{e.low:{sign}.3f}, {e.high:{sign}.3f}]'
    return f'{e.value:{sign}.3f}{interval}' + f' (n={e.runs})' * (usual not in (0, e.runs))
