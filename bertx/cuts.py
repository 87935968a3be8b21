"""Text cut into units, and how units of ONE example are drawn: what the classes of select.py are made of.

`u` is a uniform random number in [0, 1), u_L are L of them.
"""

import jax
import jax.numpy as jnp
from flax import struct

from bertx.types import Array, Example, Vocabulary


@struct.dataclass
class Selected:
    """Positions to predict. Those that count come first, in ascending order; slots that are left have weight 0."""

    at_K: Array  # int32, distinct (save in Tokens(variant='electra'))
    weight_K: Array  # float32, 1 or 0
    unit_K: Array  # int32, equal for the positions of one drawn unit, which are neighbours; -1 where the weight is 0


@struct.dataclass
class Cut:
    """Text cut into units, numbered from left to right."""

    unit_L: Array  # of each position; L where there is no text
    size_U: Array  # tokens of each, U = L; 0 for those that do not exist


def text(example: Example, vocab: Vocabulary) -> Array:
    """[L] bool: what may be predicted; neither padding nor a special token."""
    return vocab.ordinary_V[example.tokens] & (example.segment_ids > 0)


def begins(id_L, may_L, segment_L) -> Array:
    """[L] bool: where a run of equal ids begins. A run ends at a special token and at the end of a segment."""
    same_L = (id_L == jnp.roll(id_L, 1)) & jnp.roll(may_L, 1) & (segment_L == jnp.roll(segment_L, 1))
    return may_L & ~same_L.at[0].set(False)


def cut(begins_L, may_L) -> Cut:
    """Units from where each begins."""
    unit_L = jnp.where(may_L, jnp.cumsum(begins_L) - 1, len(may_L))
    return Cut(unit_L, jnp.zeros_like(unit_L).at[unit_L].add(1, mode='drop'))


def per_position(value_U, units: Cut, fill) -> Array:
    """[L]: each position's unit's value."""
    return jnp.take(value_U, units.unit_L, mode='fill', fill_value=fill)


def unbiased(u, rate, available) -> Array:
    """rate * available on average, rounded up or down (fairseq's rounding)."""
    return jnp.int32(rate * available + u)


def bert_count(rate, example: Example) -> Array:
    """max(1, round(rate * m)), m counting [CLS] and [SEP] too; like Python's, jnp.round rounds half to even."""
    return jnp.maximum(1, jnp.round(rate * (example.segment_ids > 0).sum())).astype(jnp.int32)


def ring(u, u_U, size_U, count) -> Array:
    """[U] bool: the units, in a random order around a ring, that begin in `count` successive places of it.

    A unit begins in any place equally often, so P(chosen) = E[count] / sum(size_U) for large and small alike. Taking
    units in a random order until a budget is used up would not do: large ones would hit the budget more often.
    """
    order_U = jnp.argsort(u_U)
    sizes_U = size_U[order_U]
    begin_U = jnp.zeros_like(size_U).at[order_U].set(jnp.cumsum(sizes_U) - sizes_U, unique_indices=True)
    total = jnp.maximum(size_U.sum(), 1)
    return ((begin_U - jnp.int32(u * total)) % total < count) & (size_U > 0)


def fit(u, chosen_U, size_U, k: int) -> Array:
    """[U] bool: where the chosen units hold more than k tokens, some are left out whole, wherever they stand."""
    kept_U = jnp.where(chosen_U, size_U, 0)
    before_U, total = jnp.cumsum(kept_U) - kept_U, jnp.maximum(kept_U.sum(), 1)
    first = jnp.int32(u * jnp.maximum((size_U > 0).sum(), 1))  # units are numbered without holes
    turned_U = (before_U - before_U[first]) % total
    return chosen_U & (turned_U + kept_U <= k)


def pack(drawn_L, example: Example, k: int) -> Selected:
    """From the number of the unit that each position was drawn with (-1: not drawn), at most k of them."""
    L, chosen_L = len(drawn_L), drawn_L >= 0
    unit_L = jnp.cumsum(begins(drawn_L, chosen_L, example.segment_ids)) - 1
    behind_L = L - jnp.arange(L)
    # In float32, for which XLA has a fast top_k on CPUs; exact up to 2**24.
    _, at_K = jax.lax.top_k(jnp.where(chosen_L, L + behind_L, behind_L).astype(jnp.float32), k)
    counts_K = chosen_L[at_K]
    return Selected(at_K.astype(jnp.int32), counts_K.astype(jnp.float32), jnp.where(counts_K, unit_L[at_K], -1))


def draw(u_J, law_N) -> Array:
    """[J]: lengths from 1 on, of which law_N has the probabilities."""
    return 1 + jnp.searchsorted(jnp.cumsum(law_N)[:-1], u_J, side='right', method='compare_all')


