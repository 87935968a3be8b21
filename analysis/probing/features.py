"""Hidden states of all layers for the words or sentences of a text, from one forward pass, in a memory-mapped cache.

    <cache>/<hash>/states.npy  [layers + 1, rows, D] float32; layer 0 is the embedding
                   rows.npz    words, cls, sentence: the row of each, int32, -1 where it has no vector
                   meta.json   what the hash is made of

The hash covers the weights, the tokenizer, the text and the settings. The folder gets its name when all of it is on
disk, so what bears the name is whole.
"""

import dataclasses
import functools
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from rich.console import Console
from rich.progress import track

from bertx.encoder import Encoder, encode
from bertx.errors import BadInput, unknown
from bertx.pretrained import Pretrained
from bertx.results import RunFolder
from bertx.text.tokenizer import Tokenizer
from bertx.types import View

log = logging.getLogger(__name__)

FORMAT = 1
WORDS = ('first', 'mean', 'last')  # which of a word's pieces stand for it
SENTENCES = ('cls', 'sentence')  # [CLS], or the mean over the pieces
TOKENS = 4096  # in a batch: enough to keep two cores busy, 25 MB a layer at width 768
STEP = 16  # lengths are rounded up to multiples, so that few shapes are compiled


@dataclasses.dataclass(frozen=True)
class Corpus:
    """Sentences as lists of words without blanks in them."""

    sentences: Sequence[Sequence[str]]
    _pieces: dict[Any, list['Pieces']] = dataclasses.field(default_factory=dict, compare=False, repr=False)

    def pieces(self, tokenizer: Tokenizer, limit: int) -> list['Pieces']:
        """As `pieces`; done once for all models of a sweep."""
        key = tokenizer.fingerprint, limit
        if key not in self._pieces:
            self._pieces[key] = pieces(tokenizer, self.sentences, limit)
        return self._pieces[key]

    @functools.cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps([list(s) for s in self.sentences]).encode()).hexdigest()

    @functools.cached_property
    def starts(self) -> np.ndarray:
        """[sentences + 1]: where each begins in the flat list of words."""
        return np.cumsum([0, *map(len, self.sentences)])


@dataclasses.dataclass(frozen=True)
class Pieces:
    """[CLS] pieces [SEP] of a sentence, cut to what the model reads, and the word that each piece belongs to."""

    tokens_L: np.ndarray
    word_L: np.ndarray  # -1 for [CLS] and [SEP]
    whole: bool


def longest(model: Pretrained) -> int:
    """Tokens of a row: what the model reads, but of a run with a table of places no more than its training rows had,
    since nothing has trained the vectors of places beyond."""
    config = RunFolder(model.folder).read('config.json')
    if 'rows' not in config or model.encoder.positions != 'absolute':
        return model.encoder.max_positions
    second = config['train'].get('second') or {}
    return min(model.encoder.max_positions, max(config['rows']['length'], second.get('length') or 0))


def pieces(tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], limit: int) -> list[Pieces]:
    """A piece belongs to the word of its last letter. limit: tokens in a row, [CLS] and [SEP] included."""
    texts = [' '.join(words) for words in sentences]
    found = []
    for words, (ids, last) in zip(sentences, tokenizer.last_characters(texts), strict=True):
        ends = np.cumsum([len(word) + 1 for word in words])
        found.append(row(tokenizer, ids, np.searchsorted(ends, last, side='right'), limit))
    return found


def row(tokenizer: Tokenizer, ids: np.ndarray, word: np.ndarray, limit: int) -> Pieces:
    most = limit - 2
    tokens = np.array([tokenizer.cls_id, *ids[:most], tokenizer.sep_id], np.int32)
    return Pieces(tokens, np.concatenate([[-1], word[:most], [-1]]).astype(np.int32), len(ids) <= most)


@dataclasses.dataclass(frozen=True)
class Features:
    """The cache of one model on one text."""

    states_LND: np.ndarray  # memory-mapped; L is layers + 1
    rows: dict[str, np.ndarray]  # 'words' [W], 'cls' and 'sentence' [sentences]
    meta: dict

    @staticmethod
    def open(folder: Path, model: Pretrained | None = None) -> 'Features':
        """Raises BadInput where the cache is another tokenizer's than the model's."""
        meta = json.loads((folder / 'meta.json').read_text())
        if model and meta['tokenizer'] != model.tokenizer.fingerprint:
            raise BadInput(f'{folder} was made with another tokenizer than that of {model.folder}; give another cache')
        with np.load(folder / 'rows.npz') as arrays:
            return Features(np.load(folder / 'states.npy', mmap_mode='r'), dict(arrays), meta)


