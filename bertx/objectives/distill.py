"""Distillation (Sanh et al. 2019, DistilBERT): be like a frozen teacher, a run of this project or a Hugging Face model.

It runs beside `mlm`, which masks the tokens and has the hard labels; the teacher reads the same masked row, without
dropout. In DistilBERT the coefficients are 5 for the soft targets, 2 for MLM (mlm.weight) and 1 for the cosine.

soft    KL divergence of the student's token distribution from the teacher's, both at a temperature T, times T^2
cosine  one minus the cosine of their last hidden states
mse     where it has a coefficient: mean squared difference of their last hidden states

All are means over the real tokens, as in the released code unless it is told --restrict_ce_to_mask. Where the widths
differ, the student's hidden states go through a learned projection. The soft targets train an MLM head of their own,
not that of `mlm`, which the released code trains with both; encoder and tied table get both gradients. Student layers
start at random, not as the teacher's.
"""

import dataclasses
import functools
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.encoder import Encoder, abstract
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, at_least
from bertx.objectives.base import Objective
from bertx.pretrained import Pretrained, check_tokenizer
from bertx.types import Encoded, Example, Loss, Term, View, Vocabulary


class Heads(nn.Module):
    """The student's head, and the teacher in the collection 'frozen'."""

    config: EncoderConfig
    teacher: EncoderConfig

    def setup(self):
        c, t = self.config, self.teacher
        self.token = heads.TokenHead(c)
        self.project = nn.Dense(t.width, kernel_init=c.initializer, dtype=c.compute_dtype)
        zeros = lambda: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), teacher_shapes(t))
        self.held = self.variable('frozen', 'teacher', zeros)

    def like_teacher(self, x_BLD):
        """[B, L, D of the teacher] float32."""
        return (x_BLD if self.config.width == self.teacher.width else self.project(x_BLD)).astype(jnp.float32)

    def teach(self, view: View):
        """What the teacher's encoder gives, and [B, L, E] and the bias that make its logits (`heads.logits`)."""
        params = jax.lax.stop_gradient(self.held.value)
        encoder: Any = Encoder(self.teacher, parent=None)
        token = heads.TokenHead(self.teacher, parent=None)
        encoded = encoder.apply({'params': params['encoder']}, view)
        return encoded, *token.apply({'params': params['head']}, encoded.for_tokens, method='output')


@functools.lru_cache
def teacher_shapes(config: EncoderConfig) -> Any:
    """Shapes of a teacher's parameters."""
    x, table = jnp.zeros((1, 1, config.width)), jnp.zeros((config.vocab_size, config.table_width))
    head = jax.eval_shape(heads.TokenHead(config).init, jax.random.key(0), x, table)
    return {'encoder': abstract(config), 'head': head['params']}


@struct.dataclass
class Distill(Objective):
    temperature: Any = 2.0  # default of the released train.py
    soft: Any = 5.0
    cosine: Any = 1.0
    mse: Any = None  # None: not computed
    teacher: str = struct.field(pytree_node=False, default='')  # the folder of a run, or of Hugging Face
    chunk: int = struct.field(pytree_node=False, default=32)  # positions of a row whose logits exist at a time

    @property
    def source(self) -> Pretrained:
        return Pretrained.load(self.teacher)

    def check(self, key: str) -> None:
        if not self.teacher:
            raise BadInput(f"{key}.teacher is ''; the folder of a run, or of Hugging Face, would do")
        if 'mlm' not in self.source.heads:
            raise BadInput(f'{key}.teacher: {self.teacher} was not trained with mlm; one that was would do')
        if not float(self.temperature) > 0:
            raise BadInput(f'{key}.temperature is {float(self.temperature):g}; it must be above 0')
        for name in ('soft', 'cosine', 'mse'):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool | str) or value < 0):
                raise BadInput(f'{key}.{name} is {value!r}; 0 or more, or None to leave it out, would do')
        at_least(1, f'{key}.chunk', self.chunk)

    def check_store(self, key: str, store) -> None:
        check_tokenizer(self.source, store.tokenizer)
        if (its := self.source.encoder.vocab_size) != store.tokenizer.vocab_size:
            raise BadInput(
                f'{key}.teacher has {its} pieces, and config.data {store.tokenizer.vocab_size}; as many would do'
            )

    def sized(self, length: int) -> 'Distill':
        if length > (most := self.source.encoder.max_positions):
            raise BadInput(f'config.rows.length is {length}; the teacher {self.teacher} has {most} positions')
        return self

    def teacher_config(self, config: EncoderConfig) -> EncoderConfig:
        """The teacher's sizes, computed as the student is."""
        how = {name: getattr(config, name) for name in ('precision', 'attention', 'unroll')}
        return dataclasses.replace(self.source.encoder, **how)

    def build(self, config):
        return Heads(config, self.teacher_config(config))

    def frozen(self):
        params = self.source.params
        return {'teacher': {'encoder': params['encoder'], 'head': params['heads_mlm']}}

    def content(self) -> str:
        return self.source.content

    def flops(self, config: EncoderConfig, length: int) -> float:
        teacher = self.teacher_config(config)
        taught = teacher.flops_per_token(length) + teacher.flops_per_prediction
        return length * (config.flops_per_prediction + taught / 3)  # it has no way back, which costs twice as much

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        """The view untouched; a loss on every real token."""
        return view, {'weight': (example.segment_ids > 0).astype(jnp.float32)}

    def weights(self, targets):
        weight_B = targets['weight'].sum(-1)
        return {name: weight_B for name in ('soft', 'cosine', 'mse') if getattr(self, name) is not None}

    def terms(self, head, encoded: Encoded, targets) -> tuple[dict[str, Loss], dict[str, Term]]:
        weight_BL, t = targets['weight'], self.temperature
        taught, y_BLE, teacher_bias_V = head.teach(encoded.view)
        x_BLE, bias_V = head.token.output(encoded.for_tokens)

        def score(part):
            x_BCE, y_BCE, weight_BC = part
            logits_BCV = heads.logits(x_BCE, bias_V, encoded.table_VE)
            teacher_BCV = heads.logits(y_BCE, teacher_bias_V, taught.table_VE)
            log_q_BCV, log_p_BCV = jax.nn.log_softmax(logits_BCV / t), jax.nn.log_softmax(teacher_BCV / t)
            divergence_BC = (jnp.exp(log_p_BCV) * (log_p_BCV - log_q_BCV)).sum(-1)
            return {
                'soft': losses.term(t**2 * divergence_BC, weight_BC),
                'accuracy': losses.hits(logits_BCV, teacher_BCV.argmax(-1), weight_BC),
            }

        found = losses.by_chunks(score, (x_BLE, y_BLE, weight_BL), self.chunk)
        mine_BLD, its_BLD = head.like_teacher(encoded.hidden_BLD), taught.hidden_BLD.astype(jnp.float32)
        found['cosine'] = losses.term(1.0 - cosine(mine_BLD, its_BLD), weight_BL)
        found['mse'] = losses.term(((mine_BLD - its_BLD) ** 2).mean(-1), weight_BL)
        return {name: Loss(getattr(self, name), found[name]) for name in self.weights(targets)}, {
            'accuracy': found['accuracy']  # how often both would say the same token
        }


def cosine(x_BLD, y_BLD):
    """[B, L]"""
    squares_BL = (x_BLD**2).sum(-1) * (y_BLD**2).sum(-1)
    return (x_BLD * y_BLD).sum(-1) / jnp.sqrt(squares_BL + 1e-12)
