"""Forest plots: differences with their intervals, a panel a column of a table, or a line a column for two arms."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.report.plots import COLORS, GREY, SMALL, caption, new_figure, save
from bertx.report import table_notes
from bertx.report.comparison import Comparison
from bertx.report.table import Cell, Table


def differences(table: Table, path) -> Figure:
    """Each arm's accuracy less the baseline's. Writes a PNG and an SVG."""
    compared = {key: cell for key, cell in table.cells.items() if cell.difference}
    columns = [column for column in table.columns if any(key[1] == column for key in compared)]
    arms = [(number, arm) for number, arm in enumerate(table.arms) if any(key[0] == arm.name for key in compared)]
    figure = new_figure(max(5.0, 3.0 * len(columns) + 1.0), 0.45 * len(arms) + 1.5)
    axes = figure.subplots(1, max(1, len(columns)), sharey=True, squeeze=False)[0]
    for panel, column in zip(axes, columns, strict=False):
        for place, (number, arm) in enumerate(arms):
            if cell := compared.get((arm.name, column)):
                _draw(panel, cell, place, COLORS[number % len(COLORS)])
        _finish(panel, [arm.name for _, arm in arms], table.title(column))
    if not columns:
        axes[0].text(0.5, 0.5, 'no arm to compare with the baseline', ha='center', transform=axes[0].transAxes)
        axes[0].set_axis_off()
    note = f'accuracy less that of {table.baseline}, {table.split} split, with 95 % intervals; {table_notes.MARKED}'
    caption(figure, note)
    return save(figure, path)


def comparison(found: Comparison, path) -> Figure:
    """The two arms' difference on each column. Writes a PNG and an SVG."""
    figure = new_figure(7.0, 0.45 * len(found.cells) + 1.7)
    panel = figure.subplots()
    for place, cell in enumerate(found.cells.values()):
        _draw(panel, cell, place, COLORS[0])
    _finish(panel, [found.table.title(column) for column in found.cells], found.title)
    first, second = found.names
    for at, side, text in ((0.01, 'left', f'← {second} better'), (0.99, 'right', f'{first} better →')):
        panel.text(at, 0.02, text, ha=side, va='bottom', fontsize=SMALL, color=GREY, transform=panel.transAxes)
    panel.set_ylim(len(found.cells) - 0.2, -0.7)
    caption(figure, f'accuracy, {found.table.split} split, with 95 % intervals; {table_notes.MARKED}. {found.notes[0]}')
    return save(figure, path)


def _draw(panel: Axes, cell: Cell, place: int, color: str) -> None:
    found = cell.difference
    assert found
    panel.plot([found.low, found.high], [place, place], color=color, linewidth=2, solid_capstyle='butt')
    panel.plot(found.value, place, 'o', color=color, markersize=6)
    look: dict[str, Any] = {'textcoords': 'offset points', 'ha': 'center', 'fontsize': SMALL}
    text = panel.annotate(f'{found.value:+.3f}{cell.mark}', (found.value, place), (0, 6), **look)
    text.set_bbox({'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.5})  # over the zero line


def _finish(panel: Axes, labels: list[str], title: str) -> None:
    panel.axvline(0, color=GREY, linewidth=1, zorder=0)
    panel.set(title=title)
    panel.margins(x=0.15)
    panel.locator_params(axis='x', nbins=5)
    panel.grid(axis='x', alpha=0.25)
    panel.set_yticks(range(len(labels)), labels)
    panel.set_ylim(len(labels) - 0.5, -0.7)
