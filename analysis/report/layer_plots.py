"""Pictures over layers: curves with control lines, heads x layers maps, grids, scatters, trees. PNG and SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.report import plots
from analysis.report.plots import COLORS, GREY, new_figure

MARKERS = 'osD^vPX*<'  # beside colours, so that arms are told apart in grey too; 8 of these: 72 arms differ in one
LEAST_SPAN = 0.05  # of an axis of accuracies: zoomed in further, noise would look like a curve

Lines = Mapping[str, np.ndarray]  # name -> values


def save(figure: Figure, path: Path) -> Path:
    """path without its ending: .png and .svg are written."""
    picture = path.with_name(path.name + '.png')
    plots.save(figure, picture)
    return picture


def meaning(counts: Sequence[int], alone: str = '') -> str:
    """Of lines and bands. counts: of runs, of each arm; alone: what the band of one run is over."""
    bands = plots.about_bands(counts) + [f'band of one run: 95 % {alone}'] * (alone != '' and 1 in counts)
    return '; '.join(['line: mean', *bands])


def curves(
    panels: Mapping[str, tuple[Lines, Mapping[str, np.ndarray | Lines]]], path: Path, note: str,
    bands: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]] | None = None, ylabel: str = 'accuracy',
    xlabel: str = 'layer', ticks: Sequence[float] | None = None,
) -> Path:  # fmt: skip
    """Title -> ({arm: values [R, L]}, {control: values [L], or {arm: [L]}}). A control that all arms share is grey,
    others have their colours. A band is `plots.band`, or what `bands` says of (title, arm), low and high [L]."""
    figure, axes = plots.grid(len(panels), 4, 3.1, 2.7, least=5.0)  # and higher by the legend, below
    columns = min(4, len(panels))
    labelled: dict[str, Line2D] = {}
    for panel, (title, (arms, controls)) in zip(axes, panels.items(), strict=False):
        for number, (arm, values_RL) in enumerate(arms.items()):
            x = np.arange(values_RL.shape[1]) if ticks is None else np.asarray(ticks)
            look = plots.style(number)
            marked = {'marker': MARKERS[number % len(MARKERS)], 'markersize': 4.5, 'linewidth': 1.8}
            (line,) = panel.plot(x, values_RL.mean(0), **look, **marked)
            labelled.setdefault(arm, line)
            low, high = (bands or {}).get((title, arm)) or plots.band(values_RL)
            panel.fill_between(x, low, high, color=look['color'], alpha=0.18, linewidth=0)
        for number, (name, values) in enumerate(controls.items()):
            look = {'linestyle': ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))[number % 3], 'linewidth': 1.3}
            lines = values if isinstance(values, Mapping) else {'': values}
            common = all(np.array_equal(values_L, next(iter(lines.values()))) for values_L in lines.values())
            for arm, values_L in [next(iter(lines.items()))] if common else lines.items():
                x = np.arange(len(values_L)) if ticks is None else np.asarray(ticks)
                panel.plot(x, values_L, color=GREY if common else plots.style(list(arms).index(arm))['color'], **look)
            labelled.setdefault(name, Line2D([], [], color=GREY, **look))
        low, high = panel.get_ylim()
        if high - low < LEAST_SPAN:
            panel.set_ylim((low + high - LEAST_SPAN) / 2, (low + high + LEAST_SPAN) / 2)
        panel.set_title(title.replace('_', ' '), fontsize=10)
        panel.grid(alpha=0.25)
        if ticks is None:
            panel.xaxis.get_major_locator().set_params(integer=True)
    for panel in axes[max(0, len(panels) - columns) : len(panels)]:
        panel.set_xlabel(xlabel)
    for panel in axes[::columns]:
        panel.set_ylabel(ylabel)
    lines_of_legend = -(-len(labelled) // plots.legend_columns(figure, labelled))
    lines_of_note = len(plots.wrapped(figure, note).splitlines())
    figure.set_figheight(figure.get_figheight() + 0.5 + 0.2 * lines_of_legend + 0.15 * lines_of_note)  # inches
    plots.legend(figure, note, labelled.values(), labelled, fontsize=9)
    return save(figure, path)


def maps(
    panels: Mapping[str, np.ndarray], path: Path, note: str, first: int = 1,
    limits: tuple[float, float] | None = None, axes_of: Mapping[str, tuple[str, str]] | None = None,
) -> Path:  # fmt: skip
    """Title -> [rows, columns], numbered from `first`; each with its own scale unless there are limits. axes_of: title
    -> what its rows and columns are, where these are not layers and heads."""
    rows, columns = np.max([value.shape for value in panels.values()], axis=0)
    inches = max(2.6, 0.22 * columns + 1.2), max(2.1, 0.22 * rows + 0.8)
    figure, axes = plots.grid(len(panels), 4, *inches, below=0.4)
    low, high = limits or (None, None)
    for panel, (title, value) in zip(axes, panels.items(), strict=False):
        image = panel.imshow(value, cmap='viridis', aspect='auto', vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.85)
        panel.set_title(title, fontsize=9)
        down, across = (axes_of or {}).get(title, ('layer', 'head'))
        panel.set(xlabel=across, ylabel=down)
        for size, ticks in zip(value.shape, (panel.set_yticks, panel.set_xticks), strict=True):
            at = range(0, size, -(-size // 8))
            ticks(at, [str(i + first) for i in at])
    plots.caption(figure, note)
    return save(figure, path)


def scatter(place_M2: np.ndarray, kinds: Sequence[str], heads: int, path: Path) -> Path:
    """Heads in the plane, coloured and marked by kind, numbered by layer."""
    figure = new_figure(6.5, 5.2)
    axes = figure.subplots()
    for number, kind in enumerate(sorted(set(kinds))):
        mine = [m for m, k in enumerate(kinds) if k == kind]
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)]
        x, y = place_M2[mine].T
        axes.scatter(x, y, s=38, label=f'{kind} ({len(mine)})', color=color, marker=marker)
    for m, (x, y) in enumerate(place_M2):
        axes.annotate(str(m // heads + 1), (x, y), (4, 3), textcoords='offset points', fontsize=6, color=GREY)
    axes.set_axis_off()
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5), frameon=False, title='looks at')
    note = 'each point a head, numbered by its layer; heads that look alike lie together (Jensen-Shannon, MDS)'
    plots.caption(figure, note)
    return save(figure, path)
