"""Compute against score: what an arm's training cost beside what it reached."""

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from matplotlib.transforms import ScaledTranslation

from analysis.plots import GREY, SMALL, _draw_chance, _figure, _label, _legend_columns, _save, _style, _wrapped
from bertx.table import Table

SIDESTEP = 5  # points between arms, which would hide each other where all cost the same
RATIO = 3  # of the dearest arm to the cheapest, from which on the axis is logarithmic


def scores(table: Table, path) -> Figure:
    """A panel a column that several arms share: mean FLOPs of an arm's runs, its accuracy and 95 % interval.

    Writes a PNG and an SVG.
    """
    flops = {arm.name: [result.get('flops') for result in arm.results.values()] for arm in table.arms}
    cost = {name: sum(known) / len(known) for name, known in flops.items() if known and all(known)}
    columns = [c for c in table.columns if sum(key == c and name in cost for name, key in table.cells) > 1]
    width = min(3, max(1, len(columns)))
    rows = max(1, -(-len(columns) // width))
    figure = _figure(max(5.5, 3.6 * width), 2.9 * rows + 0.9)
    axes = figure.subplots(rows, width, squeeze=False).ravel()
    for panel, column in zip(axes, columns, strict=False):
        for number, arm in enumerate(table.arms):
            if (cell := table.cells.get((arm.name, column))) and arm.name in cost:
                found, color = cell.score, _style(number)['color']
                aside = ScaledTranslation((number - len(table.arms) / 2) * SIDESTEP / 72, 0, figure.dpi_scale_trans)
                shape = {'color': color, 'marker': 'o' if cell.best else 'D', 'markersize': 5, 'linewidth': 1.5}
                drawn = panel.plot([cost[arm.name]] * 3, [found.low, found.value, found.high], markevery=[1], **shape)
                drawn[0].set_transform(panel.transData + aside)  # not while plotting: the axes' limits would miss it
        if max(cost.values()) > RATIO * min(cost.values()):
            panel.set_xscale('log')
        elif max(cost.values()) < 1.05 * min(cost.values()):  # the same cost: no axis of rounding errors
            panel.set_xlim(0.9 * min(cost.values()), 1.1 * max(cost.values()))
        panel.xaxis.set_major_formatter(EngFormatter(sep=''))
        panel.set(title=table.title(column), xlabel='FLOPs a run')
        panel.grid(alpha=0.25)
        known = table.references.get(column)
        _draw_chance(panel, known[1].value if known else None, known[0] if known else '')
    for empty in axes[len(columns) :]:
        empty.set_axis_off()
    for number, arm in enumerate(table.arms):
        axes[0].plot([], [], 'o', label=_label(arm), color=_style(number)['color'])
    legend = figure.legend(loc='outside lower center', ncols=_legend_columns(figure, table.arms), frameon=False)
    text = f'accuracy, {table.split} split, with 95 % intervals; round: best, or not significantly worse'
    legend.set_title(_wrapped(figure, text))
    legend.get_title().set(fontsize=SMALL, color=GREY)
    return _save(figure, path)
