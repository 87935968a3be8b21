"""The multi-bootstrap: runs and test examples resampled together, by matrix products.

Sellam et al. 2022, The MultiBERTs (arXiv:2106.16163).
"""

from collections.abc import Sequence

import numpy as np

CHUNK = 2**22  # resampling counts held at once: 32 MiB


def draw(arms: Sequence[np.ndarray], weight_N: np.ndarray, draws: int, rng: np.random.Generator) -> np.ndarray:
    """The arms' mean scores [draws, arms]. Each arm, sums [R, N], has runs drawn of its own; a score is a sum over the
    sum of the weights.

    The examples drawn are the same for all arms, and for every call with as many examples, arms' runs and an rng in the
    same state: so columns of a table are drawn together. The variance is near seed/R + example/N + 3 rest/(R N)
    (Owen 2007, The pigeonhole bootstrap): cautious where runs disagree on single examples, too small with few runs, of
    whose variance it sees a share of 1 - 1/R.
    """
    examples, drawn = len(weight_N), []
    shares = [rng.multinomial(R, np.full(R, 1 / R), draws) / R for R in map(len, arms)]
    step = max(1, CHUNK // examples)
    for start in range(0, draws, step):
        B = min(step, draws - start)
        # Counting drawn indices takes half the time of rng.multinomial, which draws N binomials for each row.
        index_BN = rng.integers(examples, size=(B, examples)) + examples * np.arange(B)[:, None]
        count_BN = np.bincount(index_BN.ravel(), minlength=B * examples).reshape(B, examples).astype(float)
        weight_B1 = (count_BN @ weight_N)[:, None]
        scored = [
            (share_BR[start : start + B] * (count_BN @ sum_RN.T / weight_B1)).sum(axis=1)
            for share_BR, sum_RN in zip(shares, arms, strict=True)
        ]
        drawn.append(np.stack(scored, axis=1))
    return np.concatenate(drawn)
