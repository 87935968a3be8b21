"""Heads for the kinds of task, their losses, and what they say of a row."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertx.embeddings import Dropout
from bertx.encoder import Encoder, encode
from bertx.encoder_config import EncoderConfig
from bertx.errors import unknown
from bertx.heads import Pooler, gather
from bertx.losses import cross_entropy
from bertx.types import DropoutRates, View

# What of a frozen encoder's states (the embedding's, then each layer's) is read; Devlin et al. 2019, Table 7, has most
# of them, the mix is Peters et al. 2018, equation 1. '': the last, and the encoder learns too.
FEATURES = ('', 'embeddings', 'last', 'second_to_last', 'sum_last_4', 'concat_last_4', 'sum_all', 'mix')
POOLED = ('classify', 'regress', 'rank')  # kinds that read [CLS]
FAR = -1e9  # logit of a place that cannot be


@dataclasses.dataclass(frozen=True)
class HeadSpec:
    """All that a head's graph depends on."""

    kind: str
    classes: int
    features: str = ''
    longest: int = 30  # pieces of an answer (google-research/bert run_squad.py max_answer_length)


class TaskHead(nn.Module):
    """BERT's heads: pooler, dropout and classifier on [CLS]; dropout and classifier at every position; of 'qa' the
    classifier alone (google-research/bert run_squad.py)."""

    config: EncoderConfig
    spec: HeadSpec

    @nn.compact
    def __call__(self, x, rates: DropoutRates | None = None, at_B1=None):
        """x: [B, L, D], or all states [N, B, L, D] where the spec has features. [B, classes] or [B, L, classes].

        at_B1: what is pooled, if not [CLS].
        """
        c, spec = self.config, self.spec
        if spec.features == 'mix':
            shares_N = jax.nn.softmax(self.param('mix', nn.initializers.zeros, (c.layers + 1,)))
            x = self.param('gain', nn.initializers.ones, ()) * jnp.einsum('n,nbld->bld', shares_N, x)
        elif spec.features:
            x = chosen(spec.features, x)
        if spec.kind in POOLED:
            x = Pooler(c, name='pooler')(x[:, :1] if at_B1 is None else gather(x, at_B1))[:, 0]
        elif c.pooler_norm:  # ModernBERT has one head for all its tasks
            x = Pooler(c, name='pooler')(x)
        x = x.astype(jnp.float32)
        if spec.kind != 'qa':
            x = Dropout()(x, rates and rates.hidden)
        return nn.Dense(spec.classes, kernel_init=c.initializer, name='classifier')(x)


def chosen(features: str, states_NBLD):
    """[B, L, D], or [B, L, 4 D] for 'concat_last_4'."""
    last = states_NBLD[-4:]
    if features == 'concat_last_4':
        return jnp.moveaxis(last, 0, 2).reshape(*states_NBLD.shape[1:3], -1)
    found = {
        'embeddings': states_NBLD[0], 'last': states_NBLD[-1], 'second_to_last': states_NBLD[-2],
        'sum_last_4': last.sum(0), 'sum_all': states_NBLD[1:].sum(0),
    }  # fmt: skip
    if features not in found:
        raise unknown('config.features', features, FEATURES)
    return found[features]


def logits(config: EncoderConfig, spec: HeadSpec, encoder: Any, head: Any, batch: dict[str, Any], rates=None, key=None):
    """[B, classes] or [B, L, classes]. A frozen encoder runs without dropout."""
    view = View(batch['tokens'], batch['segment_ids'], batch['positions'], batch['type_ids'])
    rngs = lambda name: {} if rates is None else {'dropout': jax.random.fold_in(key, name)}
    if spec.features:
        x: Any = jax.lax.stop_gradient(encode(config, encoder, view, taps=True).states_NBLD)
    else:
        encoded: Any = Encoder(config).apply({'params': encoder}, view, rates, rngs=rngs(0))
        x = encoded.hidden_BLD
    # A causal encoder's [CLS] has read nothing; its last token has read all.
    at_B1 = view.segment_ids.sum(1, keepdims=True) - 1 if config.causal else None
    return TaskHead(config, spec).apply({'params': head}, x, rates, at_B1, rngs=rngs(1))


def loss(spec: HeadSpec, found, batch: dict[str, Any], class_weights_C):
    """(sum, weight) over the batch: cross entropy in nats; for 'regress' the squared error."""
    weight_B, label = batch['weight'], batch.get('label', 0)
    if spec.kind == 'regress':
        return (weight_B * (found[:, 0] - label) ** 2).sum(), weight_B.sum()
    if spec.kind == 'qa':
        sums = sum(cross_entropy(x_BL, batch[name], weight_B).sum.sum() for name, x_BL in ends(found, batch))
        return sums / 2, weight_B.sum()
    if spec.kind == 'tag':
        weight_B = weight_B[:, None] * (label >= 0)
        label = jnp.maximum(label, 0)
    term = cross_entropy(found, label, weight_B * class_weights_C[label])
    return term.sum.sum(), term.weight.sum()


def ends(found_BL2, batch):
    """Start and end logits [B, L] of the real positions."""
    real_BL = batch['segment_ids'] > 0
    return [(name, jnp.where(real_BL, found_BL2[..., i], FAR)) for i, name in enumerate(('start', 'end'))]


def said(spec: HeadSpec, found, batch: dict[str, Any]):
    """What the host needs of the logits, for each row."""
    if spec.kind in POOLED:
        return found
    if spec.kind == 'tag':
        return found.argmax(-1)
    (_, start_BL), (_, end_BL) = ends(found, batch)
    length = start_BL.shape[1]
    at_L = jnp.arange(length)
    last_B = batch['segment_ids'].sum(1) - 1  # [SEP]
    context_BL = (batch['type_ids'] == 1) & (at_L[None] < last_B[:, None])
    behind_LL = at_L[None, :] - at_L[:, None]
    allowed_LL = (behind_LL >= 0) & (behind_LL < spec.longest)
    both = context_BL[:, :, None] & context_BL[:, None, :] & allowed_LL[None]
    score_BLL = jnp.where(both, start_BL[:, :, None] + end_BL[:, None, :], 2 * FAR)
    flat = score_BLL.reshape(len(score_BLL), -1)
    best_B = flat.argmax(1)
    return {
        'start': best_B // length, 'end': best_B % length, 'score': flat.max(1), 'null': start_BL[:, 0] + end_BL[:, 0]
    }  # fmt: skip
