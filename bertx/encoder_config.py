"""Sizes and settings of the encoder: all that its graph depends on."""

import dataclasses

import flax.linen as nn
import jax.numpy as jnp

# layers, width, heads. Base and large: Devlin et al. 2019; the small ones: Turc et al. 2019.
SIZES = {
    'tiny': (2, 128, 2),
    'mini': (4, 256, 4),
    'small': (4, 512, 8),
    'medium': (8, 512, 8),
    'base': (12, 768, 12),
    'large': (24, 1024, 16),
}


@dataclasses.dataclass(frozen=True)
class EncoderConfig:
    """All that the encoder's graph depends on. `unroll` and `attention` change the speed, not the parameters."""

    vocab_size: int
    layers: int = 12
    width: int = 768
    heads: int = 12
    mlp_width: int = 3072
    embedding_width: int = 0  # of the input tables; 0: the encoder's own, else a dense layer lies between (ELECTRA)
    max_positions: int = 512
    type_vocab: int = 2
    std: float = 0.02  # of the untruncated normal, as TF's: cut at two of these, the real one is REAL_STD times it
    place_gain: float = 1.0  # times std for the position and type tables
    value_gain: float = 1.0  # times std for the value and output projections of attention
    norm_eps: float = 1e-12
    causal: bool = False  # a token sees what is before it only
    delta_embeddings: bool = False  # token and position tables start at 0 and are added to given ones (GDES)
    precision: str = 'float32'  # of the computation; parameters and softmax stay float32
    attention: str = 'plain'
    unroll: int = 1

    @property
    def table_width(self) -> int:
        return self.embedding_width or self.width

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

    def flops_per_token(self, length: int) -> float:
        """Forward FLOPs of the blocks: two per multiply-add of the matrix products, attention's L x L ones included."""
        dense = 4 * self.width**2 + 2 * self.width * self.mlp_width
        return self.layers * 2.0 * (dense + 2 * length * self.width)


REAL_STD = 0.87962566103423978  # of a unit normal truncated to [-2, 2]
