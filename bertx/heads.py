"""What objectives put on the encoder: called with vectors and the encoder's embedding table.

The trainer never sees these; objectives build and call them.
"""

import flax.linen as nn
import jax.numpy as jnp

from bertx.encoder_config import EncoderConfig


def gather(x_BLD, at_BK):
    """[B, K, D]: the vectors at the given positions."""
    return jnp.take_along_axis(x_BLD, at_BK[..., None], axis=1)


def ends(segment_ids_BL, starts_BS):
    """[B, S]: where the segments end that begin at the given positions; what a causal encoder's head reads."""
    own_BS = jnp.take_along_axis(segment_ids_BL, starts_BS, axis=1)
    same_BSL = segment_ids_BL[:, None, :] == own_BS[..., None]
    return segment_ids_BL.shape[1] - 1 - jnp.argmax(same_BSL[..., ::-1], axis=-1)


class TokenHead(nn.Module):
    """BERT's MLM head: dense, activation, LayerNorm, then the transposed embedding table and a bias.

    Called on gathered positions, or in chunks of a row (`losses.by_chunks`), so that no B x L x V array is ever made.
    """

    config: EncoderConfig

    def setup(self):
        c = self.config
        self.transform = c.dense(c.table_width)
        self.norm = c.norm()
        self.bias = self.param('bias', nn.initializers.zeros, (c.vocab_size,))

    def output(self, x_BKD):
        """[B, K, E] to be multiplied with the table, and the bias [V]."""
        return self.norm(self.config.activate(self.transform(x_BKD))), self.bias

    def __call__(self, x_BKD, table_VE):
        """[B, K, V] float32."""
        x_BKE, bias_V = self.output(x_BKD)
        return logits(x_BKE, bias_V, table_VE)


def logits(x_BKE, bias_V, table_VE):
    """[B, K, V] float32."""
    product = jnp.einsum('bke,ve->bkv', x_BKE, table_VE.astype(x_BKE.dtype), preferred_element_type=jnp.float32)
    return product + bias_V[None, None]


class ClassHead(nn.Module):
    """A dense layer and a classifier at each of the given positions (ELECTRA's discriminator: 1 class)."""

    config: EncoderConfig
    classes: int

    @nn.compact
    def __call__(self, x_BKD, table_VE=None):
        """[B, K, classes] float32."""
        c = self.config
        x_BKD = c.activate(c.dense(c.width, 'transform')(x_BKD)).astype(jnp.float32)
        return nn.Dense(self.classes, kernel_init=c.initializer, name='classifier')(x_BKD)


class Pooler(nn.Module):
    """What lies between a vector and its classes: BERT's dense layer and tanh, or the family's own activation."""

    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BSD):
        c = self.config
        x_BSD = c.activate(c.dense(c.width, 'dense')(x_BSD), c.pooler)
        return c.norm('norm')(x_BSD) if c.pooler_norm else x_BSD


class PairHead(nn.Module):
    """Pooler and classifier on the vectors at the pairs' starts; of a single text's, for tasks on whole texts."""

    config: EncoderConfig
    classes: int = 2

    @nn.compact
    def __call__(self, x_BSD, table_VE=None):
        c = self.config
        pooled_BSD = Pooler(c, name='pooler')(x_BSD)
        return nn.Dense(self.classes, kernel_init=c.initializer, name='classifier')(pooled_BSD.astype(jnp.float32))
