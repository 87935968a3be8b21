"""The token store: a tokenised corpus in a folder, written as a stream and read through memory maps.

    meta.json  tokenizer.json  unigram.npy  <split>-00000.arrow ...

A shard is an Arrow IPC file of one record batch, one row per document. The folder gets its name only when all of it is
on disk, so what bears the name is whole.
"""

import errno
import fcntl
import functools
import hashlib
import io
import json
import logging
import os
import shutil
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bertx.errors import BadInput, unknown
from bertx.text.tokenizer import Tokenizer
from bertx.text.words import UNSPACED

FORMAT = 2
SHARD_TOKENS = 2**26  # 64 Mi tokens: a split's writer holds one shard in memory, 192 MiB of uint16 and uint8


class StoreWriter:
    """Writes a store; a context manager that leaves nothing behind unless `finish` was reached.

    All that goes wrong with the disk, and another process writing the same store, is BadInput.
    """

    def __init__(self, out: str | Path, tokenizer: Tokenizer, splits: Sequence[str], shard_tokens: int = SHARD_TOKENS):
        self.out = Path(out).expanduser().absolute()
        self.partial = self.out.parent / f'.{self.out.name}.partial'
        self.tokenizer = tokenizer
        self._finished = False
        self._splits = {name: _SplitWriter(self.partial, name, tokenizer.vocab_size, shard_tokens) for name in splits}

    def __enter__(self) -> 'StoreWriter':
        check_free(self.out)
        try:
            self._lock = _claim(self.partial)
        except OSError as error:
            raise self._explain(error) from error
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        bad = self._explain(error) if isinstance(error, OSError) else None  # before the room is given back
        if not self._finished:
            shutil.rmtree(self.partial, ignore_errors=True)
        os.close(self._lock)
        if bad:
            raise bad from error

    def add(self, split: str, name: str, sentences: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Appends a document: for each sentence its ids [n] and word starts [n], with n > 0."""
        self._splits[split].add(name, sentences)

    def finish(self, language: str, source: str, **about: Any) -> None:
        """Writes what is left, then meta.json with `about` in it, then gives the folder its name."""
        splits = {name: split.finish() for name, split in self._splits.items()}
        train = self._splits.get('train')
        unigram_V = train.unigram_V if train else np.zeros(self.tokenizer.vocab_size, np.int64)
        counts = io.BytesIO()
        np.save(counts, unigram_V)  # to a full disk it would raise an OSError without errno
        (self.partial / 'unigram.npy').write_bytes(counts.getbuffer())
        self.tokenizer.save(self.partial)
        content = {name: split.content() for name, split in self._splits.items()}
        fingerprint = hashlib.sha256(json.dumps([self.tokenizer.fingerprint, content], sort_keys=True).encode())
        meta = {
            'format': FORMAT,
            'fingerprint': fingerprint.hexdigest(),
            'vocab_size': self.tokenizer.vocab_size,
            'tokenizer': self.tokenizer.fingerprint,
            'max_token': max(split.max_token for split in self._splits.values()),
            'language': language,
            'source': source,
            **about,
            'splits': splits,
        }
        (self.partial / 'meta.json').write_text(json.dumps(meta, indent=1, ensure_ascii=False) + '\n', 'utf-8')
        for path in (*self.partial.iterdir(), self.partial):
            _sync(path)
        os.rename(self.partial, self.out)
        self._finished = True
        _sync(self.out.parent)

    def _explain(self, error: OSError) -> BadInput:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(self.out.parent).free / 1e6
            return BadInput(f'{self.out.parent}: no space left ({free:.0f} MB free); make room or write elsewhere')
        return BadInput(f'{self.out.parent}: cannot write the token store here ({error.strerror or error})')


class _SplitWriter:
    """One split's shards: columns grow as flat bytes until the shard is full."""

    def __init__(self, folder: Path, name: str, vocab_size: int, shard_tokens: int):
        self.folder, self.name, self.shard_tokens = folder, name, shard_tokens
        self.dtype = np.dtype(np.uint16 if vocab_size <= 2**16 else np.uint32)
        self.unigram_V = np.zeros(vocab_size, np.int64)
        self.max_token = -1
        self.shards: list[dict[str, Any]] = []
        self.hashes = {name: hashlib.sha256() for name in ('tokens', 'word_starts', 'sentence_lengths', 'documents')}
        self._clear()

    def _clear(self) -> None:
        self.names: list[str] = []
        self.tokens, self.word_starts, self.sentence_lengths = bytearray(), bytearray(), bytearray()
        self.token_offsets, self.sentence_offsets = array('q', [0]), array('q', [0])

    def add(self, name: str, sentences: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        tokens = np.concatenate([ids for ids, _ in sentences])
        lengths = np.array([len(ids) for ids, _ in sentences], np.int32)
        if not lengths.all() or tokens.min() < 0 or tokens.max() >= len(self.unigram_V):
            raise ValueError(f'{name}: an empty sentence, or a token outside the vocabulary of {len(self.unigram_V)}')
        self.names.append(name)
        self.tokens += tokens.astype(self.dtype).data
        self.word_starts += np.concatenate([starts for _, starts in sentences]).astype(np.uint8).data
        self.sentence_lengths += lengths.data
        self.token_offsets.append(self.token_offsets[-1] + len(tokens))
        self.sentence_offsets.append(self.sentence_offsets[-1] + len(lengths))
        if self.token_offsets[-1] >= self.shard_tokens:
            self._flush()

    def _flush(self) -> None:
        tokens = np.frombuffer(self.tokens, self.dtype)
        starts = np.frombuffer(self.word_starts, np.uint8)
        lengths = np.frombuffer(self.sentence_lengths, np.int32)
        token_offsets = np.frombuffer(self.token_offsets, np.int64)
        sentence_offsets = np.frombuffer(self.sentence_offsets, np.int64)
        batch = pa.record_batch({
            'name': pa.array(self.names, pa.string()),
            'tokens': pa.LargeListArray.from_arrays(token_offsets, tokens),
            'word_starts': pa.LargeListArray.from_arrays(token_offsets, starts),
            'sentence_lengths': pa.LargeListArray.from_arrays(sentence_offsets, lengths),
        })  # fmt: skip
        path = self.folder / f'{self.name}-{len(self.shards):05d}.arrow'
        with pa.OSFile(str(path), 'wb') as sink, pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        self.shards.append({
            'file': path.name,
            'bytes': path.stat().st_size,
            'sha256': _sha256(path),
            'documents': len(self.names),
            'sentences': len(lengths),
            'tokens': len(tokens),
        })  # fmt: skip
        for start in range(0, len(tokens), 2**22):  # bincount makes an int64 copy of what it counts
            self.unigram_V += np.bincount(tokens[start : start + 2**22], minlength=len(self.unigram_V))
        self.max_token = max(self.max_token, int(tokens.max()))
        # The content's hash looks through the shards: it is the same however the split was cut.
        columns: tuple[Any, ...] = (tokens, starts, lengths, np.diff(sentence_offsets))
        for hash_, values in zip(self.hashes.values(), columns, strict=True):
            hash_.update(np.ascontiguousarray(values, values.dtype.newbyteorder('<')).data)
        self._clear()

    def finish(self) -> dict[str, Any]:
        """The split's entry in meta.json."""
        if self.names:
            self._flush()
        totals = {key: sum(shard[key] for shard in self.shards) for key in ('documents', 'sentences', 'tokens')}
        return {**totals, 'shards': self.shards}

    def content(self) -> dict[str, str]:
        return {name: hash_.hexdigest() for name, hash_ in self.hashes.items()}


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
        check_tokenizer(self, tokenizer)
        return tokenizer

    @property
    def marks_words(self) -> bool:
        """Whether word starts mean words; not where they came from a tokenizer that cannot tell them."""
        if self.meta.get('options', {}).get('words', 'tokenizer') != 'tokenizer':
            return True
        return self.tokenizer.marks_words and self.language not in UNSPACED

    def split(self, name: str) -> 'Split':
        """The split of this name, opened once; BadInput if the store has no such split."""
        if name not in self.meta['splits']:
            raise unknown(f'{self.path}: split', name, self.meta['splits'])
        if name not in self._splits:
            self._splits[name] = Split(self.path, name, self.meta['splits'][name]['shards'])
        return self._splits[name]

    def __reduce__(self):  # a worker process maps the files anew
        return TokenStore, (self.path,)

    def verify(self) -> None:
        """Reads every shard through and compares its SHA-256; BadInput names the first that differs."""
        for path, shard in self._shards():
            if _sha256(path) != shard['sha256']:
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
        self.name = name
        self._origin = folder, name, shards
        batches = [_read(folder / shard['file'], shard) for shard in shards]
        self._tokens = _Column([_view(batch.column('tokens').values) for batch in batches])
        self._word_starts = _Column([_view(batch.column('word_starts').values) for batch in batches])
        self._batches = batches
        lengths = [_view(batch.column('sentence_lengths').values) for batch in batches]
        sentences = [np.diff(_view(batch.column('sentence_lengths').offsets)) for batch in batches]
        self.sentence_starts = _offsets(lengths)
        self.document_starts = _offsets(sentences)
        self.n_tokens = int(self._tokens.starts[-1])
        if self.sentence_starts[-1] != self.n_tokens or self.document_starts[-1] != len(self.sentence_starts) - 1:
            raise BadInput(f'{folder}: the sentences of split {name} do not add up to its tokens; prepare it again')

    def __reduce__(self):  # a worker process maps the files anew
        return Split, self._origin

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
        self.starts = _offsets([np.array([len(chunk)]) for chunk in chunks])

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


def check_tokenizer(store: TokenStore, tokenizer: Tokenizer) -> None:
    """BadInput unless the store was made with this very tokenizer."""
    if tokenizer.fingerprint != store.meta['tokenizer']:
        raise BadInput(
            f'{store.path}: made with tokenizer {store.meta["tokenizer"][:8]}, not {tokenizer.fingerprint[:8]}; '
            'use the tokenizer.json that lies in the store, or prepare another store'
        )


def _read(path: Path, shard: dict[str, Any]) -> pa.RecordBatch:
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


def _view(array: pa.Array) -> np.ndarray:
    """The numbers of an array without nulls, not copied. (`to_numpy` does the same and imports pandas, 0.3 s.)"""
    dtype = np.dtype(str(array.type))
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)


def _offsets(lengths: Iterable[np.ndarray]) -> np.ndarray:
    """[0, l_0, l_0 + l_1, ...] int64 of lengths that come in parts."""
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]), dtype=np.int64)


def _claim(partial: Path) -> int:
    """An empty folder that this process holds a lock on, in place of what a killed one left; the lock's descriptor."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    if partial.exists():
        lock = _locked(partial)
        logging.getLogger(__name__).info('removing %s, left by a run that did not finish', partial)
        shutil.rmtree(partial)
        os.close(lock)
    partial.mkdir()
    return _locked(partial)


def _locked(folder: Path) -> int:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # let go by the kernel however the process ends
    except BlockingIOError:
        os.close(descriptor)
        raise BadInput(f'{folder}: another process is writing this token store; wait for it') from None
    return descriptor


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256').hexdigest()
