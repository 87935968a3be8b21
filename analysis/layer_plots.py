"""Pictures over layers: curves with control lines, heads x layers maps, grids, scatters, trees. PNG and SVG."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy import special

from analysis.plots import COLORS, GREY, SMALL, _figure

MARKERS = 'osD^vPX*'  # beside colours, so that arms are told apart in grey too
LEAST_SPAN = 0.05  # of an axis of accuracies: zoomed in further, noise would look like a curve

Lines = Mapping[str, np.ndarray]  # name -> values


def save(figure: Figure, path: Path) -> Path:
    """path without its ending: .png and .svg are written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for ending in ('.png', '.svg'):
        figure.savefig(path.with_name(path.name + ending))
    return path.with_name(path.name + '.png')


def curves(
    panels: Mapping[str, tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]]], path: Path, note: str,
    bands: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]] | None = None, ylabel: str = 'accuracy',
    xlabel: str = 'layer', ticks: Sequence[float] | None = None,
) -> Path:  # fmt: skip
    """Title -> ({arm: values [R, L]}, {control: values [L]}). A band is the 95 % t interval over runs (of two, their
    range); or what `bands` says of (title, arm), low and high [L]."""
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    figure = _figure(max(5.0, 3.1 * columns), 2.7 * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    labelled: dict[str, Line2D] = {}
    for panel, (title, (arms, controls)) in zip(axes, panels.items(), strict=False):
        for number, (arm, values_RL) in enumerate(arms.items()):
            x = np.arange(values_RL.shape[1]) if ticks is None else np.asarray(ticks)
            color = COLORS[number % len(COLORS)]
            (line,) = panel.plot(
                x, values_RL.mean(0), color=color, marker=MARKERS[number % 8], markersize=4.5, linewidth=1.8
            )
            labelled.setdefault(arm, line)
            low, high = (bands or {}).get((title, arm)) or _band(values_RL)
            panel.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
        for number, (name, values_L) in enumerate(controls.items()):
            style = ((0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))[number % 3]
            x = np.arange(len(values_L)) if ticks is None else np.asarray(ticks)
            (line,) = panel.plot(x, values_L, color=GREY, linestyle=style, linewidth=1.3)
            labelled.setdefault(name, line)
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
    legend = figure.legend(list(labelled.values()), list(labelled), loc='outside lower center', frameon=False,
                           ncols=min(6, len(labelled)), fontsize=9)  # fmt: skip
    legend.set_title(note)
    legend.get_title().set(fontsize=SMALL, color=GREY)
    return save(figure, path)


def _band(values_RL: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    R = len(values_RL)
    if R < 3:
        return values_RL.min(0), values_RL.max(0)
    half_L = special.stdtrit(R - 1, 0.975) * values_RL.std(0, ddof=1) / R**0.5
    return values_RL.mean(0) - half_L, values_RL.mean(0) + half_L


def maps(
    panels: Mapping[str, np.ndarray], path: Path, note: str, x: str = 'head', y: str = 'layer', first: int = 1,
    limits: tuple[float, float] | None = None,
) -> Path:  # fmt: skip
    """Title -> [rows, columns], numbered from `first`; each with its own scale unless there are limits."""
    columns = min(4, len(panels))
    rows = -(-len(panels) // columns)
    height, width = next(iter(panels.values())).shape
    figure = _figure(columns * max(2.6, 0.22 * width + 1.2), rows * max(2.1, 0.22 * height + 0.8) + 0.4)
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    low, high = limits or (None, None)
    for panel, (title, value) in zip(axes, panels.items(), strict=False):
        image = panel.imshow(value, cmap='viridis', aspect='auto', vmin=low, vmax=high)
        figure.colorbar(image, ax=panel, shrink=0.85)
        panel.set_title(title, fontsize=9)
        panel.set(xlabel=x, ylabel=y)
        for size, ticks in ((width, panel.set_xticks), (height, panel.set_yticks)):
            at = range(0, size, -(-size // 8))
            ticks(at, [str(i + first) for i in at])
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    figure.supxlabel(note, fontsize=SMALL, color=GREY)
    return save(figure, path)


def scatter(place_M2: np.ndarray, kinds: Sequence[str], heads: int, path: Path) -> Path:
    """Heads in the plane, coloured and marked by kind, numbered by layer."""
    figure = _figure(6.5, 5.2)
    axes = figure.subplots()
    for number, kind in enumerate(sorted(set(kinds))):
        mine = [m for m, k in enumerate(kinds) if k == kind]
        color, marker = COLORS[number % len(COLORS)], MARKERS[number % 8]
        x, y = place_M2[mine].T
        axes.scatter(x, y, s=38, label=f'{kind} ({len(mine)})', color=color, marker=marker)
    for m, (x, y) in enumerate(place_M2):
        axes.annotate(str(m // heads + 1), (x, y), (4, 3), textcoords='offset points', fontsize=6, color=GREY)
    axes.set_axis_off()
    axes.legend(loc='center left', bbox_to_anchor=(1.0, 0.5), frameon=False, title='looks at')
    note = 'each point a head, numbered by its layer; heads that look alike lie together (Jensen-Shannon, MDS)'
    figure.supxlabel(note, fontsize=SMALL, color=GREY)
    return save(figure, path)
