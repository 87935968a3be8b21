import dataclasses
import time

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bertx.report import resample, stats

ONES = np.ones


def cell(runs, examples, seed=0, seed_sd=0.02, center=0.8):
    """Metric sums of runs that differ and share hard examples, and uneven weights."""
    rng = np.random.default_rng(seed)
    weight_N = rng.integers(1, 30, examples).astype(float)
    seed_R1 = rng.normal(0, seed_sd, (runs, 1))
    rate_RN = center + seed_R1 + rng.normal(0, 0.1, examples) + rng.normal(0, 0.1, (runs, examples))
    return rate_RN * weight_N, weight_N


def loops(sum_RN, weight_N):
    """One arm by textbook sums of squares, no bound: value, variance, df, (MS_seed, MS_example, MS_rest), values."""
    R, N = len(sum_RN), len(weight_N)
    total, weight = sum(sum(row) for row in sum_RN) / R, sum(weight_N)
    ratio = total / weight
    z = [[(sum_RN[i][j] - ratio * weight_N[j]) / (weight / N) + ratio for j in range(N)] for i in range(R)]
    grand = sum(map(sum, z)) / (R * N)
    rows = [sum(row) / N for row in z]
    columns = [sum(z[i][j] for i in range(R)) / R for j in range(N)]
    ss_seed = N * sum((row - grand) ** 2 for row in rows)
    ss_example = R * sum((column - grand) ** 2 for column in columns)
    ss_all = sum((z[i][j] - grand) ** 2 for i in range(R) for j in range(N))
    squares = ss_seed / (R - 1), ss_example / (N - 1), (ss_all - ss_seed - ss_example) / ((R - 1) * (N - 1))
    seed, example, rest = squares
    df = (seed + example - rest) ** 2 / (seed**2 / (R - 1) + example**2 / (N - 1) + rest**2 / ((R - 1) * (N - 1)))
    return grand, (seed + example - rest) / (R * N), df, squares, z


def smooth(rng, runs, examples, seed_sd):
    """Scores [runs, examples] of true mean 0."""
    return rng.normal(0, seed_sd, (runs, 1)) + rng.normal(0, 0.1, examples) + rng.normal(0, 0.1, (runs, examples))


def easy(rng, examples):
    return np.where(rng.random(examples) < 0.75, 0.88, 0.36)


def correct(rng, runs, examples, seed_sd, easy_N=None):
    """Right or wrong, less the true accuracy of .75: three examples in four are easy, so the runs agree on many."""
    easy_N = easy(rng, examples) if easy_N is None else easy_N
    return (rng.random((runs, examples)) < easy_N + rng.uniform(-1, 1, (runs, 1)) * 3**0.5 * seed_sd) - 0.75


def coverage(data, method, runs, seed_sd, simulations, draws=500):
    """How often the 95 % interval of runs on 500 examples holds the true mean."""
    rng = np.random.default_rng([runs, int(1000 * seed_sd)])
    hits = 0
    for _ in range(simulations):
        found = stats.mean(data(rng, runs, 500, seed_sd), ONES(500), method=method, draws=draws)
        hits += found.low <= 0 <= found.high
    return hits / simulations


def two_arms(data, rng, runs, seed_sd, paired):
    """True difference 0, 500 examples, some of them harder for one arm; paired ones share part of the seed."""
    if data is correct:  # every second example as easy for both
        shared_N = easy(rng, 500)
        own = [np.where(np.arange(500) % 2, shared_N, easy(rng, 500)) for _ in range(2)]
        return [correct(rng, runs, 500, seed_sd, easy_N) for easy_N in own]
    shared_RN = rng.normal(0, 0.1, 500) + paired * rng.normal(0, seed_sd, (runs, 1))
    return [shared_RN + smooth(rng, runs, 500, seed_sd) for _ in range(2)]


def test_two_way_by_hand():
    # Rows 1 2 3 and 2 4 6: MS_seed 6, MS_example 4.5, MS_rest 0.5; variance (6 + 4.5 - 0.5) / 6.
    found = stats.mean([[1, 2, 3], [2, 4, 6]], ONES(3))
    assert found.value == 3
    assert found.standard_error**2 == pytest.approx(10 / 6)
    assert found.df == pytest.approx(100 / (36 + 4.5**2 / 2 + 0.5**2 / 2))
    assert (found.runs, found.examples, found.method) == (2, 3, 'two-way t')
    assert np.isnan(found.p)


