"""Masked language modelling (Devlin et al. 2019).

clean      masks drawn anew each epoch, never on a special token; the count is unbiased; random replacements are text
original   google-research/bert: static masks repeated every `dupe_factor` epochs, max(1, round(rate * length)) of them
           with [CLS] and [SEP] counted in the length, random replacements from the whole vocabulary
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from bertx import corrupt, heads, losses
from bertx.errors import BadInput
from bertx.objectives.base import Needs, Objective
from bertx.types import Example, Loss, View, Vocabulary


@struct.dataclass
class MLM(Objective):
    writes_tokens: ClassVar[bool] = True
    parts: ClassVar = {'select': corrupt.SELECT, 'replace_by': corrupt.REPLACE}

    select: Any = None  # None: the variant's own
    replace_by: Any = None
    weight: Any = 1.0
    k: int = struct.field(pytree_node=False, default=0)  # slots for predicted positions; 0: from the rate and length
    variant: str = struct.field(pytree_node=False, default='clean')

    @property
    def needs(self) -> Needs:
        return Needs(original=self.variant == 'original')

    def check(self, key: str) -> None:
        if self.variant not in ('clean', 'original'):
            raise BadInput(f"{key}.variant is {self.variant!r}; 'clean' or 'original' would do")
        if self.k < 0:
            raise BadInput(f'{key}.k is {self.k}; 0, for as many as the rate needs, or more would do')
        if self.select is not None:
            self.select.check(f'{key}.select')
        if self.replace_by is not None:
            self.replace_by.check(f'{key}.replace_by')

    def sized(self, length: int) -> 'MLM':
        original = self.variant == 'original'
        select = self.select or corrupt.Tokens(count='bert' if original else 'unbiased')
        replace_by = self.replace_by or corrupt.Split(random_from='vocabulary' if original else 'ordinary')
        return dataclasses.replace(
            self, select=select, replace_by=replace_by, k=min(self.k or select.slots(length), length)
        )

    def build(self, config):
        return heads.TokenHead(config)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        select_key, replace_key = jax.random.split(key)
        at_K, weight_K = self.select(select_key, example, vocab, self.k)
        label_K = example.tokens[at_K]
        new_K = jnp.where(weight_K > 0, self.replace_by(replace_key, label_K, vocab), label_K)
        targets = {'at': at_K, 'label': label_K, 'weight': weight_K}
        return dataclasses.replace(view, tokens=view.tokens.at[at_K].set(new_K)), targets

    def weights(self, targets):
        return {'loss': targets['weight'].sum(-1)}

    def scores(self, head, x_BKD, table_VE, targets):
        logits_BKV = head(x_BKD, table_VE)
        label_BK, weight_BK = targets['label'], targets['weight']
        loss = Loss(self.weight, losses.cross_entropy(logits_BKV, label_BK, weight_BK))
        return {'loss': loss}, {'accuracy': losses.hits(logits_BKV, label_BK, weight_BK)}
