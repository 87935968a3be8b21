"""Pure primitives of noise: which positions of ONE example are predicted, and what is written there.

Rows are fixed-size and counts are traced, so any rate runs in one compiled program: positions are ranked, and the
first n of the k static slots count.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from bertx.errors import BadInput
from bertx.types import Array, Example, Vocabulary


def slots(rate: float, length: int) -> int:
    """Static k for a rate: room for the rounded-up count, in buckets so that near rates share a compilation."""
    bucket = max(4, length // 32)
    return min(length, -(-round(rate * length + 0.5) // bucket) * bucket)


def ordinary(example: Example, vocab: Vocabulary) -> Array:
    """[L] bool: text that may be predicted; neither padding nor a special token."""
    return vocab.ordinary_V[example.tokens] & (example.segment_ids > 0)


@struct.dataclass
class Tokens:
    """Independent tokens, without replacement.

    rate: share of the ordinary tokens. `count` says how many that is:
    'unbiased'  floor(rate * n + U[0, 1)): rate * n on average for any n (the rounding fairseq uses)
    'bert'      max(1, round(rate * m)), m counting [CLS] and [SEP] too (google-research/bert, which like
                jnp.round rounds half to even)
    """

    rate: Any = 0.15
    count: str = struct.field(pytree_node=False, default='unbiased')

    def check(self, key: str) -> None:
        if not 0.0 < float(self.rate) <= 1.0:
            raise BadInput(f'{key}.rate is {float(self.rate):g}; it is a share of the tokens, above 0 and at most 1')
        if self.count not in ('unbiased', 'bert'):
            raise BadInput(f"{key}.count is {self.count!r}; 'unbiased' or 'bert' would do")

    def slots(self, length: int) -> int:
        return slots(float(self.rate), length)

    def __call__(self, key, example: Example, vocab: Vocabulary, k: int) -> tuple[Array, Array]:
        """Distinct positions [k] int32 in ascending order, those that count first, and weights [k] float32."""
        order_key, count_key = jax.random.split(key)
        may_L = ordinary(example, vocab)
        available = may_L.sum()
        score_L = jnp.where(may_L, jax.random.uniform(order_key, may_L.shape), 2.0)
        _, at_K = jax.lax.top_k(-score_L, k)
        if self.count == 'bert':
            wanted = jnp.maximum(1.0, jnp.round(self.rate * (example.segment_ids > 0).sum()))
        else:
            wanted = jnp.floor(self.rate * available + jax.random.uniform(count_key))
        chosen_K = jnp.arange(k) < jnp.minimum(wanted, available)
        return at_K.astype(jnp.int32), chosen_K.astype(jnp.float32)


@struct.dataclass
class Split:
    """What is written over a predicted token: [MASK], a random token, or the token itself (80/10/10 in BERT).

    `random_from`: 'ordinary' draws among text ids; 'vocabulary' among all ids, special ones and the original
    included (google-research/bert).
    """

    mask: Any = 0.8
    random: Any = 0.1
    random_from: str = struct.field(pytree_node=False, default='ordinary')

    def check(self, key: str) -> None:
        mask, random = float(self.mask), float(self.random)
        if min(mask, random) < 0.0 or mask + random > 1.0 + 1e-6:
            raise BadInput(f'{key}: mask {mask:g} and random {random:g} are shares; together they are at most 1')
        if self.random_from not in ('ordinary', 'vocabulary'):
            raise BadInput(f"{key}.random_from is {self.random_from!r}; 'ordinary' or 'vocabulary' would do")

    def __call__(self, key, tokens_K, vocab: Vocabulary) -> Array:
        """[K]: the new tokens."""
        action_key, token_key = jax.random.split(key)
        action_K = jax.random.uniform(action_key, tokens_K.shape)
        may_V = vocab.ordinary_V if self.random_from == 'ordinary' else jnp.ones_like(vocab.ordinary_V)
        rank_V = jnp.cumsum(may_V.astype(jnp.int32))  # the id of the r-th allowed token is where the rank first is r
        drawn_K = jax.random.randint(token_key, tokens_K.shape, 1, rank_V[-1] + 1)
        other_K = jnp.searchsorted(rank_V, drawn_K).astype(tokens_K.dtype)
        return jnp.where(
            action_K < self.mask, vocab.mask, jnp.where(action_K < self.mask + self.random, other_K, tokens_K)
        )


SELECT: dict[str, Any] = {'tokens': Tokens}
REPLACE: dict[str, Any] = {'split': Split}
