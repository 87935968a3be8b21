"""Which positions of ONE example are predicted. Rates are traced, so near ones share a compiled program.

Clean classes cut the text into units (tokens, words, n-grams, spans) and `ring` draws whole units, each with exactly
the same probability whatever its size: so every position is predicted equally often, and the count is right on average.
Original ones follow the released codes with their quirks, save one: [UNK] is never predicted, which BERT's, ALBERT's,
ELECTRA's and SpanBERT's may do.
"""

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertx.cuts import (
    Cut,
    Selected,
    begins,
    bert_count,
    cut,
    draw,
    favor_short,
    fit,
    grams_in_turn,
    pack,
    per_position,
    ring,
    spans_in_turn,
    text,
    tiles,
    unbiased,
)
from bertx.errors import BadInput, at_least
from bertx.types import Array, Example, Vocabulary


@struct.dataclass
class Selector:
    """What all have in common. `rate` is the share of the text's tokens; see `variants` for the rest."""

    rate: Any = 0.15
    variant: str = struct.field(pytree_node=False, default='clean')

    variants: ClassVar[tuple[str, ...]] = ('clean', 'original')

    @property
    def needs_words(self) -> bool:
        """Whether the tokenizer must mark words."""
        return True

    @property
    def spare(self) -> int:
        """Slots beyond the rate's, for a last unit that is only in part within it. Longer ones are seldom left out."""
        return 0

    def check(self, key: str) -> None:
        rate = float(self.rate)
        if not 0.0 < rate <= 1.0:
            raise BadInput(f'{key}.rate is {rate:g}; it is a share of the tokens, above 0 and at most 1')
        if self.variant not in self.variants:
            raise BadInput(f'{key}.variant is {self.variant!r}; {" or ".join(map(repr, self.variants))} would do')
        at_least(1, f'{key}.most', getattr(self, 'most', 1))

    def least(self, length: int) -> int:
        """The fewest slots that do for rows of this length."""
        return min(length, math.ceil(float(self.rate) * length - 1e-6) + self.spare)

    def slots(self, length: int, given: int = 0, name: str = 'k') -> int:
        """Static k: what is given, or `least` in buckets, so that near rates share a compilation.

        Raises BadInput where fewer are given than will do.
        """
        least, bucket = self.least(length), max(4, length // 32)
        if 0 < given < least:
            raise BadInput(f'{name} is {given}; for rows of {length} the rate needs {least} or more')
        return min(length, given or -(-least // bucket) * bucket)

    def __call__(self, key, example: Example, vocab: Vocabulary, k: int) -> Selected:
        u_4L = jax.random.uniform(key, (4, len(example.tokens)))  # all in one: threefry takes long to compile
        return pack(self.drawn(u_4L, example, text(example, vocab), k), example, k)

    def drawn(self, u_4L, example: Example, may_L, k: int) -> Array:
        """[L]: the number of the unit that a position was drawn with, or -1."""
        raise NotImplementedError

    def drawn_whole(self, u_4L, units: Cut, k: int, weight_U) -> Array:
        """The same, for units to be taken whole or not at all, each with probability `rate`, so that of the sum of
        weight_U (the tokens or 1 for each unit) that share is taken on average."""
        chosen_U = ring(u_4L[3, 0], u_4L[0], weight_U, unbiased(u_4L[3, 1], self.rate, weight_U.sum()))
        chosen_U = fit(u_4L[3, 2], chosen_U, units.size_U, k)
        return jnp.where(per_position(chosen_U, units, False), units.unit_L, -1)


@struct.dataclass
class Tokens(Selector):
    """Independent tokens, without replacement. The variants differ in how many:

    clean    rate * n of the n tokens of text on average, rounded up or down
    bert     `bert_count` (google-research/bert create_pretraining_data.py, with do_whole_word_mask off)
    roberta  as clean, but of all positions, and special ones are predicted too (fairseq mask_tokens_dataset.py)
    electra  `bert_count` draws WITH replacement: a position may be in at_K more than once, and is then learned as often
             (google-research/electra pretrain_helpers.py). Slots that are left stand at position 0.
    """

    variants: ClassVar = ('clean', 'bert', 'roberta', 'electra')

    @property
    def needs_words(self) -> bool:
        return False

    def __call__(self, key, example: Example, vocab: Vocabulary, k: int) -> Selected:
        if self.variant != 'electra':
            return super().__call__(key, example, vocab, k)
        may_L = text(example, vocab)
        available = may_L.sum()
        count = jnp.where(available > 0, jnp.minimum(k, bert_count(self.rate, example)), 0)
        nth_K = jnp.int32(jax.random.uniform(key, (k,)) * available) + 1
        at_K = jnp.searchsorted(jnp.cumsum(may_L), nth_K).astype(jnp.int32)
        counts_K = jnp.arange(k) < count
        at_K = jnp.sort(jnp.where(counts_K, at_K, len(may_L)))
        return Selected(jnp.where(counts_K, at_K, 0), counts_K.astype(jnp.float32), jnp.where(counts_K, at_K, -1))

    def drawn(self, u_4L, example, may_L, k):
        if self.variant == 'roberta':
            may_L = example.segment_ids > 0
        if self.variant == 'bert':
            count = bert_count(self.rate, example)
        else:
            count = unbiased(u_4L[3, 1], self.rate, may_L.sum())
        chosen_L = ring(u_4L[3, 0], u_4L[0], may_L.astype(jnp.int32), jnp.minimum(count, k))
        return jnp.where(chosen_L, jnp.arange(len(may_L)), -1)


@struct.dataclass
class WholeWords(Selector):
    """Words, whole.

    original  `grams_in_turn`, one word each (google-research/bert create_pretraining_data.py; ALBERT's with ngram 1)
    fairseq   counts words, not tokens, and takes special tokens for words (fairseq mask_tokens_dataset.py)
    """

    variants: ClassVar = ('clean', 'original', 'fairseq')

    @property
    def spare(self) -> int:
        return 0 if self.variant == 'original' else 8

    def ids(self, example: Example) -> Array:
        """[L]: equal for the tokens of a unit."""
        return example.word_ids

    def drawn(self, u_4L, example, may_L, k):
        if self.variant == 'fairseq':
            may_L = example.segment_ids > 0
        units = cut(begins(self.ids(example), may_L, example.segment_ids), may_L)
        if self.variant == 'original':
            budget = jnp.minimum(k, bert_count(self.rate, example))
            return grams_in_turn(u_4L[0], u_4L[1], favor_short(1), units, budget)
        words_U = (units.size_U > 0).astype(jnp.int32)
        return self.drawn_whole(u_4L, units, k, words_U if self.variant == 'fairseq' else units.size_U)


@struct.dataclass
class Units(WholeWords):
    """As WholeWords, for the units of `example.unit_ids`: n-grams of high mutual information, entities, phrases."""

    @property
    def needs_words(self) -> bool:
        return False

    def ids(self, example: Example) -> Array:
        return example.unit_ids


@struct.dataclass
class NGrams(Selector):
    """Runs of 1 to `most` whole words, n with probability in proportion to 1/n; favor_shorter=False turns that round.

    original  `grams_in_turn`: an n-gram may lie across the [SEP] between A and B; its two parts count as units
              (google-research/albert create_pretraining_data.py)
    """

    most: int = struct.field(pytree_node=False, default=3)
    favor_shorter: bool = struct.field(pytree_node=False, default=True)

    @property
    def spare(self) -> int:
        return 0 if self.variant == 'original' else 6 + self.most

    @property
    def law(self) -> Array:
        return favor_short(self.most)[:: 1 if self.favor_shorter else -1]

    def drawn(self, u_4L, example, may_L, k):
        words_L = begins(example.word_ids, may_L, example.segment_ids)
        if self.variant == 'original':
            budget = jnp.minimum(k, bert_count(self.rate, example))
            return grams_in_turn(u_4L[0], u_4L[1], self.law, cut(words_L, may_L), budget)
        units = tiles(u_4L[1], u_4L[2], self.law, words_L, may_L, example)
        return self.drawn_whole(u_4L, units, k, units.size_U)


@struct.dataclass
class Spans(Selector):
    """Spans of 1 to `most` whole words, l with probability in proportion to (1 - p)^l (3.797 words on average).

    Spans that touch are one unit.
    original  `spans_in_turn`: rate * n of the n tokens of text, rounded up
              (facebookresearch/SpanBERT masking.py PairWithSpanMaskingScheme)
    """

    most: int = struct.field(pytree_node=False, default=10)
    p: Any = 0.2

    merged: ClassVar[bool] = True

    def check(self, key: str) -> None:
        super().check(key)
        if not 0.0 < float(self.p) < 1.0:
            raise BadInput(f'{key}.p is {float(self.p):g}; it is a probability, above 0 and below 1')

    @property
    def spare(self) -> int:
        return 0 if self.variant == 'original' else 6 + self.most

    @property
    def law(self) -> Array:
        law_N = (1.0 - self.p) ** jnp.arange(self.most)
        return law_N / law_N.sum()

    def drawn(self, u_4L, example, may_L, k):
        words_L = begins(example.word_ids, may_L, example.segment_ids)
        if self.variant == 'original':
            # Less a little, or it would be 4 for 0.15 * 20 in float32.
            budget = jnp.minimum(k, jnp.ceil(self.rate * may_L.sum() - 1e-4).astype(jnp.int32))
            return spans_in_turn(u_4L[0], u_4L[1, :k], self.law, words_L, may_L, example, budget)
        units = tiles(u_4L[1], u_4L[2], self.law, words_L, may_L, example)
        drawn_L = self.drawn_whole(u_4L, units, k, units.size_U)
        return jnp.minimum(drawn_L, 0) if self.merged else drawn_L


@struct.dataclass
class Stratified(Selector):
    """One n-gram of 1 to `most` words (with most=1: one token) in each window of n / rate: evenly spread (DeBERTa).

    clean     windows of exactly n / rate, the first of which begins before the text; the n-gram lies within
    original  windows of n * int(1 / rate), of which the last may be short; the n-gram begins within. As int(1 / .15)
              is 6, there are too many: `bert_count` tokens are taken from the left, and the last tenth of a row is
              hardly ever predicted (microsoft/DeBERTa mlm_task.py NGramMaskGenerator)
    """

    most: int = struct.field(pytree_node=False, default=1)

    @property
    def needs_words(self) -> bool:
        return self.most > 1

    @property
    def spare(self) -> int:
        return 1 if self.most == 1 else 10 + self.most

    def drawn(self, u_4L, example, may_L, k):
        ids_L = example.word_ids if self.most > 1 else jnp.arange(len(may_L))
        units = cut(begins(ids_L, may_L, example.segment_ids), may_L)
        total, law_N = (units.size_U > 0).sum(), favor_short(self.most)
        J = min(k + 2, len(may_L))  # windows: each has a token or more, save the first and the last
        n_J, place_J = draw(u_4L[1, :J], law_N), u_4L[2, :J]
        if self.variant == 'clean':
            # A place is in windows of n in proportion to how wide they are, and anywhere within with equal chance.
            wide_N = law_N * jnp.arange(1, self.most + 1)
            n_J = n_J.at[0].set(draw(u_4L[3, 0], wide_N / wide_N.sum()))
            window_J = n_J / self.rate
            start_J = jnp.cumsum(window_J) - window_J - u_4L[3, 1] * window_J[0]
            # As windows are n / rate wide, two n-grams that are rounded down never meet.
            at_J = jnp.floor(start_J + place_J * (window_J - n_J)).astype(jnp.int32)
        else:

            def step(offset, now):
                n, place = now
                context = jnp.minimum(n * window, total - offset)
                at = offset + jnp.floor(place * context).astype(jnp.int32)
                return jnp.maximum(offset + context, jnp.minimum(at + n, total)), at

            window = jnp.floor(1.0 / self.rate + 1e-5).astype(jnp.int32)
            _, at_J = jax.lax.scan(step, jnp.int32(0), (n_J, place_J))
        step_JN, gram_JN = jnp.indices((J, self.most))[::-1]
        place_JN = at_J[:, None] + step_JN
        there_JN = (step_JN < n_J[:, None]) & (place_JN >= 0)  # beyond the last unit lie empty ones
        gram_U = jnp.full_like(units.size_U, -1)
        gram_U = gram_U.at[jnp.where(there_JN, place_JN, len(may_L))].set(gram_JN, mode='drop')
        if self.variant == 'clean':
            kept_U = fit(u_4L[3, 2], gram_U >= 0, units.size_U, k)
        else:
            size_U = jnp.where(gram_U >= 0, units.size_U, 0)
            end_U = jnp.cumsum(size_U)
            kept_U = (end_U - size_U < jnp.minimum(k, bert_count(self.rate, example))) & (end_U <= k)
        return per_position(jnp.where(kept_U, gram_U, -1), units, -1)


SELECT: dict[str, Any] = {
    'tokens': Tokens,
    'whole_words': WholeWords,
    'units': Units,
    'ngrams': NGrams,
    'spans': Spans,
    'stratified': Stratified,
}
