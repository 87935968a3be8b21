"""How much does the loss of masked words hang on each head? (Michel et al. 2019)

Part of `python -m analysis.attention`, for checkpoints with a head that predicts masked tokens.

A mask of ones multiplies what each head adds to the stream; a head's importance is the mean over sentences of
|dLoss/dmask|, divided by the length of the vector that the heads of its layer make (their section 4.1). It says what
the loss would lose first, not what a layer would lose without the head: heads stand in for each other.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util

from analysis.probing import features
from analysis.probing.features import Pieces, padded, view_of
from bertx import heads
from bertx.encoder import encode
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.losses import cross_entropy
from bertx.pretrained import Pretrained

SHARE = 0.15  # of a sentence's pieces are masked (Devlin et al. 2019), all of them by [MASK]
SENTENCES = 300  # that `analysis.attention` takes at most: a pass backward costs two forward
TOKENS = 256  # in a batch: each sentence has its own gradient of all output kernels, 28 MB in BERT-base
OUTPUT = ('layers', 'attention', 'output', 'kernel')  # [N, H, C, D]


def measure(model: Pretrained, rows: Sequence[Pieces]) -> np.ndarray:
    """[N, H], nats: the mean over rows of |dLoss/dmask|, where the loss is a row's mean over its masked pieces."""
    head = model.params.get('heads_mlm')
    places = {i: at for i, p in enumerate(rows) if len(at := masked(p, i))}
    if head is None or not places:
        raise BadInput(f'{model.folder}: importance wants a head that predicts masked tokens, and text with words')
    params = {'encoder': model.params['encoder'], 'head': head}
    config, total, used = model.encoder, np.zeros((model.encoder.layers, model.encoder.heads)), list(places)
    if config.groups:  # a head that layers share counts in each of them
        each = config.layers // config.groups
        own = jax.tree.map(lambda x: np.repeat(x, each, axis=0), params['encoder']['layers'])
        config, params['encoder'] = dataclasses.replace(config, groups=0), params['encoder'] | {'layers': own}
    for length, index, real in features.batches([len(rows[i].tokens_L) for i in used], TOKENS):
        numbers = [used[i] for i in index]
        tokens_BL, segment_BL = padded([rows[i] for i in numbers], length, model.tokenizer.pad_id)
        at_BK = np.zeros((len(numbers), max(1, round(SHARE * length))), np.int32)
        weight_BK = np.zeros(at_BK.shape, np.float32)
        for row, i in enumerate(numbers):
            at_BK[row, : len(places[i])], weight_BK[row, : len(places[i])] = places[i], 1 / len(places[i])
        wanted_BK = np.take_along_axis(tokens_BL, at_BK, 1)
        for row, i in enumerate(numbers):
            tokens_BL[row, places[i]] = model.tokenizer.mask_id
        slope_BNH = _slopes(config, params, tokens_BL, segment_BL, at_BK, wanted_BK, weight_BK)
        total += np.abs(np.asarray(slope_BNH)[:real]).sum(0)
    return total / len(used)


def masked(p: Pieces, number: int) -> np.ndarray:
    """Places of a row's masked pieces, one or more where it has words: the same ones for every checkpoint."""
    text = np.flatnonzero(p.word_L >= 0)
    count = max(1, round(SHARE * len(text))) if len(text) else 0
    return np.sort(np.random.default_rng(number).choice(text, count, replace=False)) if count else text


def normalised(slope_NH: np.ndarray) -> np.ndarray:
    """[N, H]: each layer has length 1 (Molchanov et al. 2017, whom they follow): layers differ in their gradients."""
    return slope_NH / np.maximum(1e-30, np.linalg.norm(slope_NH, axis=1, keepdims=True))


def lines(slope_NH: np.ndarray) -> list[list[str]]:
    """A line a layer: its length before it is normalised, and its heads, the most important one first."""
    rows = [['layer', 'length, nats', 'heads by importance']]
    for n, share_H in enumerate(normalised(slope_NH)):
        order = np.argsort(-share_H, kind='stable')
        said = ', '.join(f'{h + 1} ({share_H[h]:.2f})' for h in order)
        rows.append([str(n + 1), f'{np.linalg.norm(slope_NH[n]):.4f}', said])
    return rows


@functools.partial(jax.jit, static_argnums=0)
def _slopes(config: EncoderConfig, params, *rows):
    """[B, N, H]: dLoss/dmask of each row by itself."""
    one_NH = jnp.ones((config.layers, config.heads))
    slope = jax.grad(functools.partial(_loss, config, params))
    return jax.vmap(slope, (None, *(0 for _ in rows)))(one_NH, *rows)


def _loss(config: EncoderConfig, params, mask_NH, tokens_L, segment_L, at_K, wanted_K, weight_K):
    """A row's loss. What a head adds is linear in its slice of the output kernel, so the mask goes into that."""
    flat: Any = traverse_util.flatten_dict(params['encoder'])
    flat[OUTPUT] = flat[OUTPUT] * mask_NH[..., None, None]
    encoded = encode(config, traverse_util.unflatten_dict(flat), view_of(tokens_L[None], segment_L[None]))
    x_BKD = heads.gather(encoded.for_tokens, at_K[None])
    logits = heads.TokenHead(config).apply({'params': params['head']}, x_BKD, encoded.table_VE)
    return cross_entropy(logits, wanted_K[None], weight_K[None]).sum[0]
