"""What the detection objectives share: some tokens are replaced, and each text token is told from those that were not.

They differ in what they write over the selected tokens. A token that is the same as before counts as not replaced,
as in ELECTRA; the released code of Yamaguchi et al. 2021 (gucci-j/light-transformer-emnlp2021 data_collator.py) counts
it as replaced. Special tokens have no loss (there, binary objectives have it on them too).
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertx import heads
from bertx.cuts import Selected, text
from bertx.errors import BadInput
from bertx.objectives.base import Objective
from bertx.select import Tokens
from bertx.types import Array, Encoded, Example, View, Vocabulary


@struct.dataclass
class Detection(Objective):
    """Abstract. `balanced`: the loss is on the replaced tokens and as many of the untouched ones of the row, drawn at
    random, so that without looking at the text one is right half of the time; else it is on all of the text."""

    writes_tokens: ClassVar[bool] = True
    classes: ClassVar[int] = 2  # 0: as it was

    rate: Any = 0.15  # share of the text's tokens that is written over
    weight: Any = 1.0
    balanced: bool = struct.field(pytree_node=False, default=False)
    slots: int = struct.field(pytree_node=False, default=0)  # for the tokens written over; 0: from the rate and length

    def check(self, key: str) -> None:
        Tokens(self.rate).check(key)
        if float(self.rate) == 1.0:
            raise BadInput(f'{key}.rate is 1, which leaves no token as it was; below 1 would do')
        if self.slots < 0:
            raise BadInput(f'{key}.slots is {self.slots}; 0, for as many as the rate needs, or more would do')

    def sized(self, length: int) -> 'Detection':
        return dataclasses.replace(self, slots=Tokens(self.rate).slots(length, self.slots, 'slots'))

    def as_task(self) -> 'Detection':
        """Balanced, so that all arms have the same chance and few positions are kept for the refit."""
        return dataclasses.replace(self, balanced=True)

    def build(self, config):
        return heads.ClassHead(config, self.classes)

    def flops(self, config, length):
        return (2 * self.slots if self.balanced else length) * config.flops_per_class(self.classes)

    def write(self, key, selected: Selected, example: Example, vocab: Vocabulary) -> tuple[Array, Array]:
        """[K]: the new tokens at the selected positions, and the class of those that are new there."""
        raise NotImplementedError

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        select_key, write_key, balance_key = jax.random.split(key, 3)
        selected = Tokens(self.rate)(select_key, example, vocab, self.slots)
        at_K, old_K = selected.at_K, example.tokens[selected.at_K]
        new_K, class_K = self.write(write_key, selected, example, vocab)
        new_K = jnp.where(selected.weight_K > 0, new_K, old_K)
        label_L = jnp.zeros_like(example.tokens).at[at_K].set(jnp.where(new_K != old_K, class_K, 0))
        text_L = text(example, vocab)
        targets = {'label': label_L, 'weight': text_L.astype(jnp.float32)}
        if self.balanced:
            touched_L = jnp.zeros_like(text_L).at[at_K].set(selected.weight_K > 0)
            targets = balance(balance_key, label_L, text_L & ~touched_L, self.slots)
        return dataclasses.replace(view, tokens=view.tokens.at[at_K].set(new_K)), targets

    def features(self, encoded: Encoded, targets) -> Array:
        return heads.gather(encoded.hidden_BLD, targets['at']) if self.balanced else encoded.hidden_BLD


def balance(key, label_L, untouched_L, k: int):
    """Targets at 2k positions: of replaced and of untouched ones as many as there are of the fewer."""
    u_L = jax.random.uniform(key, label_L.shape)
    replaced_L = label_L > 0
    first = lambda may_L: jax.lax.top_k(jnp.where(may_L, u_L, -1.0), k)[1]
    at_K = jnp.concatenate([first(replaced_L), first(untouched_L)])
    count = jnp.minimum(replaced_L.sum(), untouched_L.sum())
    weight_K = jnp.tile(jnp.arange(k) < count, 2).astype(jnp.float32)
    return {'at': at_K.astype(jnp.int32), 'label': label_L[at_K], 'weight': weight_K}


def shuffled(key, tokens_K, group_K) -> Array:
    """[K]: the tokens permuted at random among those of equal group."""
    u_K, at_K = jax.random.uniform(key, tokens_K.shape), jnp.arange(len(tokens_K))
    to_K, from_K = jnp.lexsort((at_K, group_K)), jnp.lexsort((u_K, group_K))
    return tokens_K.at[to_K].set(tokens_K[from_K])
