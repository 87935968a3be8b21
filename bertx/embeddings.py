"""The input layer: token, position and type embeddings, and dropout with a traced rate."""

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from bertx.encoder_config import EncoderConfig
from bertx.types import Array, DropoutRates, Tables, View


@custom_vmap
def kept(key, rate, x):
    """What dropout leaves of x: under `parallel.by_device`, too, by one draw for the rows of all devices."""
    return _drawn(key, rate, x)


def _drawn(key, rate, x):
    return jax.random.bernoulli(key, 1.0 - rate, x.shape)


@kept.def_vmap
def _(devices: int, batched, key, rate, x):
    if batched[0]:  # several runs (`bertx/scheduling/together.py`), each with a key of its own
        return jax.vmap(_drawn, [0 if b else None for b in batched])(key, rate, x), True
    whole = devices * x.shape[1], *x.shape[2:]
    return jax.random.bernoulli(key, 1.0 - rate, whole).reshape(x.shape), True


class Dropout(nn.Module):
    """Dropout whose rate is an array; linen's own wants a Python number and so one compilation for each rate.

    rows: the first axis is the batch's.
    """

    rows: bool = True

    @nn.compact
    def __call__(self, x, rate: Array | None):
        if rate is None:
            return x
        key, x_ = self.make_rng('dropout'), jax.lax.stop_gradient(x)
        keep = kept(key, rate, x_) if self.rows else jax.random.bernoulli(key, 1.0 - rate, x.shape)
        return jnp.where(keep, x / (1.0 - rate).astype(x.dtype), jnp.zeros((), x.dtype))


class Embeddings(nn.Module):
    """Sum of the tables that the family has, LayerNorm, dropout: [B, L, table_width]."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        table = lambda rows, init: nn.Embed(rows, c.table_width, embedding_init=init, dtype=c.compute_dtype)
        zeros = nn.initializers.zeros
        self.token = table(c.vocab_size, zeros if c.delta_embeddings else c.initializer)
        if c.positions == 'absolute' or c.mask_decoder:
            rows = c.position_offset + c.max_positions
            self.position = table(rows, zeros if c.delta_embeddings else c.place_initializer)
        if c.type_vocab:
            self.type = table(c.type_vocab, c.place_initializer)
        self.norm = c.norm()
        self.dropout = Dropout()

    def tables(self, base: Tables | None = None) -> Tables:
        """Token and position tables; `base`'s are added, and get no gradient from here (GDES, He et al. 2023)."""
        c = self.config
        position = self.position.embedding if c.positions == 'absolute' or c.mask_decoder else None
        own = Tables(self.token.embedding, position)
        if base is None:
            return own
        token_VE = own.token_VE + jax.lax.stop_gradient(base.token_VE)
        if position is not None and base.position_PE is not None:
            position += jax.lax.stop_gradient(base.position_PE)
        return Tables(token_VE, position)

    def __call__(self, view: View, rates: DropoutRates | None, base: Tables | None = None):
        c = self.config
        tables = self.tables(base)
        x_BLE = jnp.take(tables.token_VE, view.tokens, axis=0).astype(c.compute_dtype)
        if c.positions == 'absolute':
            x_BLE += jnp.take(tables.position_PE, view.positions + c.position_offset, axis=0).astype(c.compute_dtype)
        if c.type_vocab:
            x_BLE += self.type(jnp.minimum(view.type_ids, c.type_vocab - 1))  # RoBERTa has one row for both sentences
        return self.dropout(self.norm(x_BLE), rates and rates.hidden)