def test_two_way_against_loops():
    for runs, examples, seed in [(2, 7, 0), (3, 40, 1), (9, 25, 2)]:
        sum_RN, weight_N = cell(runs, examples, seed, seed_sd=0.1)
        value, variance, df, _, _ = loops(sum_RN, weight_N)
        found = stats.mean(sum_RN, weight_N, null=0.7, confidence=0.9)
        expected = scipy_stats.t(df, value, variance**0.5)
        assert (found.value, found.standard_error, found.df) == pytest.approx((value, variance**0.5, df))
        assert (found.low, found.high) == pytest.approx(expected.interval(0.9))
        assert found.p == pytest.approx(2 * min(expected.cdf(0.7), expected.sf(0.7)))


def test_negative_components_count_as_zero():
    # Rows with equal means: MS_seed 0, MS_example 0 and MS_rest 2, whose plain sum would be a variance below 0.
    found = stats.mean([[1, 2, 3], [3, 2, 1]], ONES(3))
    assert found.standard_error**2 == pytest.approx(2 / 6)
    # MS_seed 0, MS_example 12.5 and MS_rest 0.5.
    found = stats.mean([[1, 2, 6, 7], [2, 1, 6, 7]], ONES(4))
    columns = np.var([1.5, 1.5, 6, 7], ddof=1)
    assert found.standard_error**2 == pytest.approx(columns / 4)


def test_only_seeds_vary_is_the_t_test_over_seeds():
    score_R, base_R = np.array([0.81, 0.84, 0.8, 0.86]), np.array([0.79, 0.83, 0.8, 0.81])
    weight_N = np.array([1.0, 4, 2, 9, 3])
    sum_RN, base_RN = score_R[:, None] * ONES(5), base_R[:, None] * ONES(5)
    one = scipy_stats.ttest_1samp(score_R, 0.8)
    found = stats.mean(sum_RN, ONES(5), null=0.8)
    assert (found.p, found.df) == pytest.approx((one.pvalue, 3))
    assert (found.low, found.high) == pytest.approx(tuple(one.confidence_interval()))
    paired = stats.difference(sum_RN, base_RN, ONES(5))
    assert paired.p == pytest.approx(scipy_stats.ttest_rel(score_R, base_R).pvalue)
    assert paired.value == pytest.approx((score_R - base_R).mean())
    welch = scipy_stats.ttest_ind(score_R, base_R[:3], equal_var=False)
    free = stats.difference(sum_RN, base_RN[:3], ONES(5), paired=False)
    assert (free.p, free.df, free.runs) == pytest.approx((welch.pvalue, welch.df, 3))
    # With weights a rate that is the same everywhere still differs by example from the grand ratio: no longer exact.
    assert stats.mean(score_R[:, None] * weight_N, weight_N).value == pytest.approx(score_R.mean())


def test_only_examples_vary_is_the_t_test_over_examples():
    a_N, b_N = np.random.default_rng(0).normal(size=(2, 12))
    test = scipy_stats.ttest_rel(a_N, b_N)
    for found, method in [
        (stats.difference(np.tile(a_N, (3, 1)), np.tile(b_N, (3, 1)), ONES(12)), 'two-way t'),
        (stats.difference(np.tile(a_N, (3, 1)), np.tile(b_N, (4, 1)), ONES(12), paired=False), 'two-way t'),
        (stats.difference(a_N[None], b_N[None], ONES(12)), 'one run'),
    ]:
        assert (found.p, found.df, found.method) == (pytest.approx(test.pvalue), pytest.approx(11), method)
        assert (found.low, found.high) == pytest.approx(tuple(test.confidence_interval()))


def test_ratio():
    sum_RN, weight_N = cell(3, 200)
    found = stats.mean(sum_RN, weight_N)
    score_R = sum_RN.sum(axis=1) / weight_N.sum()
    assert found.value == pytest.approx(score_R.mean())
    # The jackknife over examples knows nothing of linearised ratios.
    one = stats.mean(sum_RN[:1], weight_N)
    left_N = (sum_RN[0].sum() - sum_RN[0]) / (weight_N.sum() - weight_N)
    assert one.standard_error == pytest.approx((199**2 / 200 * left_N.var(ddof=1)) ** 0.5, rel=0.02)
    scaled = stats.mean(sum_RN * 7, weight_N * 7)
    assert dataclasses.astuple(scaled) == pytest.approx(dataclasses.astuple(found), nan_ok=True)


