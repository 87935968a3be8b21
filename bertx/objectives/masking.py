"""What objectives on selected tokens share: which these are, and what is written there, are parts to choose."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
from flax import struct

from bertx.cuts import Selected
from bertx.errors import BadInput, one_of
from bertx.objectives.base import Needs, Objective
from bertx.replace import REPLACE
from bertx.select import SELECT, Units
from bertx.types import Array, Example, Vocabulary


@struct.dataclass
class Masking(Objective):
    """Abstract. Where None, a field is the variant's."""

    writes_tokens: ClassVar[bool] = True
    parts: ClassVar = {'select': SELECT, 'replace_by': REPLACE}
    variants: ClassVar[dict[str, dict[str, Any]]]  # name -> field -> its value

    select: Any = None
    replace_by: Any = None
    k: int = struct.field(pytree_node=False, default=0)  # slots for predicted positions; 0: from the rate and length
    variant: str = struct.field(pytree_node=False, default='clean')

    @classmethod
    def preset(cls, arguments: Mapping[str, Any], field: str) -> Any:
        return cls.variants.get(arguments.get('variant', 'clean'), {}).get(field)

    def filled(self):
        own = self.variants[self.variant]
        return dataclasses.replace(self, **{name: x for name, x in own.items() if getattr(self, name) is None})

    @property
    def needs(self) -> Needs:
        select = self.filled().select
        one_input = self.variant != 'clean' or select.variant != 'clean'
        return Needs(one_input=one_input, words=select.needs_words, units=isinstance(select, Units))

    def check(self, key: str) -> None:
        one_of(f'{key}.variant', self.variant, self.variants)
        if self.k < 0:
            raise BadInput(f'{key}.k is {self.k}; 0, for as many as the rate needs, or more would do')
        o = self.filled()
        o.select.check(f'{key}.select')
        if self.variant != 'clean' and o.select.variant == 'clean':
            raise BadInput(
                f"{key}.select.variant is 'clean' under {key}.variant {self.variant!r}; "
                f'say {" or ".join(map(repr, o.select.variants[1:]))}, or leave out one of the two'
            )
        o.replace_by.check(f'{key}.replace_by')

    def sized(self, length: int):
        o = self.filled()
        return dataclasses.replace(o, k=o.select.slots(length, o.k, 'k'))

    def draw(self, key, example: Example, vocab: Vocabulary) -> tuple[Selected, Array, Array, Any]:
        """What is selected, the tokens that stand there and those that are to [K], and a key for more."""
        select_key, replace_key, further_key = jax.random.split(key, 3)
        selected = self.select(select_key, example, vocab, self.k)
        label_K = example.tokens[selected.at_K]
        return selected, label_K, self.replace_by(replace_key, label_K, selected.unit_K, vocab), further_key
