"""What is written over the selected positions of ONE example."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bertx.errors import BadInput, one_of
from bertx.types import Array, Vocabulary

RANDOM_FROM = ('ordinary', 'vocabulary', 'fairseq', 'unigram')


def per_unit(value_K, unit_K) -> Array:
    """[K]: the value of the first of each unit's positions, which are neighbours."""
    begins_K = (unit_K != jnp.roll(unit_K, 1)).at[0].set(True)
    return value_K[jax.lax.cummax(jnp.where(begins_K, jnp.arange(len(unit_K)), 0))]


@struct.dataclass
class Split:
    """[MASK], a random token, or the token itself (80/10/10 in BERT).

    random_from  ordinary    text, each token as often
                 vocabulary  all ids, special ones and the original included (google-research/bert)
                 fairseq     text and [MASK], which is added to the dictionary too late to be left out
                             (fairseq mask_tokens_dataset.py)
                 unigram     as often as in the training split (facebookresearch/SpanBERT masking.py)
    per          token, or unit: all tokens of a word or span share what is done to them, not the random ids
                 (SpanBERT's spans, fairseq's words)
    """

    mask: Any = 0.8
    random: Any = 0.1
    random_from: str = struct.field(pytree_node=False, default='ordinary')
    per: str = struct.field(pytree_node=False, default='token')

    def check(self, key: str) -> None:
        mask, random = float(self.mask), float(self.random)
        if min(mask, random) < 0.0 or mask + random > 1.0 + 1e-6:
            raise BadInput(f'{key}: mask {mask:g} and random {random:g} are shares; together they are at most 1')
        one_of(f'{key}.random_from', self.random_from, RANDOM_FROM)
        if self.per not in ('token', 'unit'):
            raise BadInput(f"{key}.per is {self.per!r}; 'token' or 'unit' would do")

    def __call__(self, key, tokens_K, unit_K, vocab: Vocabulary) -> Array:
        """[K]: the new tokens."""
        action_K, token_K = jax.random.uniform(key, (2, *tokens_K.shape))
        if self.per == 'unit':
            action_K = per_unit(action_K, unit_K)
        other_K = self.pick(token_K, vocab).astype(tokens_K.dtype)
        return jnp.where(
            action_K < self.mask, vocab.mask, jnp.where(action_K < self.mask + self.random, other_K, tokens_K)
        )

    def others(self, key, vocab: Vocabulary, shape) -> Array:
        """Random tokens."""
        return self.pick(jax.random.uniform(key, shape), vocab)

    def pick(self, u, vocab: Vocabulary) -> Array:
        """The tokens of uniform random numbers in [0, 1): where the weights first add up to more than that share."""
        # Of text alone: the corpus counts [UNK] too, which would give away that it was written.
        weight_V = jnp.where(vocab.ordinary_V, vocab.unigram_V if self.random_from == 'unigram' else 1.0, 0.0)
        if self.random_from == 'fairseq':
            weight_V = weight_V.at[vocab.mask].set(1.0)
        if self.random_from == 'vocabulary':
            return jnp.int32(u * len(weight_V))
        ends_V = jnp.cumsum(weight_V, dtype=jnp.float32)
        return jnp.minimum(jnp.searchsorted(ends_V, u * ends_V[-1], side='right'), len(ends_V) - 1)


REPLACE: dict[str, Any] = {'split': Split}
