"""The input layer: token, position and type embeddings, and dropout with a traced rate."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from bertx.encoder_config import EncoderConfig
from bertx.types import Array, DropoutRates, View


class Dropout(nn.Module):
    """Dropout whose rate is an array; linen's own wants a Python number and so one compilation for each rate."""

    @nn.compact
    def __call__(self, x, rate: Array | None):
        if rate is None:
            return x
        keep = jax.random.bernoulli(self.make_rng('dropout'), 1.0 - rate, x.shape)
        return jnp.where(keep, x / (1.0 - rate).astype(x.dtype), jnp.zeros((), x.dtype))


class Embeddings(nn.Module):
    """Sum of the three tables, LayerNorm, dropout (BERT)."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        table = lambda rows, init: nn.Embed(rows, c.width, embedding_init=init, dtype=c.compute_dtype)
        self.token = table(c.vocab_size, c.initializer)
        self.position = table(c.max_positions, c.place_initializer)
        self.type = table(c.type_vocab, c.place_initializer)
        self.norm = nn.LayerNorm(c.norm_eps, dtype=c.compute_dtype)
        self.dropout = Dropout()

    def __call__(self, view: View, rates: DropoutRates | None):
        x_BLD = self.token(view.tokens) + self.position(view.positions) + self.type(view.type_ids)
        return self.dropout(self.norm(x_BLD), rates and rates.hidden)
