"""The functional encoder: one block, scanned over stacked layers. Families are configurations (`bertx/families.py`)."""

import dataclasses
from functools import lru_cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from flax.traverse_util import flatten_dict

from bertx.attention import attend, attention_mask
from bertx.embeddings import Dropout, Embeddings
from bertx.encoder_config import EncoderConfig
from bertx.positions import local_mask, relative_bias, relative_rows, rotate, rotation
from bertx.types import Array, DropoutRates, Encoded, Tables, View


@struct.dataclass
class Shared:
    """What all blocks of a pass read."""

    mask: Array  # [B, 1, L, L]
    rates: DropoutRates | None
    place_RD: Array | None = None  # the relative places that occur in a row


class SelfAttention(nn.Module):
    config: EncoderConfig

    @nn.compact
    def __call__(self, x_BLD, key_BLD, local, shared: Shared):
        """Queries from x, keys and values from key_BLD. local: whether this layer sees a window only."""
        c, length = self.config, x_BLD.shape[1]
        size = c.width // c.heads
        project = partial(
            nn.DenseGeneral, (c.heads, size), kernel_init=c.initializer, use_bias=c.bias, dtype=c.compute_dtype
        )
        relative = c.positions == 'relative'
        query = project(name='query')
        key = project(name='key', use_bias=c.bias and not (relative and not c.relative_shared))
        value = project(name='value', kernel_init=c.value_initializer)
        q, k, v = query(x_BLD), key(key_BLD), value(key_BLD)
        mask, bias, scale = shared.mask, None, size**-0.5
        if c.positions == 'rotary':
            wide, near = (rotation(length, size, base) for base in (c.rotary_base, c.local_rotary_base))
            turn = wide if local is None else jax.tree.map(partial(jnp.where, local), near, wide)
            q, k = rotate(q, *turn), rotate(k, *turn)
        elif relative:
            place_key, place_query = key, query
            if not c.relative_shared:
                place_key, place_query = project(name='place_key', use_bias=False), project(name='place_query')
            scale = (3 * size) ** -0.5  # three products are added (He et al. 2021, equation 4)
            rows_QK = relative_rows(c, length)
            places = place_key(shared.place_RD), place_query(shared.place_RD)
            bias = scale * relative_bias(q, k, *places, rows_QK - rows_QK.min())
        if local is not None:
            mask &= ~local | local_mask(length, c.local_window)
        tapped = tapping(self)
        rate = shared.rates and shared.rates.attention
        drop = None if rate is None else partial(Dropout(), rate=rate)
        implementation = 'plain' if tapped or drop else c.attention
        y_BLHC, probabilities = attend(q, k, v, mask, implementation, drop, bias, scale)
        if tapped:
            self.put_variable('taps', 'attention', probabilities)
        return nn.DenseGeneral(
            c.width, axis=(-2, -1), kernel_init=c.value_initializer, use_bias=c.bias, dtype=c.compute_dtype,
            name='output',
        )(y_BLHC)  # fmt: skip


class Block(nn.Module):
    """Attention and MLP, each added to what comes in, with a norm behind each sum.

    The residual stream goes on from the normed sum (post-norm, BERT) or from the sum itself (pre-norm): so the norm
    that a pre-norm block ends with is the next block's first, or the last one of all.
    """

    config: EncoderConfig

    @nn.compact
    def __call__(self, carry, local, shared: Shared, key_BLD=None):
        """carry: (the stream where it is not x, x, x of the block before where it is wanted)."""
        c = self.config
        stream_BLD, x_BLD, _ = carry
        rate = shared.rates and shared.rates.hidden
        before_BLD = x_BLD if c.mask_decoder else None
        stream_BLD = x_BLD if stream_BLD is None else stream_BLD
        attention = SelfAttention(c, name='attention')
        attended_BLD = attention(x_BLD, x_BLD if key_BLD is None else key_BLD, local, shared)
        stream_BLD += Dropout()(attended_BLD, rate)
        x_BLD = c.norm('attention_norm')(stream_BLD)
        stream_BLD = stream_BLD if c.prenorm else x_BLD
        h_BLF = c.dense((2 if c.gated else 1) * c.mlp_width, 'mlp_in')(x_BLD)
        if c.gated:
            h_BLF, gate_BLF = jnp.split(h_BLF, 2, axis=-1)
            h_BLF = c.activate(h_BLF) * gate_BLF
        else:
            h_BLF = c.activate(h_BLF)
        stream_BLD += Dropout()(c.dense(c.width, 'mlp_out')(h_BLF), rate)
        x_BLD = c.norm('mlp_norm')(stream_BLD)
        if tapping(self):
            self.put_variable('taps', 'state', stream_BLD if c.prenorm else x_BLD)
        return (stream_BLD if c.prenorm else None, x_BLD, before_BLD), None


def tapping(module: nn.Module) -> bool:
    return module.is_mutable_collection('taps') and not module.is_initializing()


