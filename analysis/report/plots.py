"""Figures of a sweep: learning curves and the arms x tasks matrix; PNG and SVG, no global state."""

import io
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import matplotlib
import numpy as np
from etils import epath
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy import special

from bertx.report import table_notes, tables
from bertx.report.arms import Arm, Column, arms
from bertx.report.table import ABSENT, Table
from bertx.results import RunFolder, write_atomically

# Okabe & Ito's palette, told apart by colour-blind readers too; grey for their yellow, which is weak on white.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#E69F00', '#56B4E9', '#000000', '#999999')
DASHES = ('-', '--', ':')  # for the second and third eight arms
GREY = '0.45'
DPI = 160
LEAST_SPAN = 0.1  # of accuracies, in axes and colours: zoomed in further, noise would look like a gain
SMALL = 8  # points

Curve = tuple[np.ndarray, np.ndarray]  # tokens, values


def learning_curves(folders: Iterable[RunFolder], path) -> Figure:
    """Training loss and validation accuracies over tokens: seeds thin, their mean bold, a band where there are several.

    Failed runs are drawn as far as they came, dotted, and are not in the mean. Writes a PNG and an SVG.
    """
    found = arms(folders)
    lines = {id(run): run.metrics() for arm in found for run in (*arm.runs.values(), *arm.failed)}
    panels = _panels([line for run in lines.values() for line in run])
    figure, axes = grid(len(panels), 2 if len(panels) in (2, 4) else 3, 4.3, 3.1, least=6.0, below=0.9)
    for panel, (split, key) in zip(axes, panels, strict=False):
        for number, arm in enumerate(found):
            done = [_curve(lines[id(run)], split, key) for run in arm.runs.values()]
            failed = [_curve(lines[id(run)], split, key) for run in arm.failed]
            _draw_arm(panel, style(number), [curve for curve in done if len(curve[0])], failed)
        task, metric = key.split('/')
        panel.set(title=f'{task} {metric}, {split}', xlabel='tokens')
        panel.xaxis.set_major_formatter(EngFormatter(sep=''))
        panel.grid(alpha=0.25)
        if metric == 'accuracy':
            draw_chance(panel, tables.chance(task))
    for number, arm in enumerate(found):
        axes[0].plot([], [], label=label(arm), linewidth=2, **style(number))
    if found:
        legend(figure, _meaning(found), *axes[0].get_legend_handles_labels())
    return save(figure, path)


