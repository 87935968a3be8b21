"""Losses and hits as per-example Terms."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertx.types import Term


def term(values, weights) -> Term:
    """Weighted values, summed over all axes but the first."""
    axes = tuple(range(1, weights.ndim))
    return Term((values * weights).sum(axes), weights.sum(axes))


def cross_entropy(logits, labels, weights) -> Term:
    """Nats. logits [B, ..., classes]; labels and weights [B, ...]."""
    return term(optax.softmax_cross_entropy_with_integer_labels(logits.astype(jnp.float32), labels), weights)


def hits(logits, labels, weights) -> Term:
    """How often the largest logit is the label's."""
    return term(logits.argmax(-1) == labels, weights)


def binary_cross_entropy(logits, labels, weights) -> Term:
    """Nats; logits, labels (0 or 1) and weights [B, ...]."""
    return term(optax.sigmoid_binary_cross_entropy(logits.astype(jnp.float32), labels), weights)


def by_chunks(score: Callable[..., dict[str, Term]], arrays: Any, chunk: int = 32) -> dict[str, Term]:
    """score(arrays) of a whole row, [B, L, ...] each, done `chunk` positions at a time and summed.

    What `score` makes on the way, such as logits over the vocabulary, exists for one chunk only, in the backward pass
    too, where it is computed again.
    """
    length = jax.tree.leaves(arrays)[0].shape[1]
    size = next(n for n in range(min(chunk, length), 0, -1) if length % n == 0)
    parts = jax.tree.map(lambda x: jnp.moveaxis(x.reshape(x.shape[0], -1, size, *x.shape[2:]), 1, 0), arrays)
    one = jax.checkpoint(score)
    shapes = jax.eval_shape(score, jax.tree.map(lambda x: x[0], parts))
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    add = lambda sums, part: (jax.tree.map(jnp.add, sums, one(part)), None)
    return jax.lax.scan(add, zeros, parts)[0]
