"""Metrics, and what each example contributes to them. scikit-learn's and scipy's where they have them."""

import math
import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from etils import epy

with epy.lazy_imports():  # else it were a third of the time in which any command starts
    from scipy import stats
    from sklearn import metrics as sk

Metric = Callable[[Sequence[Any], Sequence[Any]], float]  # (gold [N], predicted [N]) -> value


def accuracy(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    return float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)])) if len(gold) else math.nan


def matthews(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    """0 where one side has one class only."""
    with warnings.catch_warnings():  # sklearn warns of a single label
        warnings.simplefilter('ignore')
        return float(sk.matthews_corrcoef(list(map(str, gold)), list(map(str, predicted))))


def f1_of(positive: str) -> Metric:
    """F1 of the class `positive` (GLUE: paraphrase)."""
    hits = lambda labels: [label == positive for label in labels]
    return lambda gold, predicted: float(sk.f1_score(hits(gold), hits(predicted), zero_division=0.0))


def macro_f1(gold: Sequence[Any], predicted: Sequence[Any]) -> float:
    names = lambda labels: list(map(str, labels))
    return float(sk.f1_score(names(gold), names(predicted), average='macro', zero_division=0.0))


def _correlation(name: str) -> Metric:
    def metric(gold: Sequence[float], predicted: Sequence[float]) -> float:
        """0 where one side does not vary, as for a model that says the same of everything."""
        if len(gold) < 2 or np.ptp(gold) == 0 or np.ptp(predicted) == 0:
            return 0.0
        with warnings.catch_warnings():  # scipy warns of what is nearly constant
            warnings.simplefilter('ignore')
            value = float(getattr(stats, name)(np.asarray(gold, float), np.asarray(predicted, float)).statistic)
        return value if math.isfinite(value) else 0.0

    return metric


pearson, spearman = _correlation('pearsonr'), _correlation('spearmanr')


def entities(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(type, first, last) of a sentence's entities, as seqeval's default mode (conlleval's) reads BIO, IO and IOBES: an
    I- that follows no tag of its type begins one too, and a tag without a type has the type _."""
    found, start, kind, before = set(), 0, '', 'O'
    for i, tag in enumerate([*tags, 'O']):
        mark, name = (tag[0], tag[2:] or '_') if re.match('[BIES](-|$)', tag) else ('O', '')
        begins = mark in 'BS' or before in 'OES' or name != kind
        if kind and begins:
            found.add((kind, start, i - 1))
        if begins:
            kind, start = name, i
        before = mark
    return found


def entity_counts(gold: Sequence[str], predicted: Sequence[str]) -> tuple[int, int, int]:
    """Of a sentence: entities found, said, and there."""
    a, b = entities(gold), entities(predicted)
    return len(a & b), len(b), len(a)


def f1_of_counts(counts: np.ndarray) -> float:
    """[..., 3] summed: micro-averaged F1, 0 where nothing is there and nothing is said."""
    hits, said, there = np.asarray(counts).reshape(-1, 3).sum(0)
    return float(2 * hits / (said + there)) if said + there else 0.0


def by_group(groups: Sequence[Hashable], relevance: Sequence[float], scores: Sequence[float]) -> list[np.ndarray]:
    """Of each query, in order of appearance, the relevance of its passages from the highest score to the lowest.

    Of equal scores the less relevant comes first: a constant score earns nothing by the order of the file.
    """
    found = defaultdict(list)
    for group, gain, score in zip(groups, relevance, scores, strict=True):
        found[group].append((-float(score), float(gain)))
    return [np.array([gain for _, gain in sorted(items)]) for items in found.values()]


def reciprocal_rank(gains: np.ndarray) -> float:
    """1 / rank of the first relevant passage; 0 where there is none."""
    hits = np.flatnonzero(gains > 0)
    return 1.0 / (1 + int(hits[0])) if len(hits) else 0.0


def ndcg(gains: np.ndarray, k: int = 10) -> float:
    """Linear gains, log2 discounts (Järvelin & Kekäläinen 2002), as scikit-learn's; 0 without a relevant one."""
    discount = 1 / np.log2(np.arange(2, min(k, len(gains)) + 2))
    best = (np.sort(gains)[::-1][:k] * discount).sum()
    return float((gains[:k] * discount).sum() / best) if best > 0 else 0.0


def contributions(metric: Metric, gold: Sequence[Any], predicted: Sequence[Any]) -> np.ndarray:
    """[N] whose mean is the metric and whose spread is the metric's: jackknife pseudo-values (Tukey 1958).

    N m - (N - 1) m_without_i, shifted so that their mean is m exactly. For accuracy these are the hits themselves.
    """
    gold, predicted, N = list(gold), list(predicted), len(gold)
    if metric is accuracy:
        return np.array([a == b for a, b in zip(gold, predicted, strict=True)], float)
    whole = metric(gold, predicted)
    if N < 3:
        return np.full(N, whole)
    without: dict[Any, float] = {}
    left_out = np.zeros(N)
    for i, pair in enumerate(zip(gold, predicted, strict=True)):
        if pair not in without:  # what a metric of labels loses depends on the pair only
            without[pair] = metric(gold[:i] + gold[i + 1 :], predicted[:i] + predicted[i + 1 :])
        left_out[i] = without[pair]
    return _shifted(N * whole - (N - 1) * left_out, whole)


def count_contributions(counts: np.ndarray) -> np.ndarray:
    """The same for `f1_of_counts`, from each example's counts [N, 3]."""
    counts = np.asarray(counts, float)
    hits, said, there = (counts.sum(0) - counts).T
    N, whole = len(counts), f1_of_counts(counts)
    left_out = np.where(said + there > 0, 2 * hits / np.maximum(said + there, 1), 0.0)
    return _shifted(N * whole - (N - 1) * left_out, whole)


def _shifted(values: np.ndarray, mean: float) -> np.ndarray:
    return values - values.mean() + mean
