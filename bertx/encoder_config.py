"""Sizes and settings of the encoder: all that its graph depends on."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp


@dataclasses.dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """All that the encoder's graph depends on; the defaults are BERT-base's, other families are in `bertx/families.py`.

    `EXECUTION` changes the speed, not the parameters.
    """

    vocab_size: int
    family: str = 'bert'  # a name for messages and for weights that are written for others; the rest says what it is
    layers: int = 12
    width: int = 768
    heads: int = 12
    mlp_width: int = 3072
    groups: int = 0  # of neighbouring layers that share their parameters (ALBERT); 0: each layer has its own
    embedding_width: int = 0  # of the input tables; 0: the encoder's own, else a dense layer lies between (ELECTRA)
    max_positions: int = 512
    position_offset: int = 0  # rows of the position table before the first one that is used (RoBERTa: 2)
    type_vocab: int = 2  # 0: no table
    positions: str = 'absolute'  # a table added to the input; or 'relative' (DeBERTa), 'rotary' (Su et al. 2021)
    relative_buckets: int = 0  # of distances to each side; 0: each distance up to max_positions has its own
    relative_shared: bool = False  # places go through the same projections as content, after a norm (DeBERTa v3)
    local_window: int = 0  # tokens in the window of the layers that do not see the whole row (ModernBERT)
    global_every: int = 1  # of that many layers the first one sees the whole row
    rotary_base: float = 160_000.0  # ModernBERT's
    local_rotary_base: float = 10_000.0
    prenorm: bool = False  # norms lie before attention and MLP, off the residual stream, and at the end
    bias: bool = True  # in dense layers and norms; the output layer over the vocabulary has one anyway
    gated: bool = False  # MLP: the activation of one half times the other (Shazeer 2020, GeGLU)
    activation: str = 'gelu'  # of ACTIVATIONS
    pooler: str = 'tanh'  # of what heads read at a row's start, likewise
    pooler_norm: bool = False  # a LayerNorm behind it (ModernBERT)
    mask_decoder: bool = False  # token heads read states that saw absolute positions last (`Encoder.decode`, DeBERTa)
    std: float = 0.02  # of the untruncated normal, as TF's: cut at two of these, the real one is REAL_STD times it
    place_gain: float = 1.0  # times std for the position and type tables
    value_gain: float = 1.0  # times std for the value and output projections of attention
    norm_eps: float = 1e-12
    causal: bool = False  # a token sees what is before it only
    delta_embeddings: bool = False  # token and position tables start at 0 and are added to given ones (GDES)
    precision: str = 'float32'  # of the computation; parameters and softmax stay float32
    attention: str = 'plain'
    unroll: int = 1
    remat: bool = False  # a block's activations are made again on the way back, which costs a forward pass

    @property
    def table_width(self) -> int:
        return self.embedding_width or self.width

    @property
    def relative_span(self) -> int:
        """Distances to each side that the table of relative places has rows for."""
        return self.relative_buckets or self.max_positions

    @property
    def initializer(self):
        return nn.initializers.truncated_normal(self.std)

    @property
    def place_initializer(self):
        return nn.initializers.truncated_normal(self.std * self.place_gain)

    @property
    def value_initializer(self):
        return nn.initializers.truncated_normal(self.std * self.value_gain)

    @property
    def compute_dtype(self):
        return jnp.dtype(self.precision)

    def dense(self, width: int, name: str | None = None, **options) -> nn.Dense:
        """A dense layer as this encoder and its heads have them."""
        options = {'kernel_init': self.initializer, 'use_bias': self.bias, 'dtype': self.compute_dtype} | options
        return nn.Dense(width, name=name, **options)

    def norm(self, name: str | None = None) -> nn.LayerNorm:
        return nn.LayerNorm(self.norm_eps, dtype=self.compute_dtype, use_bias=self.bias, name=name)

    def activate(self, x, name: str = ''):
        return ACTIVATIONS[name or self.activation](x)

    def flops_per_token(self, length: int) -> float:
        """Forward FLOPs of the blocks: two per multiply-add of the matrix products, attention's L x L ones included."""
        mlp = (3 if self.gated else 2) * self.width * self.mlp_width
        attention = 4 * self.width**2 + 2 * length * self.width
        if self.positions == 'relative':  # content against places, and places against content
            attention += 2 * min(2 * self.relative_span, 2 * length) * self.width
        blocks = self.layers + 2 * self.mask_decoder  # which applies the last one twice more
        return blocks * 2.0 * (attention + mlp)

    @property
    def flops_per_prediction(self) -> float:
        """Forward FLOPs of `heads.TokenHead` at a position."""
        return 2.0 * self.table_width * (self.vocab_size + self.width)

    def flops_per_class(self, classes: int) -> float:
        """Forward FLOPs of `heads.ClassHead` at a position."""
        return 2.0 * self.width * (self.width + classes)


EXECUTION = ('attention', 'unroll', 'remat')

ACTIVATIONS = {
    'gelu': lambda x: nn.gelu(x, approximate=False),
    'gelu_tanh': lambda x: nn.gelu(x, approximate=True),  # ALBERT's `gelu_new`
    'relu': nn.relu,
    'tanh': jnp.tanh,
}

REAL_STD = 0.87962566103423978  # of a unit normal truncated to [-2, 2]