def favor_short(most: int) -> Array:
    """Lengths n of n-grams with probability in proportion to 1/n."""
    law_N = 1.0 / jnp.arange(1, most + 1)
    return law_N / law_N.sum()


def tiles(u_L, v_L, law_N, words_L, may_L, example: Example) -> Cut:
    """Text cut into tiles of law_N words that lie end to end; words_L says where words begin.

    The text begins in the midst of a tile, as any place of an endless tiling does, and ends where it ends; so both ends
    have cut tiles, and the law of what lies around a position is the same all along.
    """
    runs_L = begins(jnp.zeros_like(words_L), may_L, example.segment_ids)
    longer_N = jnp.cumsum(law_N[::-1])[::-1]  # P(length >= n): in proportion to it n words are left of a tile
    drawn_L, left_L = draw(u_L, law_N), draw(v_L, longer_N / longer_N.sum())

    def step(left, now):
        word, run, drawn, cut_short = now
        due = run | (word & (left == 1))
        return jnp.where(run, cut_short, jnp.where(due, drawn, left - word)), due

    _, begins_L = jax.lax.scan(step, jnp.int32(0), (words_L, runs_L, drawn_L, left_L))
    return cut(begins_L, may_L)


def grams_in_turn(u_U, v_U, law_N, words: Cut, budget) -> Array:
    """[L]: ALBERT's n-grams. Each word in a random order begins one, if there is room and none of it is taken.

    The drawn n is decremented while it exceeds the budget; if a word alone does, smaller ones may still follow.
    """
    U, most = len(words.size_U), len(law_N)
    number_U, step_N = jnp.arange(U), jnp.arange(most)
    order_U = jnp.argsort(jnp.where(words.size_U > 0, u_U, 2.0))
    end_W = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(words.size_U)])
    total = (words.size_U > 0).sum()

    def step(state, now):
        taken, gram_U = state
        word, n = now
        tokens_N = end_W[jnp.minimum(word + 1 + step_N, U)] - end_W[word]
        # As tokens_N ascends, those that fit are the first; n-grams at the end of the text are cut by it.
        n = ((step_N < jnp.minimum(n, total - word)) & (taken + tokens_N <= budget)).sum()
        place_N = jnp.where(step_N < n, word + step_N, U)
        free = jnp.take(gram_U, place_N, mode='fill', fill_value=-1).max() < 0
        gram_U = gram_U.at[jnp.where(free, place_N, U)].set(word, mode='drop')
        return (taken + jnp.where(free & (n > 0), tokens_N[n - 1], 0), gram_U), None

    start = (jnp.int32(0), jnp.full_like(number_U, -1))
    (_, gram_U), _ = jax.lax.scan(step, start, (order_U, draw(v_U, law_N)))
    return per_position(gram_U, words, -1)


def spans_in_turn(u_L, v_K, law_N, words_L, may_L, example: Example, budget) -> Array:
    """[L]: SpanBERT's spans, from a token that is not masked yet, drawn uniformly.

    A span begins with the token's word and grows to the right only, over what is masked already, to the end of the run;
    so the first positions are masked less. The last is cut at the budget, in the midst of a word if need be.
    """
    L, runs_L = len(may_L), begins(jnp.zeros_like(may_L), may_L, example.segment_ids)
    at_L, units = jnp.arange(L), cut(words_L, may_L)
    begin_L = jax.lax.cummax(jnp.where(words_L, at_L, 0))
    begin_U = jnp.full_like(at_L, L).at[jnp.where(words_L, units.unit_L, L)].set(at_L, mode='drop')
    ends_L = jnp.where(runs_L | ~may_L, at_L, L)
    run_end_L = jnp.append(jax.lax.cummin(ends_L, reverse=True)[1:], L)

    def step(state, n):
        masked_L, last_L = state
        # The first in a random order: uniform among those not masked, as drawing until one is not masked.
        anchor = jnp.argmin(jnp.where(may_L & ~masked_L, u_L, 2.0))
        end = jnp.take(begin_U, units.unit_L[anchor] + n, mode='fill', fill_value=L)
        span_L = may_L & (at_L >= begin_L[anchor]) & (at_L < jnp.minimum(end, run_end_L[anchor]))
        over = (span_L | masked_L).sum() > budget
        last_L = jnp.where(over & ~last_L.any(), span_L, last_L)
        return (jnp.where(last_L.any(), masked_L, masked_L | span_L), last_L), None

    none_L = jnp.zeros_like(may_L)
    (masked_L, last_L), _ = jax.lax.scan(step, (none_L, none_L), draw(v_K, law_N))  # a span has a new token
    new_L = last_L & ~masked_L
    masked_L |= new_L & (jnp.cumsum(new_L) <= budget - masked_L.sum())
    return jnp.where(masked_L, 0, -1)
