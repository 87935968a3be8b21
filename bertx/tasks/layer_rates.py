"""Learning rates that fall from the head down to the embeddings (Clark et al. 2020), as a factor of each update."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertx.errors import one_of

RULES = ('paper', 'electra')


def exponents(params: Any, rule: str) -> Any:
    """How often the decay is applied to each array; an array [layers, 1, ...] for stacked ones.

    paper    the head 0, the top layer 1, ..., the bottom one N, the embeddings N + 1
    electra  google-research/electra's code, by whose count of depths the top layer has 2 and the embeddings N + 2
    """
    one_of('config.optimizer.layer_rule', rule, RULES)
    more = 1 if rule == 'paper' else 2
    layers = params.get('encoder', {}).get('layers', ())  # none where the encoder is frozen
    depth = len(jax.tree.leaves(layers)[0]) if layers else 0

    def one(path, x):
        names = [getattr(part, 'key', '') for part in path]
        if names[0] != 'encoder':
            return jnp.zeros((), jnp.float32)
        if names[1] != 'layers':
            return jnp.float32(depth + more)
        return (depth - 1 + more - jnp.arange(depth, dtype=jnp.float32)).reshape(-1, *[1] * (x.ndim - 1))

    return jax.tree_util.tree_map_with_path(one, params)


def scaled(decay: Any, rule: str) -> optax.GradientTransformation:
    """Updates times decay ** exponent, weight decay included, as a learning rate would."""

    def one(updates, params):
        return jax.tree.map(lambda u, e: u * (decay**e).astype(u.dtype), updates, exponents(params, rule))

    return optax.stateless(one)
