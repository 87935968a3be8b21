"""What stands behind [MASK]: each one by itself, and several that are to fit together (Mask-Predict)."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bertx import heads
from bertx.encoder import encode
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.pretrained import token_head
from bertx.text.tokenizer import Tokenizer
from bertx.types import View

Predict = Callable[[np.ndarray], np.ndarray]  # the row's tokens [L] -> log-probabilities [K, V] at its masks


@dataclasses.dataclass(frozen=True)
class Masked:
    """[CLS] text [SEP] with K masks."""

    tokens_L: np.ndarray
    at_K: np.ndarray


def read(tokenizer: Tokenizer, text: str) -> Masked:
    """The row of a text in which a mask is written '[MASK]' or as the tokenizer spells it."""
    spelling = next(piece for piece, i in tokenizer.vocabulary.items() if i == tokenizer.mask_id)
    ((ids, _),) = tokenizer.encode([text.replace('[MASK]', spelling)], allow_special=True)
    tokens_L = np.array([tokenizer.cls_id, *ids, tokenizer.sep_id], np.int32)
    at_K = np.flatnonzero(tokens_L == tokenizer.mask_id)
    if not len(at_K):
        raise BadInput(f'the text {text!r} has no mask; write [MASK] where a token is to be found')
    return Masked(tokens_L, at_K)


def predictor(config: EncoderConfig, params, row: Masked) -> Predict:
    """Log-probabilities at the row's masks, whatever stands there by now.

    params: 'encoder', and a head that predicts tokens: 'heads_mlm', or the one on a token's own vector of 'heads_sbo'.
    """
    head = token_head(params)
    if head is None:
        found = ', '.join(sorted(name for name in params if name != 'encoder')) or 'none'
        raise BadInput(f'there is no head that predicts masked tokens (heads_mlm) among those of this model: {found}')
    if len(row.tokens_L) > config.max_positions:
        raise BadInput(
            f'the text has {len(row.tokens_L)} tokens with [CLS] and [SEP]; this model reads {config.max_positions}'
        )
    used = {'encoder': params['encoder'], 'head': head}
    return lambda tokens_L: np.asarray(_log_probabilities(config, used, tokens_L, row.at_K))


@functools.partial(jax.jit, static_argnums=0)
def _log_probabilities(config: EncoderConfig, params, tokens_L, at_K):
    """[K, V]"""
    tokens_BL = tokens_L[None]
    ones_BL = jnp.ones_like(tokens_BL)
    view = View(tokens_BL, ones_BL, jnp.arange(tokens_BL.shape[1])[None], jnp.zeros_like(tokens_BL))
    encoded = encode(config, params['encoder'], view)
    x_BKD = heads.gather(encoded.for_tokens, at_K[None])
    logits = heads.TokenHead(config).apply({'params': params['head']}, x_BKD, encoded.table_VE)
    return jax.nn.log_softmax(logits[0])


def mask_predict(predict: Predict, row: Masked, mask_id: int, iterations: int) -> np.ndarray:
    """[K]: tokens for all masks together (Ghazvininejad et al. 2019, section 3.1).

    All are chosen at once; then in each further iteration t the K * (T - t) / T of them that were chosen with the least
    probability are masked and chosen again, beside those that stay. With 1 iteration each mask is filled by itself.
    """
    count, tokens_L = len(row.at_K), row.tokens_L.copy()
    log_K = np.zeros(count)
    for t in range(iterations):
        least = np.argsort(log_K, kind='stable')[: count * (iterations - t) // iterations]  # all of them at first
        tokens_L[row.at_K[least]] = mask_id
        log_KV = predict(tokens_L)[least]
        tokens_L[row.at_K[least]], log_K[least] = log_KV.argmax(-1), log_KV.max(-1)
    return tokens_L[row.at_K]


def joint(predict: Predict, row: Masked, new_K: np.ndarray) -> float:
    """Log-probability of these tokens together: of the first given that all are masked, of the second given the first,
    and so on from left to right. So any two choices can be compared, however they were found."""
    tokens_L, total = row.tokens_L.copy(), 0.0
    for k, new in enumerate(new_K):
        total += float(predict(tokens_L)[k, new])
        tokens_L[row.at_K[k]] = new
    return total