def compute(model: Pretrained, corpus: Corpus, words: str, cache: Path) -> Features:
    """From the cache, or by one forward pass. words: the 'first' or 'last' piece or the 'mean' of all stand for a word;
    '' for sentences alone, each of which has a row for [CLS] and one for the mean over its pieces.

    Words that tokenise to nothing, or lie beyond what the model reads, have no row; a sentence keeps its beginning.
    """
    if words not in ('', *WORDS):
        raise unknown('pool of a word', words, WORDS)
    if not corpus.sentences:
        raise BadInput('the text has no sentences')
    meta = {
        'format': FORMAT, 'weights': model.content, 'tokenizer': model.tokenizer.fingerprint,
        'corpus': corpus.fingerprint, 'words': words, 'longest': longest(model),
    }  # fmt: skip
    folder = cache / hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f'{folder.name}.partial-', dir=cache))
        try:
            _write(model, corpus, words, partial)
            (partial / 'meta.json').write_text(json.dumps(meta))
            if not folder.exists():  # nobody else was quicker
                os.replace(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return Features.open(folder, model)


def _write(model: Pretrained, corpus: Corpus, pool: str, folder: Path) -> None:
    rows = corpus.pieces(model.tokenizer, longest(model))
    weights = [_weights(p, len(words), pool) for p, words in zip(rows, corpus.sentences, strict=True)]
    there = np.concatenate([w.any(axis=1) for w in weights])
    if not there[1:].any() or not any((p.word_L >= 0).any() for p in rows):
        raise BadInput(f'no word of the text has a piece in the tokenizer of {model.folder}')
    row_N = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
    ends = np.cumsum([len(w) for w in weights])
    lost, cut = int((~there).sum()), sum(not p.whole for p in rows)
    if lost or cut:
        log.warning('%d words or sentences without a vector (no piece, or beyond the model); %d sentences cut to %d',
                    lost, cut, longest(model))  # fmt: skip
    shape = (model.encoder.layers + 1, int(there.sum()), model.encoder.width)
    states = np.lib.format.open_memmap(folder / 'states.npy', 'w+', np.float32, shape)
    parts = list(batches([len(p.tokens_L) for p in rows]))
    for length, index, _ in track(parts, 'hidden states', console=Console(stderr=True), transient=True):
        tokens_BL, segment_BL = padded([rows[i] for i in index], length, model.tokenizer.pad_id)
        weight_BWL = np.zeros((len(index), length if pool else 2, length), np.float32)
        for row, i in enumerate(index):
            used = weights[i][weights[i].any(axis=1)]  # at most one for each token
            weight_BWL[row, : len(used), : used.shape[1]] = used
        pooled_LBWD = np.asarray(_pooled(model.encoder, model.params['encoder'], tokens_BL, segment_BL, weight_BWL))
        for row, i in enumerate(index):
            at = row_N[ends[i] - len(weights[i]) : ends[i]]
            at = at[at >= 0]
            states[:, at] = pooled_LBWD[:, row, : len(at)]
    states.flush()
    last = np.zeros(len(row_N), bool)
    last[ends - 1] = last[ends - 2] = True
    np.savez(folder / 'rows.npz', words=row_N[~last], cls=row_N[ends - 2], sentence=row_N[ends - 1])


def _weights(p: Pieces, words: int, pool: str) -> np.ndarray:
    """[words + 2, L]: what each vector is the sum of, [CLS] and the mean last. A row of zeros: there is none."""
    text_L = p.word_L >= 0
    sentence_2L = np.stack([np.arange(len(text_L)) == 0, text_L / max(1, text_L.sum())])
    own_WL = p.word_L == np.arange(words if pool else 0)[:, None]
    if pool in ('first', 'last'):
        at = own_WL.argmax(1) if pool == 'first' else own_WL.shape[1] - 1 - own_WL[:, ::-1].argmax(1)
        own_WL = own_WL & (np.arange(own_WL.shape[1]) == at[:, None])
    own_WL = own_WL / np.maximum(1, own_WL.sum(1, keepdims=True))
    return np.concatenate([own_WL, sentence_2L]).astype(np.float32)


def batches(lengths: list[int], tokens: int = TOKENS) -> Iterator[tuple[int, np.ndarray, int]]:
    """(length, numbers of rows, how many of these are real): rows of about one length together, always as many of them;
    the last batch is filled up with rows that it has already."""
    padded_N = -(-np.array(lengths) // STEP) * STEP
    for length in np.unique(padded_N):
        index, size = np.flatnonzero(padded_N == length), max(1, tokens // int(length))
        size = min(size, 2 ** int(np.ceil(np.log2(len(index)))))
        for start in range(0, len(index), size):
            part = index[start : start + size]
            yield int(length), np.resize(part, size), len(part)


def padded(rows: Sequence[Pieces], length: int, pad: int) -> tuple[np.ndarray, np.ndarray]:
    """tokens [B, L] and segment ids [B, L]."""
    tokens_BL, segment_BL = np.full((len(rows), length), pad, np.int32), np.zeros((len(rows), length), np.int32)
    for row, p in enumerate(rows):
        tokens_BL[row, : len(p.tokens_L)], segment_BL[row, : len(p.tokens_L)] = p.tokens_L, 1
    return tokens_BL, segment_BL


def view_of(tokens_BL, segment_BL) -> View:
    """One text a row, from its beginning; padding stands at 0, as it may reach beyond the model's last place."""
    at_BL = jnp.where(segment_BL > 0, jnp.arange(tokens_BL.shape[1])[None], 0)
    return View(tokens_BL, segment_BL, at_BL, jnp.zeros_like(tokens_BL))


@functools.partial(jax.jit, static_argnums=0)
def _pooled(config, params, tokens_BL, segment_BL, weight_BWL):
    """[N + 1, B, W, D]"""
    states_NBLD: Any = encode(config, params, view_of(tokens_BL, segment_BL), taps=True).states_NBLD
    return jnp.einsum('bwl,nbld->nbwd', weight_BWL, states_NBLD.astype(jnp.float32))


def untrained(model: Pretrained, seed: int = 0) -> Pretrained:
    """The same encoder with fresh weights: the control for what the architecture alone gives."""
    view = view_of(jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2), jnp.int32))
    params = jax.device_get(jax.jit(Encoder(model.encoder).init)(jax.random.key(seed), view)['params'])
    return dataclasses.replace(model, params={'encoder': params})


def steps_of(folder: str) -> list[int]:
    """The steps of a run's checkpoints, in ascending order."""
    path = epath.Path(folder) / 'checkpoints'
    return sorted(int(x.name) for x in path.iterdir() if x.name.isdigit()) if path.exists() else []
