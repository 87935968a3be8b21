"""Metrics equal the official definitions and the libraries, on random cases and odd ones."""

import collections
import math
import re
import string

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from bertx.tasks import metrics, squad

seqeval = pytest.importorskip('seqeval.metrics')

TAGS = st.sampled_from(['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC', 'I-a-b', 'E-PER', 'S-PER', 'B', 'I', 'E', 'S', 'B-'])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=4)


@settings(deadline=None, max_examples=150)
@given(SENTENCES)
@example([[('B-PER', 'I-PER'), ('I-LOC', 'I-LOC'), ('I-PER', 'B-PER')]])
@example([[('O', 'O')]])
@example([[('B', 'I'), ('I', 'I'), ('S-PER', 'E-PER'), ('E-PER', 'I-PER')]])
def test_entity_f1_is_seqevals(pairs):
    gold, said = ([[pair[i] for pair in sentence] for sentence in pairs] for i in (0, 1))
    theirs = seqeval.f1_score(gold, said, zero_division=0)
    counts = np.array([metrics.entity_counts(a, b) for a, b in zip(gold, said, strict=True)])
    assert metrics.f1_of_counts(counts) == pytest.approx(float(theirs), abs=1e-12)
    assert metrics.count_contributions(counts).mean() == pytest.approx(float(theirs), abs=1e-9)


# The definitions of the official evaluation scripts, written down again.
def official_normalize(text):
    text = ''.join(c for c in text.lower() if c not in set(string.punctuation))
    return ' '.join(re.sub(r'\b(a|an|the)\b', ' ', text).split())


def official_f1(gold, said):
    """Of 2.0's script; 1.1's differs where both are empty only, which no answer of 1.1 is."""
    gold, said = official_normalize(gold).split(), official_normalize(said).split()
    if len(gold) == 0 or len(said) == 0:
        return int(gold == said)
    num_same = sum((collections.Counter(gold) & collections.Counter(said)).values())
    if num_same == 0:
        return 0
    precision, recall = num_same / len(said), num_same / len(gold)
    return 2 * precision * recall / (precision + recall)


ANSWER = st.text(st.sampled_from(list('aAn the.\'-"é1\u2014\tx')), max_size=12)


@settings(deadline=None, max_examples=300)
@given(st.lists(ANSWER, max_size=3), ANSWER)
@example(['The'], 'the')
@example([], '')
@example(["the Bell's  theorem"], 'Bells theorem')
def test_answers_are_scored_by_the_official_definitions(golds, said):
    left = [gold for gold in golds if official_normalize(gold)] or ['']
    exact = max(int(official_normalize(gold) == official_normalize(said)) for gold in left)
    assert squad.best(golds, said) == (exact, pytest.approx(max(official_f1(gold, said) for gold in left)))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(0, 1), st.booleans()), min_size=1, max_size=8))
def test_the_threshold_is_the_best_there_is(questions):
    null, scores, answerable = map(list, zip(*questions, strict=True))
    # an answer to a question that has none earns nothing
    scores = [score if has else 0.0 for score, has in zip(scores, answerable, strict=True)]
    earned = lambda t: sum(
        (s if n <= t else 0.0) if has else float(n > t) for n, s, has in zip(null, scores, answerable, strict=True)
    )
    best = max(earned(t) for t in (-9, *null))
    assert earned(squad.best_threshold(null, scores, answerable)) == pytest.approx(best)


LABELS = st.lists(st.tuples(st.sampled_from('abc'), st.sampled_from('abcd')), min_size=1, max_size=20)


@settings(deadline=None, max_examples=60)
@given(LABELS)
@example([('a', 'a')] * 5)
def test_label_metrics_are_scikit_learns(pairs):
    gold, said = map(list, zip(*pairs, strict=True))
    assert metrics.accuracy(gold, said) == pytest.approx(sk.accuracy_score(gold, said))
    assert metrics.macro_f1(gold, said) == pytest.approx(sk.f1_score(gold, said, average='macro', zero_division=0.0))
    a = sk.f1_score(gold, said, labels=['a'], average='micro', zero_division=0.0)
    assert metrics.f1_of('a')(gold, said) == pytest.approx(a)
    names = {'a': 0, 'b': 1, 'c': 2, 'd': 3}
    table = np.zeros((4, 4))
    np.add.at(table, ([names[x] for x in gold], [names[x] for x in said]), 1)
    n, t, p = table.sum(), table.sum(1), table.sum(0)
    below = math.sqrt((n**2 - (p**2).sum()) * (n**2 - (t**2).sum()))  # Gorodkin 2004
    expected = (np.trace(table) * n - t @ p) / below if below else 0.0
    assert metrics.matthews(gold, said) == pytest.approx(expected)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), min_size=1, max_size=20))
@example([(1, 2), (1, 3)])
def test_correlations_are_scipys(pairs):
    gold, said = map(list, zip(*pairs, strict=True))
    flat = len(set(gold)) < 2 or len(set(said)) < 2
    for ours, theirs in ((metrics.pearson, stats.pearsonr), (metrics.spearman, stats.spearmanr)):
        assert ours(gold, said) == pytest.approx(0.0 if flat else theirs(gold, said).statistic)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1, 1)), min_size=2, max_size=15, unique_by=lambda x: x[1]))
def test_ranking(passages):
    gain, score = map(np.array, zip(*passages, strict=True))
    [ranked] = metrics.by_group(['q'] * len(gain), gain, score)
    expected = sk.ndcg_score(gain[None], score[None], k=10) if gain.any() else 0.0
    assert metrics.ndcg(ranked) == pytest.approx(expected)
    order = list(np.argsort(-score, kind='stable'))
    first = [rank for rank, i in enumerate(order, 1) if gain[i] > 0]
    assert metrics.reciprocal_rank(ranked) == (1 / first[0] if first else 0.0)


def test_a_constant_score_is_the_worst_order():
    ranked = metrics.by_group('aab', [1, 0, 1], [0.5, 0.5, 0.5])
    assert [list(gains) for gains in ranked] == [[0, 1], [1]]


def test_contributions_have_the_metrics_mean_and_spread():
    rng = np.random.default_rng(0)
    gold = rng.choice(list('ab'), 400)
    said = np.where(rng.random(400) < 0.8, gold, rng.choice(list('ab'), 400))
    hits = metrics.contributions(metrics.accuracy, gold, said)
    np.testing.assert_allclose(hits, gold == said, atol=1e-9)
    values = metrics.contributions(metrics.matthews, gold, said)
    assert values.mean() == pytest.approx(metrics.matthews(gold, said))
    resampled = [rng.integers(400, size=400) for _ in range(300)]
    spread = np.std([metrics.matthews(gold[i], said[i]) for i in resampled])
    assert values.std(ddof=1) / 20 == pytest.approx(spread, rel=0.15)
