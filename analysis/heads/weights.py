"""Attention of all heads to all tokens of a text, and how long what each head carries is."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from analysis.probing import features
from analysis.probing.features import Pieces, padded, view_of
from bertx.encoder import encode
from bertx.encoder_config import EncoderConfig
from bertx.pretrained import Pretrained

TOKENS = 1024  # in a batch: 12 x 12 heads at 64 tokens are 38 MB


def maps(model: Pretrained, rows: Sequence[Pieces]) -> Iterator[tuple[int, np.ndarray, Any]]:
    """(number of a row, attention [N, H, n, n] over its n tokens, lengths of what each head carries [N, H, n])."""
    for length, index, real in features.batches([len(p.tokens_L) for p in rows], TOKENS):
        tokens_BL, segment_BL = padded([rows[i] for i in index], length, model.tokenizer.pad_id)
        found = _maps(model.encoder, model.params['encoder'], tokens_BL, segment_BL)
        attention_NBHQK, norm_NBHK = jax.device_get(found)
        for row, i in enumerate(index[:real]):
            n = len(rows[i].tokens_L)
            yield int(i), attention_NBHQK[:, row, :, :n, :n], None if norm_NBHK is None else norm_NBHK[:, row, :, :n]


@functools.partial(jax.jit, static_argnums=0)
def _maps(config: EncoderConfig, params, tokens_BL, segment_BL):
    encoded: Any = encode(config, params, view_of(tokens_BL, segment_BL), taps=True)
    # What is summed over thousands of weights, bfloat16 is too coarse for.
    attention, states = (x.astype(jnp.float32) for x in (encoded.attention_NBHQK, encoded.states_NBLD))
    if config.prenorm or config.groups:  # its layers read normed states, or share their weights
        return attention, None
    value, output = (params['layers']['attention'][name] for name in ('value', 'output'))
    v_NBLHC = jnp.einsum('nbld,ndhc->nblhc', states[:-1], value['kernel'])
    if 'bias' in value:
        v_NBLHC += value['bias'][:, None, None]
    gram_NHCC = jnp.einsum('nhcd,nhed->nhce', output['kernel'], output['kernel'])  # |v W| by C x C, not by D
    square_NBHL = jnp.einsum('nblhc,nhce,nblhe->nbhl', v_NBLHC, gram_NHCC, v_NBLHC)
    return attention, jnp.sqrt(jnp.maximum(square_NBHL, 0))
