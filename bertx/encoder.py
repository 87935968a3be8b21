"""The functional encoder: one post-norm block, scanned over stacked layers (Devlin et al. 2019)."""

from functools import partial

import flax.linen as nn
import jax

from bertx.attention import attend, attention_mask
from bertx.embeddings import Dropout, Embeddings
from bertx.encoder_config import EncoderConfig
from bertx.types import DropoutRates, Encoded, Tables, View


class SelfAttention(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BLD, mask, rates: DropoutRates | None):
        c = self.config
        shape = (c.heads, c.width // c.heads)
        project = partial(nn.DenseGeneral, shape, dtype=c.compute_dtype)
        q, k = (project(kernel_init=c.initializer, name=name)(x_BLD) for name in ('query', 'key'))
        v = project(kernel_init=c.value_initializer, name='value')(x_BLD)
        rate = rates and rates.attention
        drop = None if rate is None else partial(Dropout(), rate=rate)
        y_BLHC = attend(q, k, v, mask, c.attention, drop)
        return nn.DenseGeneral(
            c.width, axis=(-2, -1), kernel_init=c.value_initializer, dtype=c.compute_dtype, name='output'
        )(y_BLHC)


class Block(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BLD, mask, rates: DropoutRates | None):
        c = self.config
        dense = partial(nn.Dense, kernel_init=c.initializer, dtype=c.compute_dtype)
        norm = partial(nn.LayerNorm, c.norm_eps, dtype=c.compute_dtype)
        hidden_rate = rates and rates.hidden
        attended_BLD = SelfAttention(c, name='attention')(x_BLD, mask, rates)
        x_BLD = norm(name='attention_norm')(x_BLD + Dropout()(attended_BLD, hidden_rate))
        h_BLF = nn.gelu(dense(c.mlp_width, name='mlp_in')(x_BLD), approximate=False)
        y_BLD = dense(c.width, name='mlp_out')(h_BLF)
        return norm(name='mlp_norm')(x_BLD + Dropout()(y_BLD, hidden_rate)), None


class Encoder(nn.Module):
    """`View` to `Encoded`. Layers are stacked on a leading axis however they are run, so checkpoints do not differ."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.project = nn.Dense(c.width, kernel_init=c.initializer, dtype=c.compute_dtype)
        self.layers = nn.scan(
            Block,
            variable_axes={'params': 0},
            split_rngs={'params': True, 'dropout': True},
            in_axes=nn.broadcast,
            length=c.layers,
            unroll=min(c.unroll, c.layers),
        )(c)

    def __call__(
        self,
        view: View,
        rates: DropoutRates | None = None,
        embeddings: Embeddings | None = None,
        base: Tables | None = None,
    ) -> Encoded:
        """embeddings: another network's input layer, in place of the own one. base: see `Embeddings.tables`."""
        c = self.config
        embeddings = embeddings or self.embeddings
        x_BLD = embeddings(view, rates, base)
        if x_BLD.shape[-1] != c.width:
            x_BLD = self.project(x_BLD)
        x_BLD, _ = self.layers(x_BLD, attention_mask(view.segment_ids, c.causal), rates)
        return Encoded(x_BLD, embeddings.tables(base).token_VE, view, c.causal)


def count(params) -> int:
    """Number of parameters."""
    return sum(x.size for x in jax.tree.leaves(params))
