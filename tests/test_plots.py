import json

import matplotlib
import numpy as np
import pytest
import scipy.stats
from matplotlib import pyplot
from matplotlib.colors import to_hex

from analysis.report import compute, forest, plots
from bertx.evaluate import Measurement
from bertx.report import tables
from bertx.results import RunFolder

STEPS = range(25, 101, 25)
N = 400


def sweep(tmp_path, arms, seeds, fail=()):
    """Runs whose accuracy grows; the arm named after a pair task is trained on it."""
    rng, found = np.random.default_rng(0), []
    for number, arm in enumerate(arms):
        for seed in range(seeds):
            folder = RunFolder(tmp_path / 'runs' / f'{arm}-s{seed}-{number:08x}')
            folder.path.mkdir(parents=True)
            for step in STEPS:
                line = {'step': step, 'tokens': 64 * step}
                folder.append(
                    'metrics.jsonl', line | {'split': 'train', 'mlm/loss': 9 - step / 50 + rng.normal(0, 0.1)}
                )
                numbers = {'mlm/accuracy': step / 300 + rng.normal(0, 0.01)}
                if arm in ('nsp', 'sop'):
                    numbers[f'{arm}/accuracy'] = 0.5 + step / 400 + rng.normal(0, 0.01)
                folder.append('metrics.jsonl', line | {'split': 'validation'} | numbers)
            about = {'arm': arm, 'seed': seed, 'step': 100, 'tokens': 6400, 'flops': 1e12 * (number + 1)}
            if (arm, seed) in fail:
                folder.fail(about, 'nan')
                continue
            rates = {('mlm', 'own'): 0.4, ('mlm', 'unigram'): 0.1}
            rates |= {(task, 'refit'): 0.8 if arm == task else 0.55 for task in ('nsp', 'sop')}
            rates |= {(arm, 'own'): 0.85} if arm in ('nsp', 'sop') else {}
            hits = {column: (rng.random(N) < rate).astype(float) for column, rate in rates.items()}
            folder.finish(about, [Measurement(*c, 'test', 'accuracy', h, np.ones(N)) for c, h in hits.items()])
            found.append(folder)
            (folder.path / 'config.json').write_text(json.dumps({'seed': seed}))
    return found + [RunFolder(tmp_path / 'runs' / f'{a}-s{s}-{arms.index(a):08x}') for a, s in fail]


def is_png(path):
    return path.read_bytes()[:8] == b'\x89PNG\r\n\x1a\n' and path.stat().st_size > 5000


def curves(panel, width):
    return [line for line in panel.lines if line.get_linewidth() == width and len(line.get_xdata())]


def validation(folder, key):
    return [line[key] for line in folder.metrics() if line['split'] == 'validation' and key in line]


def test_learning_curves(tmp_path):
    folders = sweep(tmp_path, ['none', 'nsp', 'sop'], 4, fail=[('sop', 3)])
    figure = plots.learning_curves(folders, tmp_path / 'figures' / 'curves.png')
    assert is_png(tmp_path / 'figures' / 'curves.png')
    loss, accuracy, nsp, sop = figure.axes
    assert [panel.get_title() for panel in figure.axes] == [
        'mlm loss, train', 'mlm accuracy, validation', 'nsp accuracy, validation', 'sop accuracy, validation',
    ]  # fmt: skip
    assert loss.get_xlabel() == 'tokens' and len(curves(loss, 0.7)) == 11
    assert [to_hex(line.get_color()).upper() for line in curves(accuracy, 2)] == list(plots.COLORS[:3])
    mean = curves(nsp, 2)[0]
    assert to_hex(mean.get_color()).upper() == plots.COLORS[1]  # the arm's colour, though the panel's first
    values = np.array([validation(f, 'nsp/accuracy') for f in folders if f.path.name.startswith('nsp')])
    np.testing.assert_allclose(mean.get_ydata(), values.mean(axis=0))
    np.testing.assert_array_equal(mean.get_xdata(), [64 * step for step in STEPS])
    assert any(list(line.get_ydata()) == [0.5, 0.5] for line in nsp.lines)
    assert any(text.get_text() == 'chance' for text in sop.texts) and not accuracy.texts
    band = nsp.collections[0].get_paths()[0].vertices[:, 1]
    low, high = scipy.stats.t.interval(0.95, 3, values[:, -1].mean(), scipy.stats.sem(values[:, -1]))
    assert np.isclose(band, low).any() and np.isclose(band, high).any()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        'none (4 seeds)', 'nsp (4 seeds)', 'sop (3 seeds, 1 failed)',
    ]  # fmt: skip
    assert 't interval' in legend.get_title().get_text() and 'dotted: failed' in legend.get_title().get_text()


