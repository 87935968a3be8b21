"""Compute against score: what an arm's training cost beside what it reached."""

from collections import defaultdict

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation

from analysis.report.plots import COLORS, draw_chance, grid, label, legend, save
from bertx.report.table import Table

MARKERS = 'os^'  # of the first, second and third eight arms, whose colours are the same
SAME = 0.02  # costs so near each other are drawn side by side, as they would hide each other
SIDESTEP = 6  # points
RATIO = 3  # of the dearest arm to the cheapest, from which on the axis is logarithmic


def scores(table: Table, path) -> Figure:
    """A panel a column that several arms share: mean FLOPs of an arm's runs, its accuracy and 95 % interval.

    Writes a PNG and an SVG.
    """
    flops = {arm.name: [result.get('flops') or 0.0 for result in arm.results.values()] for arm in table.arms}
    cost = {name: float(np.mean(known)) for name, known in flops.items() if known and all(known)}
    columns = [c for c in table.columns if sum(key == c and name in cost for name, key in table.cells) > 1]
    figure, axes = grid(len(columns), 2 if len(columns) in (2, 4) else 3, 3.6, 2.9, least=5.5, below=0.9)
    looks = {
        arm.name: {'color': COLORS[n % len(COLORS)], 'marker': MARKERS[n // len(COLORS) % len(MARKERS)]}
        for n, arm in enumerate(table.arms)
    }
    for panel, column in zip(axes, columns, strict=False):
        shown = {name: cost[name] for name in cost if (name, column) in table.cells}
        steps = _sidesteps(shown)
        for name, flop in shown.items():
            found = table.cells[name, column].score
            values = [found.low, found.value, found.high]
            line = panel.plot([flop] * 3, values, markevery=[1], markersize=5, linewidth=1.5, **looks[name])[0]
            aside = ScaledTranslation(steps[name] / 72, 0, figure.dpi_scale_trans)
            line.set_transform(panel.transData + aside)  # not while plotting: the axes' limits would miss it
        low, high = min(shown.values()), max(shown.values())
        if high > RATIO * low:
            panel.set_xscale('log')
            panel.set_xlim(low / 1.5, high * 1.5)
        else:
            panel.set_xlim(low - 0.1 * high, 1.1 * high)
        panel.xaxis.set_major_formatter(EngFormatter(sep=''))
        panel.set(title=table.title(column), xlabel='FLOPs a run')
        panel.grid(alpha=0.25)
        known = table.references.get(column)
        draw_chance(panel, known[1].value if known else None, known[0] if known else '')
    for arm in table.arms:
        axes[0].plot([], [], linestyle='', label=label(arm), **looks[arm.name])
    text = f'accuracy, {table.split} split, with 95 % intervals; arms of the same cost stand side by side'
    legend(figure, text, *axes[0].get_legend_handles_labels())
    return save(figure, path)


def _sidesteps(cost: dict[str, float]) -> dict[str, float]:
    """How many points each arm is set aside from its place."""
    groups: dict[int, list[str]] = defaultdict(list)
    for name, flop in cost.items():
        groups[round(np.log(flop) / SAME)].append(name)
    return {n: SIDESTEP * (i - (len(g) - 1) / 2) for g in groups.values() for i, n in enumerate(g)}