def test_weights():
    sum_RN, weight_N = cell(3, 20)
    found = stats.mean(sum_RN, weight_N, null=0.7)
    assert stats.mean(sum_RN, np.tile(weight_N, (3, 1)), null=0.7) == found
    # An example that weighs nothing (no such pair in this row) is no example.
    assert stats.mean(np.pad(sum_RN, ((0, 0), (0, 4))), np.pad(weight_N, (0, 4)), null=0.7) == found
    uneven_RN = np.tile(weight_N, (3, 1))
    uneven_RN[1, 4] += 1
    with pytest.raises(ValueError, match='weights differ between runs'):
        stats.mean(sum_RN, uneven_RN)
    with pytest.raises(ValueError, match='not negative'):
        stats.mean(sum_RN, -weight_N)
    with pytest.raises(ValueError, match='weight 0 has a sum'):
        stats.mean(sum_RN, weight_N * (weight_N != weight_N[0]))


def test_bad_input():
    sum_RN, weight_N = cell(4, 20)
    with pytest.raises(ValueError, match=r'\[runs, 19 examples\].*\(4, 20\)'):
        stats.mean(sum_RN, weight_N[1:])
    with pytest.raises(ValueError, match='runs'):
        stats.mean(sum_RN[:0], weight_N)
    with pytest.raises(ValueError, match='4 and 3 runs cannot be paired'):
        stats.difference(sum_RN, sum_RN[1:], weight_N)
    with pytest.raises(ValueError, match="'bootstrap'"):
        stats.mean(sum_RN, weight_N, method='bootstrap')
    with pytest.raises(ValueError, match='confidence'):
        stats.mean(sum_RN, weight_N, confidence=95)
    sum_RN[2, 3] = np.nan
    with pytest.raises(ValueError, match=r'runs \[2\] are not finite'):
        stats.mean(sum_RN, weight_N)


def test_too_little_data():
    for sum_RN in (ONES((3, 1)) / 2, ONES((1, 1)) / 2, ONES((12, 1)) / 2):
        found = stats.difference(sum_RN, 0 * sum_RN, [2])
        assert (found.value, found.method) == (0.25, 'too few examples')
        assert np.isnan([found.low, found.high, found.p, found.standard_error]).all()
    none = stats.mean(np.zeros((3, 5)), np.zeros(5))
    assert none.examples == 0
    assert np.isnan([none.value, none.low]).all()
    assert stats.mean([[1, 0], [1, 1]], [1, 1]).df > 0


@pytest.mark.parametrize('runs', [1, 3, 12])
def test_no_spread(runs):
    weight_N = np.array([1.0, 3, 7])
    sum_RN = np.full((runs, 1), 0.1) * weight_N
    found = stats.mean(sum_RN, weight_N, null=0.1)
    assert (found.low, found.high, found.p) == pytest.approx((0.1, 0.1, 1))
    assert stats.mean(sum_RN, weight_N, null=0.2).p == 0
    assert stats.difference(sum_RN, sum_RN, weight_N).p == 1
    assert stats.difference(sum_RN, sum_RN, weight_N, paired=False).p == 1


def test_pairing_removes_what_seeds_share():
    rng = np.random.default_rng(3)
    base_RN, weight_N = cell(12, 100, seed_sd=0.2)
    arm_RN = base_RN + (0.02 + rng.normal(0, 0.01, base_RN.shape)) * weight_N
    for method in ('two-way t', 'multi-bootstrap'):
        paired = stats.difference(arm_RN, base_RN, weight_N, method=method)
        free = stats.difference(arm_RN, base_RN, weight_N, paired=False, method=method)
        assert paired.value == pytest.approx(free.value)
        assert paired.low > 0.015 and paired.p <= 1 / 2000
        assert free.low < 0 < free.high and free.p > 0.3
        assert free.standard_error > 20 * paired.standard_error


def test_unpaired_against_loops():
    (arm_RN, weight_N), base_RN = cell(4, 30, seed_sd=0.1), cell(6, 30, seed_sd=0.1)[0]
    found = stats.difference(arm_RN, base_RN, weight_N, paired=False)
    parts, columns = [], []
    for sum_RN in (arm_RN, base_RN):
        _, _, _, (seed, _, rest), z = loops(sum_RN, weight_N)
        parts.append((seed - rest) / (len(sum_RN) * 30))
        columns.append(np.array([sum(column) / len(sum_RN) for column in zip(*z, strict=True)]))
    parts.append((columns[0] - columns[1]).var(ddof=1) / 30)
    assert min(parts) > 0 and found.standard_error == pytest.approx(sum(parts) ** 0.5)


