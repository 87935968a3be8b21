import dataclasses
import math

import numpy as np
import pytest
from scipy import stats as scipy_stats

from bertx.report import power, stats


def test_detectable():
    some = stats.mean(np.random.default_rng(0).random((3, 20)), np.ones(20))
    found = dataclasses.replace(some, standard_error=0.02, df=1e6)
    assert power.detectable(found) == pytest.approx(0.02 * (1.95996 + 0.84162), rel=1e-4)
    few = dataclasses.replace(found, df=2.0)
    effect = power.detectable(few, power=0.9, alpha=0.01)
    rng = np.random.default_rng(0)
    t = (effect / 0.02 + rng.normal(size=100_000)) / np.sqrt(rng.chisquare(2, 100_000) / 2)
    assert (t > scipy_stats.t.ppf(0.995, 2)).mean() == pytest.approx(0.9, abs=0.005)


def test_nothing_is_said_without_spread_or_without_seeds():
    same_RN = np.full((3, 5), 0.5)
    assert power.detectable(stats.mean(same_RN, np.ones(5))) == 0
    one = stats.mean(np.arange(5.0)[None], np.ones(5))
    assert math.isnan(power.seeds_to_decide(one)) and power.detectable(one) > 0
    few = stats.mean(same_RN[:, :1], [1])
    assert math.isnan(power.detectable(few)) and math.isnan(power.seeds_to_decide(few))


def test_the_standard_error_is_made_of_seeds_and_examples():
    rng = np.random.default_rng(1)
    arm_RN = rng.normal(0, 0.1, (6, 1)) + rng.normal(0, 0.3, 40) + rng.normal(0, 0.2, (6, 40))
    found = stats.mean(arm_RN, np.ones(40))
    assert found.seed_variance / 6 + found.example_variance == pytest.approx(found.standard_error**2)
    base_RN = rng.normal(0, 0.1, (6, 1)) + rng.normal(0, 0.2, (6, 40))
    free = stats.difference(arm_RN, base_RN, np.ones(40), paired=False)
    assert free.seed_variance / 6 + free.example_variance == pytest.approx(free.standard_error**2)


def test_seeds_to_decide_by_simulation():
    """As many seeds find a true effect of this size four times in five; half as many do not."""
    found = dataclasses.replace(
        stats.mean(np.random.default_rng(0).random((3, 20)), np.ones(20)),
        value=0.02, examples=200, seed_variance=0.02**2 + 0.1**2 / 200, example_variance=0.05**2 / 200,
    )  # fmt: skip
    seeds = power.seeds_to_decide(found)
    rng = np.random.default_rng(2)

    def rate(runs, simulations=600):
        alarms = 0
        for _ in range(simulations):
            arm_RN = 0.02 + rng.normal(0, 0.02, (runs, 1)) + rng.normal(0, 0.05, 200) + rng.normal(0, 0.1, (runs, 200))
            alarms += stats.mean(arm_RN, np.ones(200), null=0.0, method='two-way t').p < 0.05
        return alarms / simulations

    assert rate(int(seeds)) == pytest.approx(0.8, abs=0.06)
    assert rate(int(seeds) // 2) < 0.65


def test_no_number_of_seeds_helps_where_the_examples_hide_the_effect():
    found = dataclasses.replace(
        stats.mean(np.random.default_rng(0).random((3, 20)), np.ones(20)), value=0.02, seed_variance=1e-4
    )
    least = 0.02 / 2.85  # error at which a t of 19 degrees of freedom is found 4 times in 5: about t(.975) + t(.8)
    assert power.seeds_to_decide(dataclasses.replace(found, example_variance=(1.1 * least) ** 2)) == math.inf
    assert 2 <= power.seeds_to_decide(dataclasses.replace(found, example_variance=(0.8 * least) ** 2)) < 50
    assert power.seeds_to_decide(dataclasses.replace(found, value=0.0)) == math.inf
