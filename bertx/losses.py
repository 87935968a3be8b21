"""Cross-entropy and hits as per-example Terms."""

import jax.numpy as jnp
import optax

from bertx.types import Term


def cross_entropy(logits, labels, weights) -> Term:
    """Nats, summed over all axes but the first. logits [B, ..., classes]; labels and weights [B, ...]."""
    losses = optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels)
    axes = tuple(range(1, weights.ndim))
    return Term((losses * weights).sum(axes), weights.sum(axes))


def hits(logits, labels, weights) -> Term:
    """How often the largest logit is the label's."""
    axes = tuple(range(1, weights.ndim))
    return Term(((logits.argmax(-1) == labels) * weights).sum(axes), weights.sum(axes))
