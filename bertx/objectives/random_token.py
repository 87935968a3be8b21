"""Random (Yamaguchi et al. 2021): 15 % of the tokens are replaced by random ones; which are they?

ELECTRA without a generator. With random_from='unigram' the frequency of a token says nothing of whether it was
replaced; so it is, with as many untouched tokens, where all arms are judged on it (replaced token detection).
"""

import dataclasses

import jax.numpy as jnp
from flax import struct

from bertx.cuts import Selected
from bertx.objectives.detection import Detection
from bertx.replace import Split
from bertx.types import Example, Vocabulary


@struct.dataclass
class RandomToken(Detection):
    random_from: str = struct.field(pytree_node=False, default='ordinary')  # see `Split`

    def check(self, key: str) -> None:
        super().check(key)
        Split(random_from=self.random_from).check(key)

    def as_task(self) -> 'RandomToken':
        return dataclasses.replace(self, balanced=True, random_from='unigram')

    def write(self, key, selected: Selected, example: Example, vocab: Vocabulary):
        at_K = selected.at_K
        return Split(random_from=self.random_from).others(key, vocab, at_K.shape), jnp.ones_like(at_K)
