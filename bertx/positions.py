"""How attention knows of places: rotation of queries and keys, or a bias from relative places.

Places are indices in the row. Only their differences count, and attention stays within a segment, so a packed segment
gives what it gives alone.
"""

import jax.numpy as jnp
import numpy as np

from bertx.encoder_config import EncoderConfig


def rotation(length: int, width: int, base: float):
    """cos and sin [1, L, 1, C / 2] of the angles that queries and keys are turned by (Su et al. 2021)."""
    frequency = 1.0 / base ** (np.arange(0, width, 2, dtype=np.float32) / np.float32(width))
    angle = np.arange(length, dtype=np.float32)[:, None] * frequency
    return np.cos(angle)[None, :, None], np.sin(angle)[None, :, None]


def rotate(x_BLHC, cos, sin):
    """Each pair of features i and i + C / 2 turned by its angle, in float32."""
    a, b = jnp.split(x_BLHC.astype(jnp.float32), 2, axis=-1)
    turned = jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
    return turned.astype(x_BLHC.dtype)


def local_mask(length: int, window: int) -> np.ndarray:
    """[1, 1, L, L] bool: keys at most half a window away."""
    at_L = np.arange(length)
    return (abs(at_L[:, None] - at_L) <= window // 2)[None, None]


def relative_rows(c: EncoderConfig, length: int) -> np.ndarray:
    """[L, L] int: the row of the table of relative places for a query and a key (He et al. 2021, equation 3).

    With buckets, distances from half of them on share rows, ever more, up to max_positions: microsoft/DeBERTa
    da_utils.py make_log_bucket_position.
    """
    distance = np.arange(length)[:, None] - np.arange(length)
    if c.relative_buckets:
        near = c.relative_buckets // 2
        far = np.log(np.maximum(abs(distance), near) / near) / np.log((c.max_positions - 1) / near) * (near - 1)
        bucket = np.ceil(far - 1e-9) + near  # far may lie a rounding error above a whole number
        distance = np.where(abs(distance) <= near, distance, np.sign(distance) * bucket).astype(int)
    return np.clip(distance + c.relative_span, 0, 2 * c.relative_span - 1)


def relative_bias(q_BLHC, k_BLHC, place_key_RHC, place_query_RHC, rows_QK: np.ndarray):
    """[B, H, L, L] float32, unscaled: content against places and places against content ("c2p" and "p2c")."""
    # Products with the table's rows, each taken where its distance stands.
    content_BHQR = jnp.einsum('bqhc,rhc->bhqr', q_BLHC, place_key_RHC)
    place_BHRK = jnp.einsum('rhc,bkhc->bhrk', place_query_RHC, k_BLHC)
    rows = rows_QK[None, None]
    content_BHQK = jnp.take_along_axis(content_BHQR, rows, axis=-1)
    return (content_BHQK + jnp.take_along_axis(place_BHRK, rows, axis=-2)).astype(jnp.float32)