def matrix(table: Table, path) -> Figure:
    """Arms x tasks: accuracy and interval, coloured by how far it lies above chance. Writes a PNG and an SVG."""
    arms, columns = table.arms, table.columns
    cells = {
        (i, j): cell
        for i, arm in enumerate(arms)
        for j, column in enumerate(columns)
        if (cell := table.cells.get((arm.name, column)))
    }
    above = np.full((len(arms), len(columns)), np.nan)
    for (i, j), cell in cells.items():
        reference = table.references.get(columns[j])
        above[i, j] = max(0.0, cell.score.value - reference[1].value) if reference else np.nan
    top = float(np.nan_to_num(above).max(initial=LEAST_SPAN))
    figure = new_figure(1.55 * len(columns) + 2.8, 0.55 * len(arms) + 1.4)
    axes = figure.subplots()
    image = axes.imshow(above, cmap='Blues', vmin=0, vmax=top, aspect='auto')
    for (i, j), cell in cells.items():
        value, interval = f'{cell.score.value:.3f}{cell.mark}', f'[{cell.score.low:.3f}, {cell.score.high:.3f}]'
        style: dict[str, Any] = {'ha': 'center', 'va': 'center', 'textcoords': 'offset points'}
        style['color'] = 'white' if above[i, j] > 0.6 * top else 'black'
        axes.annotate(value, (j, i), (0, 6), weight='bold' if cell.best else 'normal', **style)
        axes.annotate(interval, (j, i), (0, -8), fontsize=SMALL, **style)
    for i, j in np.ndindex(above.shape):
        if (i, j) not in cells:
            axes.text(j, i, ABSENT, ha='center', va='center', color=GREY)
    axes.set_xticks(range(len(columns)), [_heading(table, column) for column in columns], fontsize=9)
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.tick_params(length=0, top=True, bottom=False, labeltop=True, labelbottom=False)
    axes.set_xticks(np.arange(len(columns) + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(len(arms) + 1) - 0.5, minor=True)
    axes.grid(which='minor', color='white', linewidth=2)
    axes.tick_params(which='minor', length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=axes, label='above unigram, chance or majority', pad=0.02)
    caption(
        figure,
        f'accuracy on the {table.split} split with 95 % intervals; compared with {table.baseline}; '
        f'{table_notes.MARKED}; bold: the best of its column, and what is not significantly worse',
    )
    return save(figure, path)


def _panels(lines: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(split, key) worth a panel: MLM's training loss and accuracy, then the accuracy of every other task."""
    there = dict.fromkeys((line['split'], key) for line in lines for key in line)
    accuracies = [(split, key) for split, key in there if split == 'validation' and key.endswith('/accuracy')]
    accuracies.sort(key=lambda panel: panel[1] != 'mlm/accuracy')
    return [panel for panel in [('train', 'mlm/loss')] if panel in there] + accuracies


def _curve(lines: list[dict[str, Any]], split: str, key: str) -> Curve:
    points = [(line['tokens'], line[key]) for line in lines if line['split'] == split and key in line]
    tokens, values = np.array(points, float).reshape(-1, 2).T
    return tokens, values


def _draw_arm(panel: Axes, style: dict[str, Any], done: Sequence[Curve], failed: Sequence[Curve]) -> None:
    for tokens, values in done:
        panel.plot(tokens, values, linewidth=0.7, alpha=0.45, **style)
    for tokens, values in failed:
        panel.plot(tokens, values, linewidth=1.2, color=style['color'], linestyle=':')
    common = sorted(set.intersection(*(set(tokens) for tokens, _ in done))) if done else []
    if common:
        values_RT = np.array([values[np.isin(tokens, common)] for tokens, values in done])
        panel.plot(common, values_RT.mean(axis=0), linewidth=2, **style)
        if len(done) > 1:
            panel.fill_between(common, *band(values_RT), color=style['color'], alpha=0.15, linewidth=0)


def draw_chance(panel: Axes, level: float | None, name: str = 'chance') -> None:
    """And no axis shorter than LEAST_SPAN."""
    if level is not None:
        panel.axhline(level, color=GREY, linestyle=(0, (4, 3)), linewidth=1)
    low, high = panel.get_ylim()
    half = max(high - low, LEAST_SPAN) / 2
    panel.set_ylim((low + high) / 2 - half, (low + high) / 2 + half)
    if level is not None:
        panel.text(0.99, level, name, transform=panel.get_yaxis_transform(), ha='right', va='bottom',
                   color=GREY, fontsize=SMALL)  # fmt: skip


def band(values_RT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The 95 % t interval of the mean over seeds; of two seeds the range, as a t interval would fill the panel."""
    R = len(values_RT)
    if R < 3:
        return values_RT.min(axis=0), values_RT.max(axis=0)
    half_T = special.stdtrit(R - 1, 0.975) * values_RT.std(axis=0, ddof=1) / R**0.5
    return values_RT.mean(axis=0) - half_T, values_RT.mean(axis=0) + half_T


def about_bands(counts: Collection[int]) -> list[str]:
    """What `band` is. counts: of seeds, of each arm."""
    said = ['band: 95 % t interval over seeds'] if max(counts, default=0) > 2 else []
    return said + ['band of two seeds: their range'] * (2 in counts)


def _meaning(found: list[Arm]) -> str:
    counts = {len(arm.runs) for arm in found}
    said = ['thin: one seed', 'bold: mean', *about_bands(counts)]
    if any(arm.failed for arm in found):
        said.append('dotted: failed')
    return '; '.join(said)


def label(arm: Arm) -> str:
    failed = f', {len(arm.failed)} failed' if arm.failed else ''
    return f'{arm.name} ({len(arm.runs)} seed{"" if len(arm.runs) == 1 else "s"}{failed})'


def legend(figure: Figure, note: str, handles: Collection[Any], labels: Collection[str], **look: Any) -> None:
    """Below the panels, the note above it."""
    columns = legend_columns(figure, labels)
    made = figure.legend(handles, labels, loc='outside lower center', frameon=False, ncols=columns, **look)
    made.set_title(wrapped(figure, note))
    made.get_title().set(fontsize=SMALL, color=GREY)


def legend_columns(figure: Figure, labels: Collection[str]) -> int:
    """As many as fit: at 10 points about 11 characters to the inch, and 7 for the line before each label."""
    widest = max(map(len, labels)) + 7
    return max(1, min(4, len(labels), int(11 * figure.get_figwidth()) // widest))


def _heading(table: Table, column: Column) -> str:
    reference = table.references.get(column)
    return table.title(column) + (f'\n({reference[0]} {reference[1].value:.3f})' if reference else '')


def style(number: int) -> dict[str, Any]:
    return {'color': COLORS[number % len(COLORS)], 'linestyle': DASHES[number // len(COLORS) % len(DASHES)]}


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=DPI, layout='constrained')
    FigureCanvasAgg(figure)
    return figure


def grid(
    count: int, most: int, width: float, height: float, least: float = 0.0, below: float = 0.0
) -> tuple[Figure, np.ndarray]:
    """A figure with panels of width x height inches, at most so many side by side; it is no narrower than `least`, and
    has room below. Places without a panel are empty."""
    columns = min(most, max(1, count))
    rows = max(1, -(-count // columns))
    figure = new_figure(max(least, width * columns), height * rows + below)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for empty in axes[count:]:
        empty.set_axis_off()
    return figure, axes


def caption(figure: Figure, text: str) -> None:
    figure.supxlabel(wrapped(figure, text), fontsize=SMALL, color=GREY)


def wrapped(figure: Figure, text: str) -> str:
    """In lines that fit: at 8 points about 16 characters to the inch."""
    return textwrap.fill(text, int(16 * figure.get_figwidth()))


def save(figure: Figure, path) -> Figure:
    """path's PNG and the SVG beside it, each whole or not at all, and the same for the same data."""
    path = epath.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({'svg.hashsalt': path.stem}):  # ids that differ between the figures of one page
        for kind, about in (('png', {}), ('svg', {'Date': None})):
            content = io.BytesIO()
            figure.savefig(content, format=kind, metadata=about)
            write_atomically(path.with_suffix(f'.{kind}'), content.getvalue())
    return figure
