import numpy as np
import pytest
from scipy import stats as scipy_stats
from sklearn import metrics

from bertx.report import agreement

N = 60


def data(metric, runs=4, seed=0, seed_sd=0.2):
    """Predictions [runs, N] and labels [N], with ties."""
    rng = np.random.default_rng(seed)
    truth_N = np.random.default_rng(9).normal(size=N)
    guess_RN = truth_N + rng.normal(0, 1, (runs, N)) + rng.normal(0, seed_sd, (runs, 1)) * truth_N
    if metric in ('f1', 'matthews'):
        return (guess_RN > 0.3).astype(int), (truth_N > 0.5).astype(int)
    return np.round(guess_RN, 1), np.round(2 * truth_N) / 2


def reference(metric, predicted_N, label_N):
    return {
        'f1': lambda: metrics.f1_score(label_N, predicted_N),
        'matthews': lambda: metrics.matthews_corrcoef(label_N, predicted_N),
        'pearson': lambda: scipy_stats.pearsonr(predicted_N, label_N)[0],
        'spearman': lambda: scipy_stats.spearmanr(predicted_N, label_N)[0],
    }[metric]()


@pytest.mark.parametrize('metric', list(agreement.METRICS))
def test_scores_of_resampled_data(metric):
    predicted_RN, label_N = data(metric)
    rng = np.random.default_rng(1)
    count_BN = rng.multinomial(N, np.full(N, 1 / N), 20)
    found_BR = agreement.METRICS[metric](predicted_RN.astype(float), label_N.astype(float))(count_BN.astype(float))
    for count_N, found_R in zip(count_BN, found_BR, strict=True):
        drawn = np.repeat(np.arange(N), count_N)
        expected = [reference(metric, predicted_N[drawn], label_N[drawn]) for predicted_N in predicted_RN]
        assert found_R == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize('metric, paired', [('matthews', True), ('spearman', False)])
def test_difference_against_loops(metric, paired):
    arm_RN, label_N = data(metric, 4)
    base_RN, _ = data(metric, 4 if paired else 5, seed=3)
    rng, drawn_B = np.random.default_rng(4), []
    for _ in range(300):
        drawn, rows = rng.integers(N, size=N), rng.integers(len(arm_RN), size=len(arm_RN))
        other = rows if paired else rng.integers(len(base_RN), size=len(base_RN))
        score = lambda runs_RN, picked, at=drawn: np.mean(
            [reference(metric, runs_RN[i][at], label_N[at]) for i in picked]
        )
        drawn_B.append(score(arm_RN, rows) - score(base_RN, other))
    found = agreement.difference(metric, arm_RN, base_RN, label_N, paired=paired)
    each = [np.mean([reference(metric, p_N, label_N) for p_N in runs_RN]) for runs_RN in (arm_RN, base_RN)]
    assert found.value == pytest.approx(each[0] - each[1])
    assert (found.runs, found.examples) == (4, N)
    error = np.std(drawn_B)
    assert found.standard_error == pytest.approx(error, rel=0.15)
    expected = tuple(np.quantile(drawn_B, [0.025, 0.975]))
    assert (found.low, found.high) == pytest.approx(expected, abs=0.4 * error)
    assert found.p == pytest.approx(2 * min(np.mean(np.array(drawn_B) <= 0), np.mean(np.array(drawn_B) >= 0)), abs=0.15)


def test_mean():
    predicted_RN, label_N = data('pearson')
    found = agreement.mean('pearson', predicted_RN, label_N, null=0.0)
    assert found.low < found.value < found.high and found.p == 1 / 2000
    assert np.isnan(agreement.mean('pearson', predicted_RN, label_N).p)
    assert agreement.mean('pearson', predicted_RN, label_N, seed=1) != found
    # A shift and a scale change no correlation, and no rank.
    moved = agreement.mean('pearson', 1e6 + 3 * predicted_RN, label_N, null=0.0)
    assert (moved.low, moved.high) == pytest.approx((found.low, found.high))
    curved = agreement.mean('spearman', np.exp(predicted_RN), label_N)
    assert curved == agreement.mean('spearman', predicted_RN, label_N)


@pytest.mark.parametrize('metric', list(agreement.METRICS))
def test_constant_predictions_count_as_none(metric):
    _, label_N = data(metric)
    assert agreement.mean(metric, np.zeros((3, N)), label_N).value == 0


def test_bad_input():
    predicted_RN, label_N = data('f1')
    with pytest.raises(ValueError, match="one of .*'accuracy'"):
        agreement.mean('accuracy', predicted_RN, label_N)
    with pytest.raises(ValueError, match=r'\(4, 59\), \(60,\)'):
        agreement.mean('f1', predicted_RN[:, 1:], label_N)
    with pytest.raises(ValueError, match='classes 0 and 1'):
        agreement.mean('matthews', predicted_RN + 1, label_N)
    with pytest.raises(ValueError, match='not finite'):
        agreement.mean('pearson', predicted_RN * np.nan, label_N)
    with pytest.raises(ValueError, match='4 and 3 runs cannot be paired'):
        agreement.difference('f1', predicted_RN, predicted_RN[1:], label_N)
