"""Spans and their boundaries (Joshi et al. 2020, SpanBERT): MLM on spans, and the span boundary objective beside it.

Each token of a span is predicted twice: from its own vector (`mlm`), and from those of the two tokens around the span
and its place in it (`sbo`). Selected tokens that touch are one span, so the tokens around it are always as they were.

clean      spans of every place alike; the tokens around may be [CLS] and [SEP]; places from max_span_tokens on share
           an embedding
original   facebookresearch/SpanBERT masking.py, pair_bert.py: spans that begin at the first token of a text or end at
           its last have no `sbo` loss, nor have tokens from max_span_tokens on; the first positions are masked less;
           random tokens by their frequency. There a row is one text; here A and B are two, and [UNK] ends one, too
In both, 80/10/10 is drawn once for a span, as in the paper.
"""

import dataclasses
from typing import Any, ClassVar

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.cuts import text
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, at_least
from bertx.objectives.base import Needs
from bertx.objectives.mlm import MLM
from bertx.replace import REPLACE, Split, per_unit
from bertx.select import SELECT, Spans
from bertx.types import Array, Encoded, Example, Loss, View, Vocabulary

PLACE_WIDTH = 200  # of the embedding of a place within the span (pair_bert.py BertPairTargetPredictionHead)

PRESETS: dict[str, dict[str, Any]] = {
    'clean': {'select': Spans(), 'replace_by': Split(per='unit')},
    'original': {'select': Spans(variant='original'), 'replace_by': Split(random_from='unigram', per='unit')},
}


class SpanHead(nn.Module):
    """Predicts a span's token from the two tokens around it; the output layer is the tied table and a bias."""

    config: EncoderConfig
    max_span_tokens: int

    @nn.compact
    def __call__(self, around_BKD, place_BK, table_VE):
        """[B, K, V] float32. around_BKD: both vectors joined."""
        c = self.config
        place_BKD = nn.Embed(
            self.max_span_tokens, PLACE_WIDTH, embedding_init=c.initializer, dtype=c.compute_dtype, name='place'
        )(place_BK)
        x_BKD = jnp.concatenate([around_BKD, place_BKD], axis=-1)
        for name, width in (('first', c.width), ('second', c.table_width)):
            x_BKD = c.norm(f'{name}_norm')(c.activate(c.dense(width, name)(x_BKD)))
        bias_V = self.param('bias', nn.initializers.zeros, (c.vocab_size,))
        return heads.logits(x_BKD, bias_V, table_VE)


class Heads(nn.Module):
    """Both, on the vectors of a token and of the two tokens around its span, joined."""

    config: EncoderConfig
    max_span_tokens: int

    def setup(self):
        self.token = heads.TokenHead(self.config)
        self.span = SpanHead(self.config, self.max_span_tokens)

    def __call__(self, x_BKD, table_VE, place_BK=None):
        """Two [B, K, V] float32."""
        width = x_BKD.shape[-1] // 3
        place_BK = jnp.zeros(x_BKD.shape[:2], jnp.int32) if place_BK is None else place_BK
        return self.token(x_BKD[..., :width], table_VE), self.span(x_BKD[..., width:], place_BK, table_VE)


@struct.dataclass
class SBO(MLM):
    token_losses: ClassVar[tuple[str, ...]] = ('mlm', 'sbo')
    parts: ClassVar = {'select': {'spans': Spans} | SELECT, 'replace_by': REPLACE}
    variants: ClassVar = PRESETS

    sbo_weight: Any = 1.0  # `weight` is MLM's (spanbert_loss.py: both 1, each a mean over its own tokens)
    max_span_tokens: int = struct.field(pytree_node=False, default=20)  # max_pair_targets of the released code

    @property
    def needs(self) -> Needs:
        return dataclasses.replace(super().needs, original=None)

    def check(self, key: str) -> None:
        super().check(key)
        if self.select and self.select.variant == 'electra':
            raise BadInput(
                f"{key}.select.variant 'electra' draws a position twice, which no span has; 'clean' would do"
            )
        if float(self.predicted) != 1.0:
            raise BadInput(f'{key}.predicted is {float(self.predicted):g}; 1 would do, as spans are predicted whole')
        at_least(1, f'{key}.max_span_tokens', self.max_span_tokens)

    def build(self, config):
        return Heads(config, self.max_span_tokens)

    def flops(self, config, length):
        span = 2.0 * config.width * (2 * config.width + PLACE_WIDTH)
        return self.k * (span + 2 * config.flops_per_prediction)

    def corrupt(self, key, example: Example, view: View, vocab: Vocabulary):
        view, targets = super().corrupt(key, example, view, vocab)
        at_K, weight_K, segment_L = targets['at'], targets['weight'], example.segment_ids
        before_K, after_K = around(at_K, weight_K, segment_L[at_K])
        if self.variant == 'original':
            segment_L = jnp.where(text(example, vocab), segment_L, 0)
        of = lambda at_K: jnp.take(segment_L, at_K, mode='fill', fill_value=0)
        inside_K = (before_K >= 0) & (of(before_K) == segment_L[at_K]) & (of(after_K) == segment_L[at_K])
        place_K = at_K - before_K - 1
        if self.variant == 'original':
            inside_K &= place_K < self.max_span_tokens
        return view, targets | {
            'before': jnp.where(inside_K, before_K, 0),
            'after': jnp.where(inside_K, after_K, 0),
            'place': jnp.clip(place_K, 0, self.max_span_tokens - 1),
            'inside': weight_K * inside_K,
        }

    def weights(self, targets):
        return {'mlm': targets['weight'].sum(-1), 'sbo': targets['inside'].sum(-1)}

    def features(self, encoded: Encoded, targets) -> Array:
        around = [heads.gather(encoded.hidden_BLD, targets[name]) for name in ('before', 'after')]
        return jnp.concatenate([heads.gather(encoded.for_tokens, targets['at']), *around], axis=-1)

    def scores(self, head, x_BKD, table_VE, targets):
        mlm_BKV, sbo_BKV = head(x_BKD, table_VE, targets['place'])
        label_BK, weight_BK, inside_BK = targets['label'], targets['weight'], targets['inside']
        return {
            'mlm': Loss(self.weight, losses.cross_entropy(mlm_BKV, label_BK, weight_BK)),
            'sbo': Loss(self.sbo_weight, losses.cross_entropy(sbo_BKV, label_BK, inside_BK)),
        }, {
            'accuracy': losses.hits(sbo_BKV, label_BK, inside_BK),
            'mlm_accuracy': losses.hits(mlm_BKV, label_BK, weight_BK),
        }


def around(at_K, weight_K, segment_K) -> tuple[Array, Array]:
    """[K] each: the positions before and after each one's run of neighbouring positions of one segment that count."""
    previous = lambda x_K: jnp.roll(x_K, 1)
    same_K = (at_K == previous(at_K) + 1) & (segment_K == previous(segment_K)) & (weight_K == previous(weight_K))
    run_K = jnp.cumsum(~same_K.at[0].set(False))
    return per_unit(at_K, run_K) - 1, per_unit(at_K[::-1], run_K[::-1])[::-1] + 1
