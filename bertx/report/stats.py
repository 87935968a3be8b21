"""Intervals and tests for a table cell, over both the seeds and the test examples.

A cell holds `sum_RN`, a metric's sum for each of R runs (seeds) on each of N examples, and `weight_N`, the examples'
weights (masked tokens; 1 for pair labels), the same in every run. A run's score is sum_j s_ij / sum_j w_j, the cell's
value the mean over the runs. Seeds and examples are both samples: an interval over seeds alone covers too little on a
small test set, and less the more seeds there are, since their common examples do not average out.

Intervals by two-way random effects with Satterthwaite's degrees of freedom below `MANY_RUNS` seeds, and from there on
by the multi-bootstrap (Sellam et al. 2022, The MultiBERTs, arXiv:2106.16163), which covers too little with few seeds.
Its tails stay too light for correction (measured with 8 true nulls and 10 seeds that matter: Holm at .05 rejected one
in .10 of the simulations, in .05 by the two-way t), so p is the two-way model's everywhere.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from bertx.report import resample

MANY_RUNS = 10
METHODS = ('auto', 'two-way t', 'multi-bootstrap')
ROUNDING = 1e-12  # relative to the largest value: a spread below it is none


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean or a difference, in the metric's unit. NaN where the data cannot tell."""

    value: float
    low: float  # the confidence interval
    high: float
    runs: int  # of the smaller arm
    examples: int  # those with a weight above 0
    method: str  # a name of METHODS, 'one run' (over examples only: says nothing of seeds) or 'too few examples'
    standard_error: float  # this, df and p: by the two-way model, whatever gave the interval
    df: float  # Satterthwaite's; NaN without spread
    p: float  # two-sided, against the null
    # With S seeds an arm the squared standard error would be seed_variance / S + example_variance.
    seed_variance: float = np.nan
    example_variance: float = np.nan
    drawn_B: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)  # the multi-bootstrap's


def mean(
    sum_RN: ArrayLike,
    weight_N: ArrayLike,
    null: float | None = None,
    confidence: float = 0.95,
    *,
    method: str = 'auto',
    draws: int = 2000,
    seed: int = 0,
) -> Estimate:
    """The mean score of R runs on N examples, its interval, and p against `null` (NaN without one).

    weight_N may also be [R, N] with equal rows. `method` overrides the choice by the number of runs; `draws` and `seed`
    are the multi-bootstrap's, whose time grows as draws * N (2000 draws of 10,000 examples: under a second).
    Raises ValueError on shapes that do not match, values that are not finite, and weights that differ between the runs.
    """
    sums, weights_N = _checked([sum_RN], weight_N)
    return _estimate(sums, weights_N, np.nan if null is None else null, confidence, method, draws, seed)


def difference(
    sum_RN: ArrayLike,
    baseline_RN: ArrayLike,
    weight_N: ArrayLike,
    paired: bool = True,
    null: float = 0.0,
    confidence: float = 0.95,
    *,
    method: str = 'auto',
    draws: int = 2000,
    seed: int = 0,
    keep_draws: bool = False,
) -> Estimate:
    """An arm's mean score less the baseline's on the same examples, in the same order; the rest as in `mean`.

    paired: row i of both arms shares its seed (initialisation and data order). Otherwise the arms have independent
    seeds, not necessarily as many. keep_draws: the multi-bootstrap's draws, whatever the method, for `max_t`. Raises
    ValueError as `mean` does.
    """
    (arm_RN, base_RN), weights_N = _checked([sum_RN, baseline_RN], weight_N)
    if not paired:
        return _estimate([arm_RN, -base_RN], weights_N, null, confidence, method, draws, seed, keep_draws)
    if len(arm_RN) != len(base_RN):
        raise ValueError(f'arms of {len(arm_RN)} and {len(base_RN)} runs cannot be paired by seed; paired=False?')
    # The weights are common, so the difference of two ratios is the ratio of the differences.
    return _estimate([arm_RN - base_RN], weights_N, null, confidence, method, draws, seed, keep_draws)


def holm(p_values: ArrayLike) -> np.ndarray:
    """Holm's (1979) step-down p-values of one family of tests, in the given order. NaN (not tested) is left out."""
    p = np.array(p_values, float)
    tested = np.flatnonzero(~np.isnan(p))
    if ((p[tested] < 0) | (p[tested] > 1)).any():
        raise ValueError(f'p-values lie in [0, 1], not {p}')
    tested = tested[np.argsort(p[tested])]
    p[tested] = np.minimum(1, np.maximum.accumulate(p[tested] * np.arange(len(tested), 0, -1)))
    return p


def _checked(arms: Sequence[ArrayLike], weight_N: ArrayLike) -> tuple[list[np.ndarray], np.ndarray]:
    """The arms' sums and the weights in float64, without the examples that weigh nothing."""
    weights = np.asarray(weight_N, float)
    if weights.ndim == 2 and len(weights):
        if (weights != weights[0]).any():
            raise ValueError('weights differ between runs: these did not see the same examples with the same noise')
        weights = weights[0]
    if weights.ndim != 1 or not (np.isfinite(weights) & (weights >= 0)).all():
        raise ValueError('weights must be [examples], finite and not negative')
    sums = [np.asarray(arm, float) for arm in arms]
    for sum_RN in sums:
        if sum_RN.ndim != 2 or not len(sum_RN) or sum_RN.shape[1] != len(weights):
            raise ValueError(f'sums must be [runs, {len(weights)} examples] with at least one run, not {sum_RN.shape}')
        if not (finite_R := np.isfinite(sum_RN).all(axis=1)).all():
            raise ValueError(f'sums of runs {np.flatnonzero(~finite_R)} are not finite')
        if sum_RN[:, weights == 0].any():
            raise ValueError('an example of weight 0 has a sum other than 0')
    return [sum_RN[:, weights > 0] for sum_RN in sums], weights[weights > 0]


