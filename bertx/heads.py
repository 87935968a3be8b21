"""What objectives put on the encoder. The trainer never sees these; objectives build and call them."""

import flax.linen as nn
import jax.numpy as jnp

from bertx.encoder_config import EncoderConfig
from bertx.types import Encoded


def gather(x_BLD, at_BK):
    """[B, K, D]: the vectors at the given positions."""
    return jnp.take_along_axis(x_BLD, at_BK[..., None], axis=1)


class TokenHead(nn.Module):
    """BERT's MLM head, on the gathered positions only, so that no B x L x V array is ever made."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, encoded: Encoded, at_BK):
        c = self.config
        x_BKD = gather(encoded.hidden_BLD, at_BK)
        x_BKD = nn.Dense(c.width, kernel_init=c.initializer, dtype=c.compute_dtype, name='transform')(x_BKD)
        x_BKD = nn.LayerNorm(c.norm_eps, dtype=c.compute_dtype, name='norm')(nn.gelu(x_BKD, approximate=False))
        bias_V = self.param('bias', nn.initializers.zeros, (c.vocab_size,))
        logits_BKV = x_BKD @ encoded.table_VD.astype(x_BKD.dtype).T
        return logits_BKV.astype(jnp.float32) + bias_V[None, None]


class Pooler(nn.Module):
    """BERT's: a dense layer and tanh on a pair's [CLS]."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BSD):
        c = self.config
        return jnp.tanh(nn.Dense(c.width, kernel_init=c.initializer, dtype=c.compute_dtype, name='dense')(x_BSD))


class PairHead(nn.Module):
    """Pooler and classifier on the vectors at the pairs' starts."""

    config: EncoderConfig
    classes: int = 2

    @nn.compact
    def __call__(self, x_BSD):
        c = self.config
        pooled_BSD = Pooler(c, name='pooler')(x_BSD)
        return nn.Dense(self.classes, kernel_init=c.initializer, name='classifier')(pooled_BSD.astype(jnp.float32))
