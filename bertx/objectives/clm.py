"""Causal language modelling: the left-to-right row of BERT's Table 5 (Devlin et al. 2019).

The encoder is causal, and each position predicts the next token of its segment, whatever that is: text, [UNK], and the
[SEP] that ends A and B. Nothing is predicted across segments or into padding, and so never a [CLS]. Labels are the
tokens of the text, also where another objective has written over them in the view.
"""

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.errors import at_least
from bertx.objectives.base import Objective
from bertx.types import Example, Loss, View, Vocabulary


@struct.dataclass
class CLM(Objective):
    attention: ClassVar[str] = 'causal'

    weight: Any = 1.0
    chunk: int = struct.field(pytree_node=False, default=32)  # positions of a row whose logits exist at a time

    def check(self, key: str) -> None:
        at_least(1, f'{key}.chunk', self.chunk)

    def adapt(self, config):
        return dataclasses.replace(config, causal=True)

    def build(self, config):
        return heads.TokenHead(config)

    def flops(self, config, length):
        return length * config.flops_per_prediction

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        segment_L = example.segment_ids
        next_L = jnp.append(segment_L[1:], 0)
        weight_L = ((next_L == segment_L) & (segment_L > 0)).astype(jnp.float32)
        return view, {'label': jnp.append(example.tokens[1:], 0), 'weight': weight_L}

    def terms(self, head, encoded, targets):
        x_BLE, bias_V = head.output(encoded.for_tokens)

        def score(part):
            x_BCE, label_BC, weight_BC = part
            logits_BCV = heads.logits(x_BCE, bias_V, encoded.table_VE)
            return {
                'loss': losses.cross_entropy(logits_BCV, label_BC, weight_BC),
                'accuracy': losses.hits(logits_BCV, label_BC, weight_BC),
            }

        found = losses.by_chunks(score, (x_BLE, targets['label'], targets['weight']), self.chunk)
        return {'loss': Loss(self.weight, found['loss'])}, {'accuracy': found['accuracy']}
