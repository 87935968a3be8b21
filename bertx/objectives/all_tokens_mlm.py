"""All-Tokens MLM (Clark et al. 2020, section 3.4): as Replace MLM, but every token of the text is predicted.

A copy mechanism makes that easy where nothing was replaced: p(x) = D [x is the token that stands there] + (1 - D)
softmax, D a sigmoid of the hidden vector. The loss is the cross-entropy of the mixture, at all tokens but special ones.
There is no released code; the head before the softmax is BERT's.
"""

from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from bertx import heads, losses
from bertx.cuts import text
from bertx.encoder_config import EncoderConfig
from bertx.objectives.generator import GeneratorObjective
from bertx.types import Loss, Term


class CopyHead(nn.Module):
    config: EncoderConfig

    def setup(self):
        c = self.config
        self.token, self.copying = heads.TokenHead(c), nn.Dense(1, kernel_init=c.initializer)

    def __call__(self, x_BLD):
        """[B, L, E] to be multiplied with the table, its bias [V], and logits of copying [B, L]."""
        return *self.token.output(x_BLD), self.copying(x_BLD.astype(jnp.float32))[..., 0]


def mixture(logits_BLV, copy_BL, input_BL, label_BL):
    """(log-probability of the label, the most probable token), [B, L] each."""
    log_copy_BL, log_write_BL = jax.nn.log_sigmoid(copy_BL), jax.nn.log_sigmoid(-copy_BL)
    norm_BL = jax.nn.logsumexp(logits_BLV, axis=-1)
    pick = lambda at_BL: jnp.take_along_axis(logits_BLV, at_BL[..., None], axis=-1)[..., 0]
    written = lambda at_BL: log_write_BL - norm_BL + pick(at_BL)
    copied = lambda at_BL: jnp.logaddexp(log_copy_BL, written(at_BL))
    label_p_BL = jnp.where(label_BL == input_BL, copied(label_BL), written(label_BL))
    best_BL = logits_BLV.argmax(-1)
    return label_p_BL, jnp.where(copied(input_BL) >= written(best_BL), input_BL, best_BL)


@struct.dataclass
class AllTokensMLM(GeneratorObjective):
    token_losses: ClassVar[tuple[str, ...]] = ('generator', 'loss')

    def head(self, config):
        return CopyHead(config)

    def scored(self, example, vocab, masked_L):
        return text(example, vocab)

    def features(self, encoded, targets):
        return encoded.for_tokens

    def head_scores(self, head, x_BKD, table_VE, targets):
        x_BLE, bias_V, copy_BL = head(x_BKD)
        names = ('tokens', 'fake', 'masked', 'scored', 'input')
        arrays = {'x': x_BLE, 'copy': copy_BL} | {name: targets[name] for name in names}

        def score(part) -> dict[str, Term]:
            logits_BLV = heads.logits(part['x'], bias_V, table_VE)
            log_p_BL, best_BL = mixture(logits_BLV, part['copy'], part['input'], part['tokens'])
            right_BL = best_BL == part['tokens']
            return {
                'loss': losses.term(-log_p_BL, part['scored']),
                'accuracy': losses.term(right_BL, part['scored']),
                'masked_accuracy': losses.term(right_BL, part['masked']),
            }

        found = losses.by_chunks(score, arrays)
        original_BL = targets['scored'] * (1.0 - targets['fake'])
        copied = {
            'copied_fakes': losses.term(jax.nn.sigmoid(copy_BL), targets['fake']),
            'copied_originals': losses.term(jax.nn.sigmoid(copy_BL), original_BL),
        }
        return {'loss': Loss(self.weight, found.pop('loss'))}, found | copied

    def flops(self, config, length):
        return super().flops(config, length) + length * config.flops_per_prediction
