"""Shuffle + Random (Yamaguchi et al. 2021; Alajrami & Aletras 2022): three classes, as it was, moved, random.

Of the tokens that are written over one half is permuted as in shuffled_token.py, the other replaced as in
random_token.py.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertx.cuts import Selected
from bertx.errors import BadInput
from bertx.objectives.detection import shuffled
from bertx.objectives.random_token import RandomToken
from bertx.replace import Split
from bertx.types import Example, Vocabulary


@struct.dataclass
class ShuffledRandom(RandomToken):
    classes: ClassVar[int] = 3

    rate: Any = 0.2  # 10 % and 10 %
    moved: Any = 0.5  # share of the written tokens that is permuted

    def check(self, key: str) -> None:
        super().check(key)
        if not 0.0 <= float(self.moved) <= 1.0:
            raise BadInput(f'{key}.moved is {float(self.moved):g}; a share from 0 to 1 would do')

    def write(self, key, selected: Selected, example: Example, vocab: Vocabulary):
        which_key, move_key, draw_key = jax.random.split(key, 3)
        at_K = selected.at_K
        moved_K = (jax.random.uniform(which_key, at_K.shape) < self.moved) & (selected.weight_K > 0)
        moved = shuffled(move_key, example.tokens[at_K], jnp.where(moved_K, example.segment_ids[at_K], -1))
        drawn = Split(random_from=self.random_from).others(draw_key, vocab, at_K.shape)
        return jnp.where(moved_K, moved, drawn), jnp.where(moved_K, 1, 2)
