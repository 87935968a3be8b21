"""What the sentence objectives share: a label per pair, read from the vector at the pair's [CLS]."""

from typing import Any, ClassVar

import jax.numpy as jnp

from bertx import heads, losses
from bertx.errors import BadInput
from bertx.objectives.base import Needs, Objective
from bertx.types import Array, Encoded, Example, Loss, Term, View, Vocabulary


class PairObjective(Objective):
    """Abstract; a subclass names the label, the number of classes, and has fields `weight` and `variant`."""

    label: ClassVar[str]
    classes: ClassVar[int] = 2
    weight: Any
    variant: str

    @property
    def needs(self) -> Needs:
        return Needs(formats=('segment_pair',), label=self.label, original=self.variant == 'original')

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

    def weights(self, targets):
        return {'loss': targets['weight'].sum(-1)}

    def features(self, encoded: Encoded, targets) -> Array:
        """[B, S, D]: all that the head reads, which is why it can be refitted on a frozen encoder."""
        return heads.gather(encoded.hidden_BLD, targets['at'])

    def scores(self, head, x_BSD, targets) -> tuple[dict[str, Loss], dict[str, Term]]:
        """Losses and metrics from the features alone."""
        logits = head(x_BSD)
        loss = losses.cross_entropy(logits, targets['label'], targets['weight'])
        return {'loss': Loss(self.weight, loss)}, {'accuracy': losses.hits(logits, targets['label'], targets['weight'])}

    def terms(self, head, encoded: Encoded, targets):
        return self.scores(head, self.features(encoded, targets), targets)
