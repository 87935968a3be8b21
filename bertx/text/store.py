"""The token store: a tokenised corpus in a folder, written as a stream and read through memory maps.

    meta.json  tokenizer.json  unigram.npy  <split>-00000.arrow ...

A shard is an Arrow IPC file of one record batch, one row per document. The folder gets its name only when all of it is
on disk, so what bears the name is whole.
"""

import functools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertx.errors import BadInput, one_of
from bertx.text.documents import hash_file
from bertx.text.plan import offsets
from bertx.text.tokenizer import Tokenizer
from bertx.text.words import UNSPACED

FORMAT = 2


class TokenStore:
    """A finished store; BadInput says what is wrong with any other folder.

    meta         what meta.json says
    fingerprint  of the tokens, the sentence, word and document boundaries and the tokenizer; not of paths or shards
    unigram_V    [V] int64: counts in the training split
    """

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser()
        self._splits: dict[str, Split] = {}
        if not (self.path / 'meta.json').is_file():
            lacks = 'no finished token store (no meta.json)' if self.path.is_dir() else 'there is no such folder'
            raise BadInput(f'{self.path}: {lacks}; make the token store with experiments/prepare.py')
        try:
            self.meta: dict[str, Any] = json.loads((self.path / 'meta.json').read_text('utf-8'))
            if (written := self.meta['format']) != FORMAT:
                raise BadInput(f'{self.path}: token store format {written}, not {FORMAT}; prepare it again')
            self.fingerprint: str = self.meta['fingerprint']
            self.vocab_size: int = self.meta['vocab_size']
            self.language: str = self.meta['language']
            largest = self.meta['max_token']
            for path, shard in self._shards():
                _check_size(path, shard)
        except (ValueError, KeyError, TypeError) as error:
            raise BadInput(f'{self.path}/meta.json: damaged ({error!r}); prepare the store again') from None
        if largest >= self.vocab_size:
            raise BadInput(f'{self.path}: token id {largest} is outside its vocabulary of {self.vocab_size}')
        try:
            self.unigram_V: np.ndarray = np.load(self.path / 'unigram.npy').reshape(self.vocab_size)
        except (OSError, ValueError, EOFError) as error:
            raise BadInput(f'{self.path}/unigram.npy: missing or damaged ({error}); prepare the store again') from None

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        tokenizer = Tokenizer.load(self.path / 'tokenizer.json')
        self.check_made_with(tokenizer)
        return tokenizer

    def check_made_with(self, tokenizer: Tokenizer) -> None:
        """BadInput unless it is this very tokenizer."""
        if tokenizer.fingerprint != self.meta['tokenizer']:
            raise BadInput(
                f'{self.path}: made with tokenizer {self.meta["tokenizer"][:8]}, not {tokenizer.fingerprint[:8]}; '
                'use the tokenizer.json that lies in the store, or prepare another store'
            )

    @property
    def marks_words(self) -> bool:
        """Whether word starts mean words; not where they came from a tokenizer that cannot tell them."""
        if self.meta.get('options', {}).get('words', 'tokenizer') != 'tokenizer':
            return True
        return self.tokenizer.marks_words and self.language not in UNSPACED

    def split(self, name: str) -> 'Split':
        """The split of this name, opened once; BadInput if the store has no such split."""
        one_of(f'{self.path}: split', name, self.meta['splits'])
        if name not in self._splits:
            self._splits[name] = Split(self.path, name, self.meta['splits'][name]['shards'])
        return self._splits[name]

    def verify(self) -> None:
        """Reads every shard through and compares its SHA-256; BadInput names the first that differs."""
        for path, shard in self._shards():
            if hash_file(path).hexdigest() != shard['sha256']:
                raise BadInput(f'{path}: not what was written; prepare the store again')

    def _shards(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        for split in self.meta['splits'].values():
            yield from ((self.path / shard['file'], shard) for shard in split['shards'])


class Split:
    """One split, its documents one after the other: a flat index runs over all of its tokens.

    sentence_starts  [sentences + 1] int64: where each sentence begins in the flat index
    document_starts  [documents + 1] int64: where each document begins in `sentence_starts`
    names            the documents' names
    """

    def __init__(self, folder: Path, name: str, shards: Sequence[dict[str, Any]]):
        batches = [read_shard(folder / shard['file'], shard) for shard in shards]
        self._tokens = _Column([view(batch.column('tokens').values) for batch in batches])
        self._word_starts = _Column([view(batch.column('word_starts').values) for batch in batches])
        self._batches = batches
        lengths = [view(batch.column('sentence_lengths').values) for batch in batches]
        sentences = [np.diff(view(batch.column('sentence_lengths').offsets)) for batch in batches]
        self.sentence_starts = offsets(*lengths)
        self.document_starts = offsets(*sentences)
        self.n_tokens = int(self._tokens.starts[-1])
        if self.sentence_starts[-1] != self.n_tokens or self.document_starts[-1] != len(self.sentence_starts) - 1:
            raise BadInput(f'{folder}: the sentences of split {name} do not add up to its tokens; prepare it again')

    @functools.cached_property
    def names(self) -> list[str]:
        return [name for batch in self._batches for name in batch.column('name').to_pylist()]

    def gather(self, index: np.ndarray) -> np.ndarray:
        """int32 tokens at flat indexes of any shape; IndexError outside [0, n_tokens)."""
        return self._tokens.gather(index).astype(np.int32)

    def gather_word_starts(self, index: np.ndarray) -> np.ndarray:
        """uint8, 1 where a word begins, at flat indexes of any shape; IndexError outside [0, n_tokens)."""
        return self._word_starts.gather(index)


class _Column:
    """Flat values that lie in one memory-mapped chunk per shard."""

    def __init__(self, chunks: Sequence[np.ndarray]):
        self.chunks = chunks
        self.starts = offsets(np.array([len(chunk) for chunk in chunks], np.int64))

    def gather(self, index: np.ndarray) -> np.ndarray:
        index = np.asarray(index)
        if not index.size:
            return np.zeros(index.shape, self.chunks[0].dtype if self.chunks else np.uint8)
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= self.starts[-1]:
            raise IndexError(f'tokens {low} to {high} asked for, of {self.starts[-1]}')
        first, last = np.searchsorted(self.starts, (low, high), side='right') - 1
        if first == last:  # always so with one shard, and nearly so with rows that are near each other
            return self.chunks[first].take(index - self.starts[first] if first else index)
        chunk = np.searchsorted(self.starts, index, side='right') - 1
        values = np.empty(index.shape, self.chunks[0].dtype)
        for i in np.unique(chunk):
            here = chunk == i
            values[here] = self.chunks[i].take(index[here] - self.starts[i])
        return values


def check_free(out: Path) -> None:
    """BadInput if something is there that a new store would take the place of."""
    if out.is_file() or out.is_dir() and any(out.iterdir()):
        raise BadInput(f'{out}: already exists; choose another folder, or delete it first')


def read_shard(path: Path, shard: dict[str, Any]) -> pa.RecordBatch:
    """The record batch of a shard, memory mapped, checked against what meta.json says of it."""
    try:
        batch = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
        found = [batch.num_rows, *(len(batch.column(name).values) for name in ('tokens', 'word_starts'))]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise BadInput(f'{path}: damaged ({str(error).splitlines()[0]}); copy or prepare the store again') from None
    if found != [shard['documents'], shard['tokens'], shard['tokens']]:
        raise BadInput(f'{path}: not the number of documents or tokens that was written; prepare the store again')
    return batch


def _check_size(path: Path, shard: dict[str, Any]) -> None:
    if not path.is_file():
        raise BadInput(f'{path}: this shard is missing; copy or prepare the store again')
    size = path.stat().st_size
    if size != shard['bytes']:
        raise BadInput(f'{path}: {size} bytes, {shard["bytes"]} were written; copy or prepare the store again')


def view(array: pa.Array) -> np.ndarray:
    """The numbers of an array without nulls, not copied. (`to_numpy` does the same and imports pandas, 0.3 s.)"""
    dtype = np.dtype(str(array.type))
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
