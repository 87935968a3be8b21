"""How much of the tree do all heads together tell? The attention-only probe (Clark et al. 2019, section 4.2).

Part of `python -m analysis.attention` with annotated --data.

p(the head of j is i) is proportional to exp(sum_k w_k a_kij + u_k a_kji), a_kij being head k's attention from word i to
word j, with one number w and one number u for each head. Convex, so it is fitted to all arcs of dev at once, the split
that single heads and offsets are chosen on, and scored with these on test.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from analysis.heads import dependency_heads
from analysis.heads.dependency_heads import OFFSETS, Found, Maps
from analysis.report import page
from bertx.report import stats

PENALTY = 1e-4  # times half the squared weights: a head's attention sums to 1, so without it there is no one optimum
STEPS = 200  # of L-BFGS at most; the gradient's length ends it
ENOUGH = 1e-4


@dataclasses.dataclass(frozen=True)
class Pairs:
    """(i, j) for all words j but roots and all i but j, arc after arc; P of them in A arcs."""

    x_PF: np.ndarray  # F is 2 M: attention of the heads from i to j, then from j to i
    arc_P: np.ndarray  # number of j's arc
    gold_A: np.ndarray  # where in P its head stands


def pairs(maps: Maps) -> Pairs:
    """In the order of `dependency_heads.arcs`."""
    parts, arcs, golds, count = [], [], [], 0
    for s, a_MWW in maps:
        head_W = np.array(s.heads)
        j, i = np.nonzero(~np.eye(len(head_W), dtype=bool) & (head_W >= 0)[:, None])
        parts.append(np.concatenate([a_MWW[:, i, j], a_MWW[:, j, i]]).T)
        arcs.append(count + np.searchsorted(np.flatnonzero(head_W >= 0), j))
        golds.append(head_W[j] == i)
        count += int((head_W >= 0).sum())
    return Pairs(np.concatenate(parts), np.concatenate(arcs), np.flatnonzero(np.concatenate(golds)))


def fit(p: Pairs) -> np.ndarray:
    """[F]: the weights w, then u."""
    return np.asarray(_fit(p.x_PF, p.arc_P, p.gold_A))


def hits(p: Pairs, weight_F: np.ndarray) -> np.ndarray:
    """[A] bool: is the likeliest word the head?"""
    score_P = p.x_PF @ weight_F
    return score_P[p.gold_A] >= np.maximum.reduceat(score_P, np.searchsorted(p.arc_P, np.arange(len(p.gold_A))))


def loss(weight_F, x_PF, arc_P, gold_A):
    """Nats, the mean over arcs, and the penalty."""
    score_P, A = x_PF @ weight_F, len(gold_A)
    top_A = jax.lax.stop_gradient(jax.ops.segment_max(score_P, arc_P, A, indices_are_sorted=True))
    sum_A = jax.ops.segment_sum(jnp.exp(score_P - top_A[arc_P]), arc_P, A, indices_are_sorted=True)
    return (top_A + jnp.log(sum_A) - score_P[gold_A]).mean() + 0.5 * PENALTY * (weight_F**2).sum()


@jax.jit
def _fit(x_PF, arc_P, gold_A):
    objective = functools.partial(loss, x_PF=x_PF, arc_P=arc_P, gold_A=gold_A)
    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def step(carry):
        weight_F, state, _, number = carry
        value, grad_F = value_and_grad(weight_F, state=state)
        updates, state = solver.update(grad_F, state, weight_F, value=value, grad=grad_F, value_fn=objective)
        return optax.apply_updates(weight_F, updates), state, jnp.linalg.norm(grad_F), number + 1

    go_on = lambda carry: (carry[2] > ENOUGH) & (carry[3] < STEPS)
    start_F = jnp.zeros(x_PF.shape[1])
    return jax.lax.while_loop(go_on, step, (start_F, solver.init(start_F), jnp.inf, 0))[0]


def compare(own: tuple[Maps, Maps], fresh: tuple[Maps, Maps], heads: int) -> tuple[list[list[str]], str]:
    """(table, note). own, fresh: dev and test of the model, and of an untrained one; heads: of a layer."""
    dev, test = (dependency_heads.arcs(maps) for maps in own)

    def probe(name: str, fitted: Maps, scored: Maps) -> Found:
        return dependency_heads.found(name, hits(pairs(scored), fit(pairs(fitted))), test.sentence)

    best, offset = (dependency_heads.choose(dev, test, 'all', fixed, heads) for fixed in (False, True))
    chain = dependency_heads.found('+1', test.hit[2 * test.heads + OFFSETS.index(1)], test.sentence)
    lines = {
        'probe on all heads': probe('', *own),
        'probe on all heads, untrained encoder': probe('', *fresh),
        f'best head: {best.name}': best,
        f'best offset: {offset.name}': offset,
        'the next word (right-branching)': chain,
    }
    rows = [['predictor', 'UAS', 'less best head']]
    for name, x in lines.items():
        gain = stats.difference(x.hit_G[None], best.hit_G[None], best.weight_G)
        rows.append([name, page.interval(x.score), '' if x is best else page.interval(gain, '+')])
    count = len(test.relation)
    said = f'fitted and chosen on {len(own[0]):,} dev sentences; {count:,} words of {len(own[1]):,} test sentences'
    return rows, f'{said}, roots left out, punctuation not; 95 % intervals over sentences (Clark et al. 2019)'