def _estimate(
    sums: Sequence[np.ndarray],
    weight_N: np.ndarray,
    null: float,
    confidence: float,
    method: str,
    draws: int,
    seed: int,
    keep_draws: bool = False,
) -> Estimate:
    """The sum of the arms' mean scores: a baseline comes in with its sign turned. A null of NaN: no test."""
    if method not in METHODS or not 0 < confidence < 1:
        raise ValueError(f'method must be one of {METHODS} and confidence in (0, 1), not {method!r} and {confidence}')
    runs, N = min(map(len, sums)), len(weight_N)
    if N < 2:
        value = float(sum(sum_RN.mean() / weight_N[0] for sum_RN in sums)) if N else np.nan
        return Estimate(value, np.nan, np.nan, runs, N, 'too few examples', np.nan, np.nan, np.nan)
    if method == 'auto':
        method = 'multi-bootstrap' if runs >= MANY_RUNS else 'two-way t'
    if runs == 1:
        method = 'one run'

    arms_z = [_linear(sum_RN, weight_N) for sum_RN in sums]
    value = float(sum(z_RN.mean() for z_RN in arms_z))
    of_seeds, of_examples, error, df = _two_way(arms_z)
    distance = abs(value - null)
    rounding = ROUNDING * max(abs(z_RN).max() for z_RN in arms_z)
    if error <= rounding:
        p = np.nan if np.isnan(null) else float(distance <= rounding)
        return Estimate(value, value, value, runs, N, method, 0.0, np.nan, p)
    half = special.stdtrit(df, (1 + confidence) / 2) * error
    p = float(2 * special.stdtr(df, -distance / error))
    low, high = float(value - half), float(value + half)
    found = Estimate(value, low, high, runs, N, method, error, df, p, of_seeds, of_examples)
    if runs == 1 or not (keep_draws or method == 'multi-bootstrap'):
        return found
    arms = [(resample.ratio(sum_RN, weight_N), len(sum_RN)) for sum_RN in sums]
    drawn_B = resample.draw(arms, N, draws, np.random.default_rng(seed)).sum(axis=1)
    if method == 'multi-bootstrap':
        low, high = resample.interval(drawn_B, confidence)
    return dataclasses.replace(found, low=low, high=high, drawn_B=drawn_B)


def _linear(sum_RN: np.ndarray, weight_N: np.ndarray) -> np.ndarray:
    """Values whose row means are the runs' scores and whose spread over examples is that of the ratio (delta method).

    (s - r w) / mean(w) + r with the grand ratio r. Not s / w, whose mean over examples is another quantity.
    """
    ratio = sum_RN.mean(axis=0).sum() / weight_N.sum()
    return (sum_RN - ratio * weight_N) / weight_N.mean() + ratio


def _two_way(arms_z: Sequence[np.ndarray]) -> tuple[float, float, float, float]:
    """Of the sum of the arms' means: variance of one seed an arm and of the examples, standard error and its df.

    z_ij = mu + seed_i + example_j + rest_ij, all random. With one arm E MS_seed = rest + N seed, E MS_example =
    rest + R example and E MS_rest = rest, where seed, example and rest now stand for variances, so that
        Var(mean) = seed/R + example/N + rest/(R N) = (MS_seed + MS_example - MS_rest) / (R N).
    With two arms of independent seeds and common examples, a column of the summed arms varies by example + sum rest/R,
    `example` being that of the summed effects: the spread of the columns gives the last two terms together, and each
    arm adds a seed/R of its own. In the code every mean square is already divided by R N.

    A component estimated below 0 is taken as 0, so the variance is never less than what one of the mean squares alone
    would give; the plain sum can by chance be near 0 or negative. The degrees of freedom take the mean squares as
    measured: bounded there too, intervals of 2 or 3 seeds hardly ever miss. Where only examples vary, the bound is
    cautious (.97 for .95). Satterthwaite 1946; Searle, Casella & McCulloch 1992, Variance Components, chapter 4.
    """
    N = arms_z[0].shape[1]
    example = np.sum([z_RN.mean(axis=0) for z_RN in arms_z], axis=0).var(ddof=1) / N
    if min(map(len, arms_z)) == 1:
        return np.nan, np.nan, float(example**0.5), N - 1.0
    seeds, rests, one_seed, spread = 0.0, 0.0, 0.0, example**2 / (N - 1)
    for z_RN in arms_z:
        R = len(z_RN)
        rest_RN = z_RN - z_RN.mean(axis=0) - z_RN.mean(axis=1, keepdims=True) + z_RN.mean()
        seed = z_RN.mean(axis=1).var(ddof=1) / R
        rest = (rest_RN**2).sum() / ((R - 1) * (N - 1) * R * N)
        seeds += max(0, seed - rest)
        rests += rest
        one_seed += R * max(seed, rest)
        spread += seed**2 / (R - 1) + rest**2 / ((R - 1) * (N - 1))
    variance = seeds + max(example, rests)
    df = float(variance**2 / spread) if spread else np.nan
    return float(one_seed), float(max(0, example - rests)), float(variance**0.5), df