def stacked(c: EncoderConfig):
    """The block over all layers: parameters on a leading axis, of layers or, where they share theirs, of groups."""
    groups = c.groups or c.layers
    inputs: Any = {'in_axes': (0, nn.broadcast), 'variable_axes': {'taps': 0}}
    block: Any = nn.remat(Block, prevent_cse=False) if c.remat else Block  # the loop keeps it from being undone
    each = c.layers // groups
    if each > 1:
        block = nn.scan(
            block, variable_broadcast='params', split_rngs={'params': False, 'dropout': True}, length=each,
            unroll=min(c.unroll, each), **inputs,
        )  # fmt: skip
    inputs['variable_axes'] = {'params': 0, 'taps': 0}
    return nn.scan(
        block, split_rngs={'params': True, 'dropout': True}, length=groups, unroll=min(c.unroll, groups), **inputs
    )(c)


class Encoder(nn.Module):
    """`View` to `Encoded`. Layers are stacked on a leading axis however they are run, so checkpoints do not differ."""

    config: EncoderConfig

    def setup(self):
        c = self.config
        self.embeddings = Embeddings(c)
        self.project = c.dense(c.width)
        self.layers = stacked(c)
        if c.positions == 'relative':
            self.place = nn.Embed(
                2 * c.relative_span, c.width, embedding_init=c.place_initializer, dtype=c.compute_dtype
            )
            self.place_norm = c.norm()
            self.dropout = Dropout(rows=False)

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
        tables = embeddings.tables(base)
        x_BLD = embeddings(view, rates, base)
        if x_BLD.shape[-1] != c.width:
            x_BLD = self.project(x_BLD)
        if tapping(self):
            self.put_variable('taps', 'embedded', x_BLD)
        shared = Shared(attention_mask(view.segment_ids, c.causal), rates, self.places(view, rates))
        carry = (x_BLD if c.prenorm else None, x_BLD, x_BLD if c.mask_decoder else None)
        (_, x_BLD, before_BLD), _ = self.layers(carry, self.is_local(), shared)
        decoded_BLD = self.decode(before_BLD, tables, view, shared) if c.mask_decoder else None
        return Encoded(x_BLD, tables.token_VE, view, c.causal, decoded_BLD=decoded_BLD)

    def is_local(self):
        """[layers] bool, split into groups where there are such; None where every layer sees the whole row."""
        c = self.config
        if not c.local_window:
            return None
        local_N = jnp.arange(c.layers) % c.global_every != 0
        return local_N.reshape(c.groups, -1) if 0 < c.groups < c.layers else local_N

    def places(self, view: View, rates: DropoutRates | None):
        """[R, D]: the rows of the table of relative places that a row of this length needs."""
        c = self.config
        if c.positions != 'relative':
            return None
        rows = relative_rows(c, view.tokens.shape[1])
        place_RD = self.place.embedding[rows.min() : rows.max() + 1].astype(c.compute_dtype)
        if c.relative_shared:
            place_RD = self.place_norm(place_RD)
        return self.dropout(place_RD, rates and rates.hidden)

    def decode(self, before_BLD, tables: Tables, view: View, shared: Shared):
        """[B, L, D]: DeBERTa's enhanced mask decoder, for heads that predict tokens.

        The last block is applied twice more, with keys and values from the states before it; the first queries are
        these states plus absolute positions, the second ones what that gave (microsoft/DeBERTa, apps/models/
        masked_language_model.py emd_context_layer).
        """
        c = self.config
        last = jax.tree.map(lambda x: x[-1], self.layers.variables['params'])
        local = None if not c.local_window else jnp.bool_((c.layers - 1) % c.global_every != 0)
        place_BLD = jnp.take(tables.position_PE, view.positions + c.position_offset, axis=0)
        x_BLD = before_BLD + place_BLD.astype(before_BLD.dtype)
        carry = (x_BLD if c.prenorm else None, x_BLD, None)
        block = Block(c, parent=None)
        for _ in range(2):
            rngs = {} if shared.rates is None else {'dropout': self.make_rng('dropout')}
            carry, _ = block.apply({'params': last}, carry, local, shared, before_BLD, rngs=rngs)
        return carry[1]


def encode(config: EncoderConfig, params, view: View, taps: bool = False) -> Encoded:
    """The encoder as a function, without dropout. With `taps` the states after the embedding and after each layer, and
    each layer's attention, are in the result; they cost nothing where they are not asked for."""
    encoder = Encoder(config)
    if not taps:
        return encoder.apply({'params': params}, view)  # type: ignore[return-value]
    encoded, found = encoder.apply({'params': params}, view, mutable=['taps'])
    layers = found['taps']['layers']
    state_NBLD = layers['state'].reshape(config.layers, *encoded.hidden_BLD.shape).at[-1].set(encoded.hidden_BLD)
    attention = layers['attention']['attention']
    return dataclasses.replace(
        encoded,
        states_NBLD=jnp.concatenate([found['taps']['embedded'][None], state_NBLD]),
        attention_NBHQK=attention.reshape(config.layers, *attention.shape[-4:]),
    )


def count(params) -> int:
    """Number of parameters."""
    return sum(x.size for x in jax.tree.leaves(params))


def shapes(params) -> dict[str, tuple[int, ...]]:
    """Of a tree of parameters, by their paths."""
    return {path: np.shape(x) for path, x in flatten_dict(params, sep='/').items()}


@lru_cache(maxsize=8)
def abstract(config: EncoderConfig) -> Any:
    """An encoder's parameters, with shapes and types in place of numbers."""
    row = jnp.zeros((1, 1), jnp.int32)
    return jax.eval_shape(Encoder(config).init, jax.random.key(0), View(row, row, row, row))['params']
