"""What an experiment could have found: the least detectable effect, and the seeds that would settle an observed one."""

import bisect
import math

from etils import epy
from scipy import special

from bertx.report.stats import Estimate

with epy.lazy_imports():  # every command starts with this module
    from scipy import optimize

POWER, ALPHA = 0.8, 0.05
MOST_SEEDS = 10**6  # as good as infinitely many


def detectable(estimate: Estimate, power: float = POWER, alpha: float = ALPHA) -> float:
    """The least true effect that a two-sided test at `alpha` finds with probability `power`, in the metric's unit.

    By the noncentral t with the standard error of these seeds and examples: the usual short cut (Bloom 1995),
    (t_(1-alpha/2) + t_power) * error, is 5 % too small at 2 degrees of freedom. NaN where the standard error is.
    """
    if estimate.standard_error == 0 or math.isnan(estimate.standard_error):
        return estimate.standard_error
    lacking = lambda shift: _found(shift, estimate.df, alpha) - power
    short_cut = special.stdtrit(estimate.df, 1 - alpha / 2) + max(0, special.stdtrit(estimate.df, power))
    return float(estimate.standard_error * optimize.brentq(lacking, 0, 2 * short_cut))


def seeds_to_decide(estimate: Estimate, power: float = POWER, alpha: float = ALPHA) -> float:
    """The fewest seeds an arm with which a two-sided test finds the observed effect with probability `power`.

    By the two-way model (`stats.py`): seeds divide its seed_variance and leave its example_variance, so infinity
    where these test examples alone hide such an effect. NaN for single runs. A plan, not a finding: the observed
    effect and the variances are themselves estimates, poor ones from few seeds.
    """
    if math.isnan(estimate.seed_variance):
        return math.nan

    def enough(seeds: int) -> bool:
        of_seeds, of_examples = estimate.seed_variance / seeds, estimate.example_variance
        variance = of_seeds + of_examples
        spread = of_seeds**2 / (seeds - 1) + of_examples**2 / (estimate.examples - 1)
        return _found(abs(estimate.value) / variance**0.5, variance**2 / spread, alpha) >= power

    if estimate.value == 0 or not enough(MOST_SEEDS):
        return math.inf
    return float(bisect.bisect_left(range(MOST_SEEDS), True, lo=2, key=enough))


def _found(shift: float, df: float, alpha: float) -> float:
    """The probability that |t| passes its edge where t's mean lies `shift` standard errors from the null."""
    if shift > 35:  # nctdtr gives NaN far out
        return 1.0
    return float(1 - special.nctdtr(df, shift, special.stdtrit(df, 1 - alpha / 2)))
