import dataclasses

import numpy as np
import pytest
from analysis_cases import model, treebank
from sklearn.linear_model import LogisticRegression

from analysis import mdl
from analysis.probing import annotated_tasks, edge, engine, profiles
from analysis.probing.engine import Examples, Options, fit
from analysis.probing.probes import Classifier, Edge
from analysis.probing.profiles import Pools
from bertx.errors import BadInput

OPTIONS = Options(penalties=(1e-3, 1e-1), seeds=2, batch=64, steps=32, rounds=30)
K, D = 4, 12


def made(n, seed=0, layers=3):
    """Layers with less and less noise around the centres of 4 classes."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, K, n).astype(np.int32)
    centres = np.random.default_rng(9).normal(size=(K, D))
    x = np.stack([centres[label] + rng.normal(size=(n, D)) * noise for noise in (4.0, 2.0, 1.0)[:layers]])
    return x.astype(np.float32), label


@pytest.fixture(scope='module')
def problem():
    x, label = made(1600)
    part = lambda a, b: Examples(np.arange(a, b, dtype=np.int32)[:, None], label[a:b])
    return engine.standardised(x, np.arange(800)), label, part(0, 800), part(800, 1200), part(1200, 1600)


def test_a_linear_probe_is_scikit_learns(problem):
    x, label, train, dev, test = problem
    fitted = fit(Classifier(K), x, train, dev, OPTIONS)
    hit_LT = fitted.scores(x, test)['hit'].mean(-1)
    assert hit_LT.shape == (3, 2) and (np.diff(hit_LT.mean(1)) > 0.05).all()
    strict = fit(Classifier(K), x, train, dev, dataclasses.replace(OPTIONS, penalties=(0.1,), seeds=1))
    for layer in range(3):
        for found, hit in ((fitted, hit_LT[layer, 0]), (strict, strict.scores(x, test)['hit'][layer, 0].mean())):
            theirs = LogisticRegression(C=1 / (found.penalty_LT[layer, 0] * 800), max_iter=500)
            theirs.fit(x[layer, :800], label[:800])
            assert abs(theirs.score(x[layer, 1200:], label[1200:]) - hit) < 0.0151
        kernel = strict.params['out']['kernel'][layer, 0]  # dev stops it a little before it is there
        centred = kernel - kernel.mean(1, keepdims=True)
        assert np.corrcoef(centred.ravel(), theirs.coef_.T.ravel())[0, 1] > 0.98


def test_a_grid_is_its_fits_one_by_one(problem):
    x, _, train, dev, test = problem
    together = fit(Classifier(K), x, train, dev, OPTIONS)
    alone = fit(Classifier(K), x[1:2], train, dev, dataclasses.replace(OPTIONS, penalties=(0.1,), seeds=1))
    if together.penalty_LT[1, 0] == np.float64(0.1):
        np.testing.assert_allclose(alone.dev_LT[0, 0], together.dev_LT[1, 0], rtol=2e-3)
    assert alone.dev_LT[0, 0] >= together.dev_LT[1, 0] - 2e-3  # the better of two penalties is chosen


def test_spans_have_linear_probes_on_their_ends():
    rows = np.array([[[3, 4, 5]], [[7, -1, -1]]])
    task = dataclasses.replace(annotated_tasks.make('pos', treebank(6), np.arange(6) % 3), at=rows)
    p = profiles.Prepared(task, np.zeros((1, 9, 2)), rows, np.ones(1))
    np.testing.assert_array_equal(profiles.spanned(p, 'linear').rows, [[3, 5], [7, 7]])
    assert profiles.make_probe('linear', task) == Classifier(4, 2) and profiles.make_probe('edge', task) == Edge(4, 1)


def test_early_stopping_keeps_the_best_round():
    """Noise labels: a probe that went on would memorise the training set."""
    x, label = made(400, layers=1)
    noise = np.random.default_rng(3).integers(0, K, 400).astype(np.int32)
    at = np.arange(400, dtype=np.int32)[:, None]
    options = dataclasses.replace(OPTIONS, penalties=(0.0,), seeds=1, rounds=40)
    part = lambda a, b: Examples(at[a:b], noise[a:b])
    fitted = fit(Classifier(K, hidden=64), x, part(0, 200), part(200, 400), options)
    assert fitted.rounds < 40 and fitted.dev_LT[0, 0] < np.log(K) + 0.1
    assert fitted.scores(x, part(0, 200))['hit'].mean() < 0.9


def test_an_mlp_learns_what_a_line_cannot():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 900, 2)).astype(np.float32)
    label = (x[0].prod(-1) > 0).astype(np.int32)
    at = np.arange(900, dtype=np.int32)[:, None]
    parts = [Examples(at[a:b], label[a:b]) for a, b in ((0, 500), (500, 700), (700, 900))]
    options = dataclasses.replace(OPTIONS, learning_rate=1e-2, penalties=(1e-4,), seeds=1)
    hits = [fit(Classifier(2, hidden=h), x, *parts[:2], options).scores(x, parts[2])['hit'].mean() for h in (0, 32)]
    assert hits[0] < 0.65 and hits[1] > 0.9


def test_a_trial_sees_no_more_than_its_count(problem):
    x, label, train, dev, _ = problem
    poisoned = dataclasses.replace(train, target=np.where(np.arange(800) < 100, label[:800], 0).astype(np.int32))
    options = dataclasses.replace(OPTIONS, penalties=(1e-3,))
    clean, other = (fit(Classifier(K), x, t, dev, options, counts=np.array([100, 800])) for t in (train, poisoned))
    np.testing.assert_array_equal(clean.params['out']['kernel'][:, 0], other.params['out']['kernel'][:, 0])
    assert (other.dev_LT[:, 1] > clean.dev_LT[:, 1] + 0.05).all()


def test_edge_probes_mix_a_prefix_and_pool_spans(problem):
    """The label is in the middle word of three, at layer 2: a mix of fewer layers knows less."""
    x, label, *_ = problem
    at = np.stack([np.full(1200, 1590), np.arange(1200), np.full(1200, -1)], 1)[:, None].astype(np.int32)
    probe = Edge(K, size=16)
    part = lambda a, b: Examples(at[a:b], label[a:b])
    options = dataclasses.replace(OPTIONS, penalties=(1e-4,), seeds=1, learning_rate=1e-2)
    fitted = fit(probe, x, part(0, 800), part(800, 1000), options)
    hit_L = fitted.scores(x, part(1000, 1200))['hit'].mean((1, 2))
    assert hit_L[2] > hit_L[0] + 0.1
    mix = np.array([probe.mix({'mix': fitted.params['mix'][layer, 0]}, layer) for layer in range(3)])
    np.testing.assert_allclose(mix.sum(1), 1, rtol=1e-6)
    assert mix[0, 1:].sum() == 0 and mix[2].argmax() == 2
    assert edge.centre_of_gravity(mix[2]) > 1.05


def test_expected_layer_of_published_curves():
    """BERT-large POS and base POS: 3.39 and 1.76 (reference, from Tenney's printed scores)."""
    base = [88.4, 93.5, 95.0, 95.4, 96.0, 96.4, 96.4, 96.4, 96.6, 96.5, 96.6, 96.4, 96.5]
    assert edge.expected_layer(np.array(base)) == pytest.approx(1.76, abs=0.1)
    weight = np.full(200, 10.0)
    rng = np.random.default_rng(0)
    flat = rng.binomial(10, 0.5, (4, 200)).astype(float)
    assert np.isnan(edge.gravity(flat[None], weight, np.array([0.4, 0.3, 0.5, 0.6])).expected)
    rising = np.stack([rng.binomial(10, p, 200) for p in (0.5, 0.9, 0.9, 0.9)]).astype(float)
    found = edge.gravity(rising[None], weight, np.array([0.7, 0.3, 0.2, 0.4]))
    assert found.low < 1.05 < found.high + 0.1 and found.expected == pytest.approx(1, abs=0.1)


def test_mdl_is_in_bits():
    loss = np.full((1, 2, 100), np.log(2))  # one bit each
    code = mdl.code_lengths(loss, np.array([10, 50, 100]), 8)
    assert code.bits_L[0] == pytest.approx(10 * 3 + 90) and code.uniform == 300
    assert code.nats_compat_L[0] == pytest.approx(30 + 90 * np.log(2))
    loss[:, 0, 50:] = loss[:, 1, :50] = np.nan  # nobody codes what he has seen, or what another codes
    assert mdl.code_lengths(loss, np.array([10, 50, 100]), 8).bits_L[0] == pytest.approx(120)
    assert list(mdl.portions(20000, 17))[:4] == [20, 40, 80, 160]


def test_a_profile_has_its_controls(tmp_path, monkeypatch):
    task = annotated_tasks.make('pos', treebank(150), np.arange(150) % 3)
    found = profiles.measure(model(), task, Pools(), tmp_path, 'linear', OPTIONS)
    weight = found.weight_G.sum()
    assert weight == (task.split_N == 2).sum() and found.hit_LG.shape == (3, 50)
    assert found.accuracy[0] > 0.98  # a word of this treebank has one tag
    assert found.control_LG[0].sum() / weight > 0.9  # and few enough types to be memorised
    counts = np.bincount(task.label_N[task.split_N == 2])
    assert found.majority_G.sum() / weight == pytest.approx(
        counts[np.bincount(task.label_N[task.split_N == 0]).argmax()] / weight
    )
    monkeypatch.setattr(profiles, '_measure', None)
    again = profiles.measure(model(), task, Pools(), tmp_path, 'linear', OPTIONS)
    np.testing.assert_array_equal(again.hit_LG, found.hit_LG)
    monkeypatch.setattr(profiles.features, 'longest', lambda model: 20)
    with pytest.raises(TypeError):  # rows that are cut elsewhere are measured anew
        profiles.measure(model(), task, Pools(), tmp_path, 'linear', OPTIONS)
    with pytest.raises(BadInput, match='--word_pool'):
        Pools('middle').check()
    with pytest.raises(BadInput, match='penalties'):
        Options(penalties=()).check()


def test_description_lengths_tell_task_from_control(tmp_path):
    task = annotated_tasks.make('pos', treebank(300), np.arange(300) % 3)
    p = profiles.prepare(model(), task, Pools(), tmp_path)
    options = dataclasses.replace(OPTIONS, penalties=(1e-3,))
    own, noise = (
        mdl.online(p, 'linear', options),
        mdl.online(p, 'linear', options, np.random.default_rng(0).permutation(task.label_N)),
    )
    assert (own.compression_L > 2).all() and (noise.compression_L < 1.2).all()


def test_the_size_of_dev_is_no_matter_of_memory():
    x_LND = np.zeros((4, 3000, 32), np.float32)
    part = lambda n: Examples(np.zeros((n, 1, 8), np.int32), np.zeros(n, np.int32))

    def temporary(dev):
        trials = np.zeros(2, np.int32), np.full(2, 100), np.ones(3, np.float32)
        lowered = engine._fit.lower(Edge(K), OPTIONS, x_LND, part(100), part(dev), *trials)
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporary(2900) < 1.2 * temporary(100)


def test_dev_losses_are_means_over_all_of_dev(problem):
    """Of 400 examples in chunks of 64, the last one padded."""
    x, _, train, dev, _ = problem
    fitted = fit(Classifier(K), x, train, dev, OPTIONS)
    np.testing.assert_allclose(fitted.dev_LT, fitted.scores(x, dev)['loss'].mean(2), rtol=1e-5)


def test_labels_that_training_lacks_are_missed_on_test_and_say_nothing_on_dev():
    trees = treebank(90)
    trees[31].upos[0] = trees[65].upos[0] = 'X'
    task = annotated_tasks.make('pos', trees, np.repeat([0, 1, 2], 30))
    x_LND = np.eye(len(task.classes) + 1, dtype=np.float32)[None, task.label_N]
    p = profiles.Prepared(task, x_LND, np.arange(len(task.at))[:, None], np.ones(1))
    assert (p.examples(1).target >= 0).all() and (p.examples(2).target < 0).sum() == 1
    found = profiles._measure(p, 'linear', dataclasses.replace(OPTIONS, seeds=1), control=False)
    assert found.weight_G.sum() - found.hit_LG.sum() == 1 and np.isfinite(found.dev_L).all()


def test_tasks_about_sentences_have_no_control_task(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(profiles, 'prepare', lambda *arguments: None)
    monkeypatch.setattr(profiles, '_measure', lambda p, kind, options, control: asked.append(control) or 1 / 0)
    words = annotated_tasks.make('pos', treebank(90), np.repeat([0, 1, 2], 30))
    for task in (words, dataclasses.replace(words, unit='sentences')):
        with pytest.raises(ZeroDivisionError):
            profiles.measure(model(), task, Pools(), tmp_path, 'linear', OPTIONS)
    assert asked == [True, False]
