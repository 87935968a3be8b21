import dataclasses

import numpy as np
import pytest

from bertx.report import stats
from bertx.report.max_t import max_t

K, N = 6, 40  # columns, examples


def family(rng, runs, seed_sd, likeness, effect=0.0):
    """Estimates of K columns whose seeds and examples are correlated by `likeness`."""

    def noise(*shape):
        return likeness**0.5 * rng.normal(size=(1, *shape)) + (1 - likeness) ** 0.5 * rng.normal(size=(K, *shape))

    arm_KRN = effect + seed_sd * noise(runs, 1) + 0.05 * noise(1, N) + 0.05 * noise(runs, N)
    return [
        stats.difference(arm_RN, 0 * arm_RN, np.ones(N), draws=400, method='two-way t', keep_draws=True)
        for arm_RN in arm_KRN
    ]


@pytest.mark.parametrize('runs, seed_sd, likeness', [(3, 0.03, 0.0), (5, 0.01, 0.9), (10, 0.03, 0.0), (10, 0.03, 0.9)])
def test_family_wise_error(runs, seed_sd, likeness):
    rng, simulations = np.random.default_rng([runs, int(10 * likeness)]), 200
    alarms = np.mean([max_t(family(rng, runs, seed_sd, likeness)).min() < 0.05 for _ in range(simulations)])
    # The single two-way t rejects .07 at 3 seeds of this spread, .05 elsewhere; and three Monte-Carlo errors.
    assert alarms < (0.07 if runs == 3 else 0.055) + 3 * (0.05 * 0.95 / simulations) ** 0.5


def test_finds_no_less_than_holm_in_correlated_columns():
    rng, found = np.random.default_rng(0), np.zeros(2)
    for _ in range(60):
        estimates = family(rng, 10, 0.03, 0.9, effect=0.03)
        found += np.sum(max_t(estimates) < 0.05), np.sum(stats.holm([e.p for e in estimates]) < 0.05)
    assert found[0] > 1.1 * found[1] > 0


def test_one_test_needs_no_correction():
    rng = np.random.default_rng(2)
    for effect in (0.0, 0.02):
        estimate = family(rng, 10, 0.03, 0.0, effect)[0]
        assert max_t([estimate])[0] == pytest.approx(estimate.p, abs=0.05)


def test_step_down():
    """A clear finding does not burden those after it, and p-values rise with falling |t|."""
    estimates = family(np.random.default_rng(3), 12, 0.03, 0.5)
    order = np.argsort([-abs(e.value) / e.standard_error for e in estimates])
    p = max_t(estimates)
    assert (np.diff(p[order]) >= 0).all() and (p >= [e.p - 0.05 for e in estimates]).all()
    # Out of a family of two, one of which is certain, the other stands as if alone.
    clear = dataclasses.replace(estimates[0], value=50 * estimates[0].standard_error)
    alone, beside = max_t([estimates[1]]), max_t([clear, estimates[1]])
    assert beside[1] == pytest.approx(alone[0]) and beside[0] == 1 / 400


def test_what_has_no_draws_or_no_spread_is_left_out():
    estimates = family(np.random.default_rng(4), 5, 0.03, 0.5)
    without = dataclasses.replace(estimates[0], drawn_B=None)
    still = stats.difference(np.ones((5, N)), np.ones((5, N)), np.ones(N), keep_draws=True)
    p = max_t([without, estimates[1], still])
    assert np.isnan(p[[0, 2]]).all() and p[1] == max_t([estimates[1]])[0]
    assert max_t([]).size == 0
