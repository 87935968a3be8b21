"""The multi-bootstrap: runs and test examples resampled together, by matrix products.

Sellam et al. 2022, The MultiBERTs (arXiv:2106.16163). An arm of R runs comes in as a scorer: a function from how often
each of N examples was drawn, `count_BN`, to the scores of its runs on those draws, `score_BR`.
"""

from collections.abc import Callable, Sequence

import numpy as np

CHUNK = 2**22  # resampling counts held at once: 32 MiB

Scorer = Callable[[np.ndarray], np.ndarray]


def ratio(sum_RN: np.ndarray, weight_N: np.ndarray) -> Scorer:
    """Scores that are sums over sums of weights: accuracies, losses."""
    return lambda count_BN: count_BN @ sum_RN.T / (count_BN @ weight_N)[:, None]


def draw(arms: Sequence[tuple[Scorer, int]], examples: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The arms' mean scores [draws, arms]; each arm, given with its number of runs, has runs drawn of its own.

    The examples drawn are the same for all arms, and for every call with as many examples, arms' runs and an rng in the
    same state: so columns of a table are drawn together. The variance is near seed/R + example/N + 3 rest/(R N)
    (Owen 2007, The pigeonhole bootstrap): cautious where runs disagree on single examples, too small with few runs, of
    whose variance it sees a share of 1 - 1/R.
    """
    shares = [rng.multinomial(R, np.full(R, 1 / R), draws) / R for _, R in arms]
    drawn = []
    step = max(1, CHUNK // examples)
    for start in range(0, draws, step):
        B = min(step, draws - start)
        # Counting drawn indices takes half the time of rng.multinomial, which draws N binomials for each row.
        index_BN = rng.integers(examples, size=(B, examples)) + examples * np.arange(B)[:, None]
        count_BN = np.bincount(index_BN.ravel(), minlength=B * examples).reshape(B, examples).astype(float)
        scored = [
            (share_BR[start : start + B] * score(count_BN)).sum(axis=1)
            for share_BR, (score, _) in zip(shares, arms, strict=True)
        ]
        drawn.append(np.stack(scored, axis=1))
    return np.concatenate(drawn)


def interval(drawn_B: np.ndarray, confidence: float) -> tuple[float, float]:
    """The percentile interval."""
    low, high = np.quantile(drawn_B, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