def test_unpaired_variance_is_that_of_repeated_experiments():
    # Examples in part common to the arms (sd 1) and in part not (sd .7), seeds of sd .5 and .6, the rest of sd 1.
    rng = np.random.default_rng(4)
    N, simulations = 30, 2000
    value, variance = np.empty((2, simulations))
    for k in range(simulations):
        example_N, own_N = rng.normal(size=(2, N))
        arm_RN = example_N + 0.7 * own_N + 0.5 * rng.normal(size=(4, 1)) + rng.normal(size=(4, N))
        base_RN = example_N + 0.6 * rng.normal(size=(7, 1)) + rng.normal(size=(7, N))
        found = stats.difference(arm_RN, base_RN, ONES(N), paired=False)
        value[k], variance[k] = found.value, found.standard_error**2
    truth = 0.25 / 4 + 0.36 / 7 + 0.49 / N + (1 / 4 + 1 / 7) / N
    assert value.var() == pytest.approx(truth, rel=0.08)
    assert variance.mean() == pytest.approx(truth, rel=0.05)


def test_bootstrap_against_loops():
    sum_RN, weight_N = cell(10, 50, seed_sd=0.05)
    base_RN = cell(12, 50, seed=1, center=0.78)[0] / cell(12, 50, seed=1)[1] * weight_N
    rng = np.random.default_rng(0)
    mean_B, free_B = [], []
    for _ in range(4000):
        examples = rng.integers(50, size=50)
        score = lambda sums, rows, examples=examples: np.mean(
            [sums[row, examples].sum() / weight_N[examples].sum() for row in rows]
        )
        mean_B.append(score(sum_RN, rng.integers(10, size=10)))
        free_B.append(mean_B[-1] - score(base_RN, rng.integers(12, size=12)))
    for found, drawn_B in [
        (stats.mean(sum_RN, weight_N, draws=4000), mean_B),
        (stats.difference(sum_RN, base_RN, weight_N, paired=False, draws=4000), free_B),
    ]:
        assert found.method == 'multi-bootstrap'
        assert found.drawn_B.std() == pytest.approx(np.std(drawn_B), rel=0.05)
        tolerance = 0.15 * np.std(drawn_B)
        assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn_B, [0.025, 0.975])), abs=tolerance)


def test_paired_bootstrap_against_loops():
    base_RN, weight_N = cell(10, 50, seed_sd=0.05)
    arm_RN = base_RN + np.random.default_rng(2).normal(0.01, 0.03, base_RN.shape) * weight_N
    rng, drawn_B = np.random.default_rng(0), []
    for _ in range(4000):
        rows, examples = rng.integers(10, size=10), rng.integers(50, size=50)
        of_rows = [(arm_RN - base_RN)[row, examples].sum() / weight_N[examples].sum() for row in rows]
        drawn_B.append(np.mean(of_rows))
    found = stats.difference(arm_RN, base_RN, weight_N, draws=4000)
    assert found.drawn_B.std() == pytest.approx(np.std(drawn_B), rel=0.05)
    tolerance = 0.15 * np.std(drawn_B)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn_B, [0.025, 0.975])), abs=tolerance)


def test_a_thousand_draws_of_ten_runs_and_ten_thousand_examples_take_less_than_a_second():
    sum_RN, weight_N = cell(10, 10_000)
    took = []
    for _ in range(3):
        begun = time.perf_counter()
        stats.mean(sum_RN, weight_N, draws=1000)
        took.append(time.perf_counter() - begun)
    print(f'{min(took):.2f} s')
    assert min(took) < 1


def test_kept_draws_are_the_bootstrap_whatever_gave_the_interval():
    arm_RN, weight_N = cell(4, 50)
    base_RN = cell(4, 50, seed=1)[0] / cell(4, 50, seed=1)[1] * weight_N
    few, kept = (stats.difference(arm_RN, base_RN, weight_N, keep_draws=keep) for keep in (False, True))
    assert few == kept and few.drawn_B is None
    boot = stats.difference(arm_RN, base_RN, weight_N, method='multi-bootstrap')
    np.testing.assert_array_equal(kept.drawn_B, boot.drawn_B)


