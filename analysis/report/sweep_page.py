"""report.html: a sweep on one page that needs nothing else, neither files nor a network."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from etils import epath
from markupsafe import Markup

from analysis.report import page
from bertx.config import flat
from bertx.report.arms import Arm
from bertx.report.comparison import Comparison
from bertx.report.table import ABSENT, Table
from bertx.results import RunFolder, write_atomically

RUN_HEAD = ('run', 'arm', 'seed', 'status', 'steps', 'tokens', 'FLOPs', 'wall time', 'reason')
SHOWN_DIFF = 4000  # characters of a diff; all of it is in the run's provenance.json


def write(
    path, title: str, config: Mapping[str, Any], table: Table, folders: Sequence[RunFolder],
    figures: Mapping[str, epath.Path], compared: tuple[Comparison, epath.Path] | None,
) -> None:  # fmt: skip
    """The page at `path`. figures: heading -> SVG; compared: two arms and the SVG of their differences."""
    counts = Counter(_status(folder) for folder in folders)
    said = ', '.join(f'{counts[status]} {status}' for status in ('done', 'failed', 'not finished') if counts[status])
    text = page.render(
        'sweep_page.html',
        title=title,
        summary=f'{len(table.arms)} arms, {len(folders)} runs: {said}. Compared with {table.baseline}.',
        results=_results(table),
        notes=table.notes,
        comparison=compared and {'found': compared[0], 'figure': _figure('Comparison', compared[1])},
        figures=[_figure(name, svg) for name, svg in figures.items()],
        runs={'head': RUN_HEAD, 'rows': [_run(folder) for folder in folders]},
        settings=_settings(table.arms),
        provenance=_provenance(folders),
        config=json.dumps(config, indent=1),
    )
    write_atomically(epath.Path(path), text)


def _results(table: Table) -> dict[str, Any]:
    """A row an arm, its differences in the cells: sorting keeps them together."""
    rows: list[dict[str, Any]] = []
    for line in table.lines:
        if line.kind == 'difference':
            for cell, d in zip(rows[-1]['cells'], line.cells, strict=True):
                cell['difference'] = d.text + d.mark
        if line.kind == 'score':
            found = [table.cells.get((line.label, column)) for column in table.printed]
            values = [cell.score.value if cell else '' for cell in found]
            cells = [{'text': s.text, 'bold': s.bold, 'value': v} for s, v in zip(line.cells, values, strict=True)]
            rows.append({'label': line.label, 'seeds': line.seeds, 'cells': cells})
        for cell in rows[-1]['cells'] if rows else ():
            cell.setdefault('difference', '')
    head = ['arm', 'seeds', *map(table.title, table.printed)]
    return {'head': head, 'rows': rows, 'references': [line for line in table.lines if line.kind == 'reference']}


def _figure(title: str, svg: epath.Path) -> dict[str, Any]:
    """The SVG as it stands in a page: as wide as there is room, but not so small that it cannot be read."""
    text = svg.read_text()
    text = re.sub(r' id="[A-Za-z0-9]+_\d+"', '', text[text.index('<svg') :])  # patch_1: unused, and in every figure
    width = re.search(r'viewBox="0 0 ([\d.]+)', text)
    points = float(width[1]) if width else 600.0
    style = f'role="img" aria-label="{title}" style="max-width: {points:.0f}pt; min-width: {0.75 * points:.0f}pt"'
    text = re.sub(r'^<svg ', f'<svg {style} ', re.sub(r' (width|height)="[\d.]+pt"', '', text, count=2))
    return {'id': svg.stem, 'title': title, 'svg': Markup(text)}  # written by matplotlib, which escapes names


def _status(folder: RunFolder) -> str:
    return (folder.result or {}).get('status', 'not finished')


def _run(folder: RunFolder) -> dict[str, Any]:
    """Each field as shown and as sorted by."""
    about = folder.result or ({'step': lines[-1]['step']} if (lines := folder.metrics()) else {})
    shown = {'step': '{:,.0f}', 'tokens': '{:,.0f}', 'flops': '{:.2e}', 'wall_s': '{:,.0f} s'}
    cells = [(folder.path.name,) * 2, *((about.get(key, ''),) * 2 for key in ('arm', 'seed')), (_status(folder),) * 2]
    for key, form in shown.items():
        value = about.get(key)
        cells.append(('', '') if value is None else (form.format(value), value))
    return {'cells': cells, 'status': _status(folder).replace(' ', '-'), 'reason': about.get('reason', '')}


def _settings(arms: Sequence[Arm]) -> dict[str, Any]:
    """Keys of the config whose value is not the same in every arm."""
    found = {arm.name: flat(arm.config) for arm in arms if arm.config}
    keys = sorted({key for settings in found.values() for key in settings} - {'seed'})
    said = lambda settings, key: _value(settings[key]) if key in settings else ABSENT
    rows = [[key, *(said(settings, key) for settings in found.values())] for key in keys]
    return {'head': ['', *found], 'rows': [row for row in rows if len(set(row[1:])) > 1]}


def _value(value: Any) -> str:
    """A section without settings of its own is there with its defaults."""
    return 'defaults' if value == {} else json.dumps(value).strip('"')


def _provenance(folders: Sequence[RunFolder]) -> list[tuple[str, list[tuple[str, int]]]]:
    """What each run recorded of its making, by key: every value, and of how many runs."""
    records = [folder.read('provenance.json') for folder in folders]
    keys = dict.fromkeys(key for record in records for key in record if key not in ('time', 'resumed'))
    found = {key: Counter(_said(record[key]) for record in records if record.get(key)) for key in keys}
    return [(key.replace('_', ' '), counts.most_common()) for key, counts in found.items() if counts]


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return ', '.join(f'{name} {each}' for name, each in value.items())
    return ' '.join(map(str, value)) if isinstance(value, list) else str(value)[:SHOWN_DIFF]
