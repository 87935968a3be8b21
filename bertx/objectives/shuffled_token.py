"""Shuffle (Yamaguchi et al. 2021): 15 % of the tokens are permuted among themselves; which have moved?

Tokens stay within their segment, so packed rows do not mix. A token that the permutation leaves where it was, or puts
where an equal one stood, has not moved. In the released code a token is drawn from the whole row instead, so that it
may come twice.
"""

import jax.numpy as jnp
from flax import struct

from bertx.cuts import Selected
from bertx.objectives.detection import Detection, shuffled
from bertx.types import Example, Vocabulary


@struct.dataclass
class ShuffledToken(Detection):
    def write(self, key, selected: Selected, example: Example, vocab: Vocabulary):
        at_K = selected.at_K
        group_K = jnp.where(selected.weight_K > 0, example.segment_ids[at_K], -1)
        return shuffled(key, example.tokens[at_K], group_K), jnp.ones_like(at_K)
