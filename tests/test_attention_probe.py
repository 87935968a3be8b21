"""The attention-only probe against a loop and scipy, on made-up attention."""

import numpy as np
import pytest
import scipy.optimize
from analysis_cases import treebank

from analysis.heads import attention_probe, dependency_heads

M = 3


def maps(count, seed, known=0.0):
    """Random attention; a share of head 2's goes from a word to its head, and of head 3's from a head to its word."""
    rng, found = np.random.default_rng(seed), []
    for s in treebank(count, seed):
        W = len(s.words)
        a_MWW = rng.dirichlet(np.ones(W), (M, W)).astype(np.float32)
        for w, head in enumerate(s.heads):
            if head >= 0:
                a_MWW[1, w, head] += known
                a_MWW[2, head, w] += known
        found.append((s, a_MWW / a_MWW.sum(-1, keepdims=True)))
    return found


def loop(weight_F, read):
    """(loss, hits of each arc), written as the paper has it."""
    w_M, u_M = weight_F[:M], weight_F[M:]
    nats, right = [], []
    for s, a_MWW in read:
        for j, head in enumerate(s.heads):
            if head < 0:
                continue
            others = [i for i in range(len(s.words)) if i != j]
            score = [sum(w_M[k] * a_MWW[k, i, j] + u_M[k] * a_MWW[k, j, i] for k in range(M)) for i in others]
            p = np.exp(score) / np.exp(score).sum()
            nats.append(-np.log(p[others.index(head)]))
            right.append(others[int(np.argmax(p))] == head)
    return np.mean(nats) + 0.5 * attention_probe.PENALTY * (weight_F**2).sum(), np.array(right)


def test_loss_and_hits_are_a_loops():
    read = maps(6, 0)
    p, weight_F = attention_probe.pairs(read), np.random.default_rng(1).normal(size=2 * M).astype(np.float32) * 3
    want, right = loop(weight_F, read)
    assert float(attention_probe.loss(weight_F, p.x_PF, p.arc_P, p.gold_A)) == pytest.approx(want, rel=1e-5)
    np.testing.assert_array_equal(attention_probe.hits(p, weight_F), right)
    assert 0 < right.mean() < 1


def test_it_is_fitted_as_far_as_scipy_comes():
    read = maps(30, 2, known=0.3)
    found = attention_probe.fit(attention_probe.pairs(read))
    best = scipy.optimize.minimize(lambda x: loop(x, read)[0], np.zeros(2 * M), method='L-BFGS-B')
    assert loop(found, read)[0] == pytest.approx(best.fun, abs=1e-4)
    assert best.fun < 0.9 * loop(np.zeros(2 * M), read)[0]
    assert found[M + 1] > 1 and found[2] > 1  # u of the head that looks at heads, w of the one that looks from them


def test_heads_together_find_more_than_one_alone():
    """Half of the arcs are known to head 2, the others to head 3."""

    def halves(count, seed):
        found = maps(count, seed)
        for s, a_MWW in found:
            for w, head in enumerate(s.heads):
                if head >= 0:
                    a_MWW[1 + w % 2, *((w, head) if w % 2 == 0 else (head, w))] = 5
        return found

    own, fresh = (halves(40, 3), halves(60, 4)), (maps(40, 5), maps(60, 4))
    rows, note = attention_probe.compare(own, fresh, M)
    score = {row[0].split(':')[0]: float(row[1].split()[0]) for row in rows[1:]}
    assert score['probe on all heads'] > 0.98 and 0.4 < score['best head'] < 0.8
    assert score['probe on all heads, untrained encoder'] < score['best offset'] + 0.1
    arcs = dependency_heads.arcs(own[1])
    chain = np.mean([s.heads[w] == w + 1 for s, _ in own[1] for w in range(len(s.words)) if s.heads[w] >= 0])
    assert score['the next word (right-branching)'] == pytest.approx(chain, abs=6e-4)
    assert f'{len(arcs.relation):,} words of 60 test sentences' in note and '[+' in rows[1][2]