def test_bootstrap_draws(monkeypatch):
    sum_RN, weight_N = cell(10, 50)
    found = stats.mean(sum_RN, weight_N, null=0.5)
    assert stats.mean(sum_RN, weight_N, null=0.5) == found
    assert stats.mean(sum_RN, weight_N, null=0.5, seed=1) != found
    analytic = stats.mean(sum_RN, weight_N, null=0.5, method='two-way t')
    assert analytic == dataclasses.replace(found, low=analytic.low, high=analytic.high, method='two-way t')
    seeds_RN = np.tile(sum_RN[:, :1] / weight_N[0], (1, 50)) * weight_N
    whole = stats.mean(seeds_RN, weight_N)
    monkeypatch.setattr(resample, 'CHUNK', 150)
    pieces = stats.mean(seeds_RN, weight_N)  # where only seeds count, whose draws do not depend on the chunks
    np.testing.assert_allclose(pieces.drawn_B, whole.drawn_B)
    assert stats.mean(sum_RN[:9], weight_N).method == 'two-way t'


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04 times 4 3 2 1 is .02 .03 .06 .04; the last is lifted to .06.
    assert stats.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert stats.holm([0.6, np.nan, 0.02, 0.7]) == pytest.approx([1, np.nan, 0.06, 1], nan_ok=True)
    assert stats.holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])
    assert stats.holm([]).size == 0
    with pytest.raises(ValueError, match=r'\[0, 1\]'):
        stats.holm([0.5, 1.5])


# Of 95 % intervals. A t over seeds alone covers .82 with 5 seeds of sd .01, the bootstrap .81 with 3 of sd .03.
@pytest.mark.parametrize(
    'data, runs, seed_sd, expected',
    [
        (smooth, 3, 0.03, 0.94),
        (smooth, 3, 0.01, 0.95),
        (smooth, 5, 0.03, 0.95),
        (smooth, 5, 0.01, 0.95),
        (correct, 3, 0.03, 0.93),
        (correct, 5, 0.01, 0.95),
    ],
)
def test_coverage(data, runs, seed_sd, expected):
    simulations = 1000
    bound = 0.005 + 3 * (expected * (1 - expected) / simulations) ** 0.5
    assert coverage(data, 'two-way t', runs, seed_sd, simulations) == pytest.approx(expected, abs=bound)


def test_bootstrap_covers_too_little_at_three_seeds():
    assert coverage(smooth, 'multi-bootstrap', 3, 0.03, 200, draws=300) < 0.88


@pytest.mark.parametrize('paired', [True, False])
def test_no_more_false_alarms_than_promised(paired):
    rng = np.random.default_rng(5)
    alarms = []
    for _ in range(800):
        shared_R1 = rng.normal(0, 0.03, (5, 1))
        arm_RN, base_RN = (shared_R1 + smooth(rng, 5, 200, 0.02) for _ in range(2))
        alarms.append(stats.difference(arm_RN, base_RN, ONES(200), paired=paired).p < 0.05)
    # To take paired seeds for independent ones is only cautious.
    low, high = (0.03, 0.075) if paired else (0, 0.03)
    assert low <= np.mean(alarms) < high


@pytest.mark.slow
@pytest.mark.parametrize('data', [smooth, correct])
@pytest.mark.parametrize('runs', [3, 5, 10, 20])
def test_coverage_of_both_methods(data, runs):
    for seed_sd in (0.03, 0.01):
        t = coverage(data, 'two-way t', runs, seed_sd, 3000)
        bootstrap = coverage(data, 'multi-bootstrap', runs, seed_sd, 500)
        print(f'{data.__name__}, {runs} runs, seed sd {seed_sd}: two-way t {t:.3f}, multi-bootstrap {bootstrap:.3f}')
        assert 0.91 < t < 0.98
        if runs >= stats.MANY_RUNS:
            assert bootstrap > 0.88


@pytest.mark.slow
@pytest.mark.parametrize('paired', [True, False])
@pytest.mark.parametrize('data', [smooth, correct])
@pytest.mark.parametrize('runs', [3, 5, 10, 20])
def test_coverage_of_a_difference(data, runs, paired):
    for seed_sd in (0.03, 0.01):
        rng, hits, simulations = np.random.default_rng([runs, int(1000 * seed_sd)]), 0, 4000
        for _ in range(simulations):
            arm_RN, base_RN = two_arms(data, rng, runs, seed_sd, paired)
            found = stats.difference(arm_RN, base_RN, ONES(500), paired=paired, draws=500)
            hits += found.low <= 0 <= found.high
        kind = 'paired' if paired else 'unpaired'
        print(f'{data.__name__}, {kind}, {runs} runs, seed sd {seed_sd}: {found.method} {hits / simulations:.3f}')
        assert hits / simulations >= 0.91
