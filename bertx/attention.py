"""Scaled dot-product attention within segments, behind one switch."""

from typing import Any

import jax
import jax.numpy as jnp

from bertx.types import Array

# Finite, so that a row without any key (padding) stays finite, in bfloat16 too.
MASKED = -1e9


def attention_mask(segment_ids_BL: Array, causal: bool = False) -> Array:
    """[B, 1, L, L] bool: a query sees the keys of its own segment, with `causal` none after itself; padding (segment 0)
    is seen by nobody."""
    queries, keys = segment_ids_BL[:, None, :, None], segment_ids_BL[:, None, None, :]
    mask = (queries == keys) & (keys > 0)
    return jnp.tril(mask) if causal else mask


def attend(
    q_BLHC, k_BLHC, v_BLHC, mask, implementation: str = 'plain', drop=None, bias=None, scale: float | None = None
) -> tuple[Array, Array | None]:
    """[B, L, H, C], and the probabilities [B, H, L, L] where they exist: with 'plain'.

    'plain' is two einsums around a float32 softmax: the fastest on CPU and the only one with dropout. 'xla' and
    'cudnn' are `jax.nn.dot_product_attention`'s. drop: maps probabilities to dropped ones. bias: [B, H, L, L] is added
    to the scaled products; scale: 1 / sqrt(C).
    """
    scale = q_BLHC.shape[-1] ** -0.5 if scale is None else scale
    if implementation != 'plain':
        fused: Any = jax.nn.dot_product_attention
        return fused(q_BLHC, k_BLHC, v_BLHC, bias, mask, scale=scale, implementation=implementation), None
    # Heads beside the batch first: XLA's CPU products over a head axis in the middle took 4 times as long forward.
    q_BHLC, k_BHLC, v_BHLC = (jnp.swapaxes(x, 1, 2) for x in (q_BLHC, k_BLHC, v_BLHC))
    logits = jnp.einsum('bhqc,bhkc->bhqk', q_BHLC * scale, k_BHLC, preferred_element_type=jnp.float32)
    if bias is not None:
        logits += bias
    probabilities = jax.nn.softmax(jnp.where(mask, logits, MASKED)).astype(v_BLHC.dtype)
    dropped = probabilities if drop is None else drop(probabilities)
    return jnp.swapaxes(jnp.einsum('bhqk,bhkc->bhqc', dropped, v_BHLC), 1, 2), probabilities
