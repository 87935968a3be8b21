"""Where each task lies in the layers, as bars (Tenney et al. 2019, figures 1 and 2).

Drawn by `python -m analysis.probe --probe=edge`, and so by the preset tenney2019.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from analysis.probing.edge import Gravity
from analysis.report import layer_plots
from analysis.report.plots import COLORS, GREY, SMALL, caption, new_figure

LEAST = 0.01  # of the axis of gains, to each side: noise would look like a gain
ROOM = 1.2  # of the left axis over the layers, for figures behind the bars


def draw(places: Mapping[str, Gravity], path: Path) -> Path:
    """A row a name: left its expected layer with the interval and its centre of gravity, right what each layer adds."""
    last = max(len(g.differential_L) for g in places.values()) - 1
    figure = new_figure(9.5, 0.8 * len(places) + 1.5)
    axes = figure.subplots(len(places), 2, sharex='col', squeeze=False)
    for (left, right), (name, g) in zip(axes, places.items(), strict=True):
        _place(left, g)
        left.set_ylabel(name.replace(', ', '\n').replace('_', ' '), rotation=0, ha='right', va='center')
        _gains(right, g.differential_L)
    axes[0, 0].set_xlim(0, ROOM * last)
    step = -(-last // 12)
    for column in (0, 1):
        axes[-1, column].set_xticks(range(0 if column == 0 else 1, last + 1, step))
        axes[-1, column].set_xlabel('layer')
    axes[0, 0].set_title('expected layer (filled), centre of gravity (hatched)', fontsize=9)
    axes[0, 1].set_title('what layer l adds: score of 0 to l less that of 0 to l - 1', fontsize=9)
    note = 'line: 95 % bootstrap over runs and test sentences; centre of gravity: of the mix; gains: a scale a row'
    caption(figure, note)
    return layer_plots.save(figure, path)


def _place(panel: Axes, g: Gravity) -> None:
    behind: Any = {'textcoords': 'offset points', 'va': 'center', 'fontsize': SMALL}
    if np.isnan(g.expected):
        panel.text(0.1, 1, 'expected layer: within noise', va='center', fontsize=SMALL, color=GREY)
    else:
        panel.barh(1, g.expected, height=0.75, color=COLORS[0])
        panel.plot([g.low, g.high], [1, 1], color='black', linewidth=1.5, marker='|', markersize=5)
        panel.annotate(f'{g.expected:.2f}', (max(g.expected, g.high), 1), (5, 0), **behind)
    if not np.isnan(g.centre):
        panel.barh(0, g.centre, height=0.75, facecolor='white', edgecolor=COLORS[1], hatch='////')
        panel.annotate(f'{g.centre:.2f}', (g.centre, 0), (5, 0), **behind)
    panel.set_ylim(-0.6, 1.6)
    panel.set_yticks([])
    panel.spines[['top', 'right']].set_visible(False)


def _gains(panel: Axes, gain_L: np.ndarray) -> None:
    at = np.arange(1, len(gain_L))
    up = gain_L[1:] >= 0
    panel.bar(at[up], gain_L[1:][up], color=COLORS[0])
    panel.bar(at[~up], gain_L[1:][~up], facecolor='white', edgecolor=COLORS[0], hatch='////')
    panel.axhline(0, color=GREY, linewidth=0.8)
    low, high = panel.get_ylim()
    panel.set_ylim(min(low, -LEAST), max(high, LEAST))
    panel.locator_params(axis='y', nbins=3)
    panel.tick_params(axis='y', labelsize=SMALL)
    panel.spines[['top', 'right']].set_visible(False)
