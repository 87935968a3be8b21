"""Where in the layers is it? Expected layer and centre of gravity of edge probes (Tenney et al. 2019).

The edge probe of layer l sees a mix of layers 0 to l. Its differential score is what layer l adds, the expected layer
the mean of l weighted by these, the centre of gravity the mean of l weighted by the mix that the probe of all layers
learned. Scores of single layers (`--probe=linear`) and MDL are the safer measures where layers differ in norm (Fayyaz
et al. 2021), so layers are standardised before they are mixed.
"""

import dataclasses

import numpy as np

from bertx.report import stats
from bertx.report.stats import Estimate

DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class Gravity:
    """Of one task, over prefixes of layers."""

    expected: float  # NaN where the headroom is no more than noise
    low: float  # 95 % bootstrap interval over runs and test groups
    high: float
    headroom: Estimate  # of the best prefix over layer 0 alone
    differential_L: np.ndarray  # score(0..l) - score(0..l-1); of layer 0, 0
    centre: float = float('nan')  # of gravity; NaN where the mix is not known


def expected_layer(score_L: np.ndarray) -> float:
    """Sum of l * differential score over the sum of differential scores, from layer 1 on."""
    gain = np.diff(score_L)
    return float((np.arange(1, len(score_L)) * gain).sum() / gain.sum()) if gain.sum() else float('nan')


def gravity(hit_RLG: np.ndarray, weight_G: np.ndarray, dev_L: np.ndarray, mix_L: np.ndarray | None = None) -> Gravity:
    """hit_RLG: what the probe of layers 0..l of each run hit in each test group; dev_L: its nats on dev, which say what
    prefix is the best, so that the headroom is none of chance; mix_L: of the probe of all layers. Refuses (NaN) where
    headroom is within noise: the quotient then leaves the layers, as Tenney's DPR does."""
    score_L = hit_RLG.mean(0).sum(1) / weight_G.sum()
    best = int(np.argmin(dev_L))
    headroom = stats.difference(hit_RLG[:, best], hit_RLG[:, 0], weight_G)
    gain_L = np.concatenate([[0.0], np.diff(score_L)])
    centre = float('nan') if mix_L is None or not len(mix_L) else centre_of_gravity(mix_L)
    if best == 0 or not headroom.low > 0:
        return Gravity(float('nan'), float('nan'), float('nan'), headroom, gain_L, centre)
    rng = np.random.default_rng(0)
    count_BR, count_BG = (rng.multinomial(n, np.full(n, 1 / n), DRAWS) for n in (len(hit_RLG), len(weight_G)))
    hit_BL = np.einsum('br,brl->bl', count_BR, np.tensordot(count_BG, hit_RLG, (1, 2))) / len(hit_RLG)
    drawn = [expected_layer(row) for row in hit_BL / (count_BG @ weight_G)[:, None]]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Gravity(expected_layer(score_L), float(low), float(high), headroom, gain_L, centre)


def centre_of_gravity(mix_L: np.ndarray) -> float:
    """mix_L: weights of the layers, which sum to 1."""
    return float((np.arange(len(mix_L)) * mix_L).sum())