def test_two_seeds_have_their_range_as_band(tmp_path):
    folders = sweep(tmp_path, ['none', 'nsp'], 2)
    figure = plots.learning_curves(folders, tmp_path / 'curves.png')
    values = np.array([validation(f, 'nsp/accuracy') for f in folders[2:]])
    band = figure.axes[2].collections[0].get_paths()[0].vertices[:, 1]
    assert band.min() == values.min() and band.max() == values.max()
    assert 'their range' in figure.legends[0].get_title().get_text()


def test_matrix(tmp_path):
    table = tables.make(sweep(tmp_path, ['none', 'nsp', 'sop'], 5))
    figure = plots.matrix(table, tmp_path / 'matrix.png')
    assert is_png(tmp_path / 'matrix.png')
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [f'{arm.name} (5 seeds)' for arm in table.arms]
    mlm, refit, own, *_ = [label.get_text() for label in axes.get_xticklabels()]
    assert mlm.startswith('mlm\n(unigram 0.') and own == 'nsp own\n(chance 0.500)'
    shown = [text.get_text() for text in axes.texts]
    cell = table.cells['nsp', ('nsp', 'refit')]
    assert cell.mark and f'{cell.score.value:.3f}†' in shown
    assert f'[{cell.score.low:.3f}, {cell.score.high:.3f}]' in shown
    assert shown.count('–') == 4
    above = axes.images[0].get_array()
    assert above[1, 1] == pytest.approx(cell.score.value - 0.5)
    assert np.ma.getmaskarray(above)[0, 2] or np.isnan(above[0, 2])


def test_differences(tmp_path):
    table = tables.make(sweep(tmp_path, ['none', 'nsp', 'sop'], 5))
    figure = forest.differences(table, tmp_path / 'differences.png')
    assert is_png(tmp_path / 'differences.png')
    assert [panel.get_title() for panel in figure.axes] == ['mlm', 'nsp refit', 'sop refit']
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ['nsp', 'sop']
    panel = figure.axes[1]
    interval, point, *_, zero = panel.lines
    found = table.cells['nsp', ('nsp', 'refit')].difference
    assert list(zero.get_xdata()) == [0, 0]
    assert list(interval.get_xdata()) == [found.low, found.high] and list(point.get_xdata()) == [found.value]
    assert f'{found.value:+.3f}†' in [text.get_text() for text in panel.texts]


def test_compute_against_score(tmp_path):
    table = tables.make(sweep(tmp_path, ['none', 'nsp', 'sop'], 3))
    figure = compute.scores(table, tmp_path / 'compute.png')
    assert is_png(tmp_path / 'compute.png') and (tmp_path / 'compute.svg').exists()
    assert [panel.get_title() for panel in figure.axes] == ['mlm', 'nsp refit', 'sop refit']
    panel = figure.axes[1]
    cell = table.cells['nsp', ('nsp', 'refit')]
    assert [list(line.get_ydata()) for line in panel.lines[:3]][1] == [
        cell.score.low,
        cell.score.value,
        cell.score.high,
    ]
    assert list(panel.lines[1].get_xdata()) == [2e12] * 3
    low, high = panel.get_xlim()
    assert low < 1e12 and high > 3e12
    assert any(text.get_text() == 'chance' for text in panel.texts)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        f'{a} (3 seeds)' for a in ('none', 'nsp', 'sop')
    ]


def test_arms_of_one_cost_stand_side_by_side():
    steps = compute._sidesteps({'a': 1e12, 'b': 1.001e12, 'c': 2e12})
    assert steps['a'] == -steps['b'] != 0 and steps['c'] == 0


def test_one_arm_and_many_arms(tmp_path):
    alone = tables.make(sweep(tmp_path / 'one', ['none'], 1))
    assert forest.differences(alone, tmp_path / 'differences.png').axes[0].texts
    many = sweep(tmp_path / 'many', [f'an arm with a long name {i}' for i in range(9)], 1)
    plots.matrix(tables.make(many), tmp_path / 'matrix.png')
    compute.scores(tables.make(many), tmp_path / 'compute.png')
    figure = plots.learning_curves(many, tmp_path / 'curves.png')
    figure.canvas.draw()
    box, page = figure.legends[0].get_window_extent(), figure.bbox
    assert box.x0 >= page.x0 and box.x1 <= page.x1
    styles = {(line.get_color(), line.get_linestyle()) for line in curves(figure.axes[0], 2)}
    assert len(styles) == 9


def test_nothing_is_left_in_pyplot(tmp_path):
    settings = dict(matplotlib.rcParams)
    plots.learning_curves([], tmp_path / 'curves.png')
    assert dict(matplotlib.rcParams) == settings
    assert not pyplot.get_fignums()
