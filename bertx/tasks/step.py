"""The compiled parts of fine-tuning: one step, and one pass for evaluation; each once for every length in use."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from bertx import optim
from bertx.encoder_config import EncoderConfig
from bertx.optim import Hyper, OptimizerOptions
from bertx.step import dropout_rates
from bertx.tasks import heads, layer_rates
from bertx.tasks.heads import HeadSpec


def optimizer(options: OptimizerOptions, rule: str, hyper: Hyper) -> optax.GradientTransformation:
    """`bertx.optim`'s, and behind it the layers' factors. hyper may hold tracers."""
    return optax.chain(optim.make(options, hyper), layer_rates.scaled(hyper['layer_decay'], rule))


@functools.lru_cache
def trainer(config: EncoderConfig, spec: HeadSpec, head: str, options: OptimizerOptions, rule: str):
    """Compiled: (trained, frozen, optimizer's state, hyper, class weights, key, batch) -> trained, state, loss.

    trained, frozen: parameters; the encoder is in one of them. All numbers are arguments: runs that differ only in them
    share the compilation.
    """

    def step(trained, frozen, opt, hyper: Hyper, class_weights_C, key, batch: dict[str, Any]):
        def loss(trained):
            params = frozen | trained
            found = heads.logits(config, spec, params['encoder'], params[head], batch, dropout_rates(hyper), key)
            total, weight = heads.loss(spec, found, batch, class_weights_C)
            return total / jnp.maximum(weight, 1e-9)

        value, grads = jax.value_and_grad(loss)(trained)
        updates, opt = optimizer(options, rule, hyper).update(grads, opt, trained)
        return optax.apply_updates(trained, updates), opt, value

    return jax.jit(step, donate_argnums=(0, 2))


@functools.lru_cache
def reader(config: EncoderConfig, spec: HeadSpec):
    """Compiled: (encoder's parameters, head's, batch) -> what the head says of each row."""

    @jax.jit
    def read(encoder, head, batch):
        return heads.said(spec, heads.logits(config, spec, encoder, head, batch), batch)

    return read
