"""Where edge probes find a task: what is kept of a fit, and what is drawn of it."""

import types

import numpy as np
import pytest
from analysis_cases import treebank

from analysis import probe
from analysis.probing import annotated_tasks, edge, profiles
from analysis.probing.engine import Options
from analysis.probing.profiles import Prepared, Profile
from analysis.report import edge_bars
from bertx.report.arms import Arm


def profile(accuracy_L, mix_L, seed=0):
    rng, L, groups = np.random.default_rng(seed), len(accuracy_L), 100
    hit = rng.binomial(10, np.array(accuracy_L)[:, None], (L, groups)).astype(float)
    one_L, majority_G = np.ones(L), np.full(groups, 2.0)
    return Profile(
        np.full(groups, 10.0), hit, hit / 2, majority_G, -hit.sum(1), one_L, np.arange(groups), np.array(mix_L)
    )


def test_bars_are_as_long_as_what_is_said(tmp_path, figures):
    """'pos' is known from layer 1 on, 'dep' grows, 'luck' is at chance everywhere."""
    found = {
        'pos': {'a': {0: profile((0.5, 0.9, 0.9, 0.85), (0.1, 0.6, 0.2, 0.1))}},
        'dep': {'a': {0: profile((0.4, 0.5, 0.7, 0.9), (0, 0, 0.5, 0.5))}},
        'luck': {'a': {0: profile((0.3, 0.3, 0.3, 0.3), (0.25, 0.25, 0.25, 0.25))}},
    }
    places = probe.gravities(found)
    accuracy_L = found['dep']['a'][0].accuracy
    want = sum(n * (accuracy_L[n] - accuracy_L[n - 1]) for n in (1, 2, 3)) / (accuracy_L[3] - accuracy_L[0])
    assert places['dep, a'].expected == pytest.approx(want) and places['dep, a'].centre == pytest.approx(2.5)
    edge_bars.draw(places, tmp_path / 'edge')
    panels = np.array(figures[0].axes).reshape(3, 2)
    for (left, right), g in zip(panels, places.values(), strict=True):
        wide = [bar.get_width() for bar in left.patches]
        assert wide == pytest.approx([x for x in (g.expected, g.centre) if x == x])
        tall = sorted((bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in right.patches)
        np.testing.assert_allclose(tall, [(n, g.differential_L[n]) for n in (1, 2, 3)])
    assert 'within noise' in panels[2, 0].texts[0].get_text() and len(panels[2, 0].patches) == 1
    said = probe.edge_note('dep, a', places['dep, a'])
    assert f'expected layer {want:.2f} [' in said and said.endswith('centre of gravity 2.50')
    assert 'within noise' in probe.edge_note('luck, a', places['luck, a'])


def test_the_page_has_them(tmp_path):
    found = {'pos': {'a': {0: profile((0.5, 0.9, 0.9), (0.1, 0.6, 0.3))}}}
    arm = Arm('a', {0: types.SimpleNamespace(path=tmp_path / 'a', read=lambda file: {}, result={})})
    task = types.SimpleNamespace(name='pos', kind='syntax', label_N=np.zeros(3), split_N=np.arange(3))
    s = probe.Settings(tmp_path, 'edge', profiles.Pools(), Options())
    probe.write(s, 'Probes', [arm], [task], found, {'pos': {'a': profile((0.5,) * 3, (1 / 3,) * 3)}}, None)
    assert 'centre of gravity 1.20' in (tmp_path / 'table.md').read_text()
    assert (tmp_path / 'figures' / 'edge.png').exists() and 'Expected layers' in (tmp_path / 'report.html').read_text()


def test_the_mix_of_an_edge_probe_is_kept():
    """Only layer 2 of 3 knows the tag."""
    trees = treebank(120)
    task = annotated_tasks.make('pos', trees, np.repeat([0, 1, 2], 40))
    x_LND = np.random.default_rng(0).normal(size=(3, task.at.max() + 1, 8)).astype(np.float32)
    x_LND[2, task.at[:, 0], task.label_N] += 6
    options = Options(penalties=(1e-3,), seeds=2, rounds=10, learning_rate=2e-2)
    p = profiles._measure(Prepared(task, x_LND, task.at, np.ones(3)), 'edge', options, control=False)
    assert p.mix_L.shape == (3,) and p.mix_L.sum() == pytest.approx(1, abs=1e-5)
    g = edge.gravity(p.hit_LG[None], p.weight_G, p.dev_L, mix_L=p.mix_L)
    assert 1.2 < g.centre <= 2 and g.expected == pytest.approx(2, abs=0.2)
    assert np.isnan(edge.gravity(p.hit_LG[None], p.weight_G, p.dev_L).centre)


def test_expected_layers_are_over_all_runs_of_an_arm():
    """Of two runs that differ, the interval is wider than that of either, and the layer lies between theirs."""
    runs = {
        seed: profile(curve, (0.5, 0.5, 0, 0), seed)
        for seed, curve in enumerate([(0.4, 0.8, 0.8, 0.8), (0.4, 0.4, 0.4, 0.8)])
    }
    both = probe.gravities({'pos': {'a': runs}})['pos, a']
    first, second = (probe.gravities({'pos': {'a': {seed: p}}})['pos, a'] for seed, p in runs.items())
    assert first.expected < both.expected < second.expected
    assert both.high - both.low > max(x.high - x.low for x in (first, second))
