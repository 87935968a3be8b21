"""What the sentence objectives share: a label per pair, read from the vector at the pair's [CLS]."""

from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct

from bertx import heads
from bertx.errors import BadInput
from bertx.objectives.base import Needs, Objective
from bertx.types import Array, Encoded, Example, View, Vocabulary


@struct.dataclass
class PairObjective(Objective):
    """Abstract; a subclass names the label and the number of classes."""

    attention: ClassVar[str] = 'either'
    label: ClassVar[str]
    classes: ClassVar[int] = 2

    weight: Any = 1.0
    variant: str = struct.field(pytree_node=False, default='clean')

    @property
    def needs(self) -> Needs:
        return Needs(formats=('segment_pair', 'sentence_pair'), label=self.label, original=self.variant == 'original')

    def check(self, key: str) -> None:
        if self.variant not in ('clean', 'original'):
            raise BadInput(f"{key}.variant is {self.variant!r}; 'clean' or 'original' would do")

    def build(self, config):
        return heads.PairHead(config, self.classes)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        """The view untouched; weight 0 where the row holds no such pair."""
        label_S = example.labels[self.label]
        weight_S = (label_S >= 0).astype(jnp.float32)
        return view, {'at': example.starts, 'label': jnp.maximum(label_S, 0), 'weight': weight_S}

    def features(self, encoded: Encoded, targets) -> Array:
        """[B, S, D] at the pairs' [CLS]; a causal encoder has seen the pair at its end."""
        at_BS = targets['at']
        if encoded.causal:
            at_BS = heads.ends(encoded.view.segment_ids, at_BS)
        return heads.gather(encoded.hidden_BLD, at_BS)
