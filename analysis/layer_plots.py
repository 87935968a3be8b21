"""Pictures over layers: curves with control lines, heads x layers maps, grids, scatters, trees. PNG and SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import plots
from analysis.plots import COLORS, GREY, SMALL, new_figure

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
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(max(5.0, 3.1 * columns), 2.7 * rows)  # and higher by the legend, below
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
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
    for number, panel in enumerate(axes):
        if number >= len(panels):
            panel.set_axis_off()
        elif number + columns >= len(panels):
            panel.set_xlabel(xlabel)
    for row in range(rows):
        axes[row * columns].set_ylabel(ylabel)
    count, text = plots.legend_columns(figure, labelled), plots.wrapped(figure, note)
    figure.set_figheight(2.7 * rows + 0.5 + 0.2 * -(-len(labelled) // count) + 0.15 * len(text.splitlines()))  # inches
    legend = figure.legend(labelled.values(), labelled, loc='outside lower center', frameon=False, ncols=count,
                           fontsize=9)  # fmt: skip
    legend.set_title(text)
    legend.get_title().set(fontsize=SMALL, color=GREY)
    return save(figure, path)


def maps(
    panels: Mapping[str, np.ndarray], path: Path, note: str, x: str = 'head', y: str = 'layer', first: int = 1,
    limits: tuple[float, float] | None = None, axes_of: Mapping[str, tuple[str, str]] | None = None,
) -> Path:  # fmt: skip
    """Title -> [rows, columns], numbered from `first`; each with its own scale unless there are limits. axes_of: title
    -> what its rows and columns are, where that is not y and x."""
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    height, width = np.max([value.shape for value in panels.values()], axis=0)
    figure = new_figure(columns * max(2.6, 0.22 * width + 1.2), rows * max(2.1, 0.22 * height + 0.8) + 0.4)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    low, high = limits or (None, None)
    for panel, (title, value) in zip(axes, panels.items(), strict=False):
        image = panel.imshow(value, cmap='viridis', aspect='auto', vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.85)
        panel.set_title(title, fontsize=9)
        down, across = (axes_of or {}).get(title, (y, x))
        panel.set(xlabel=across, ylabel=down)
        for size, ticks in zip(value.shape, (panel.set_yticks, panel.set_xticks), strict=True):
            at = range(0, size, -(-size // 8))
            ticks(at, [str(i + first) for i in at])
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
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
