"""Writing a token store as a stream, in a folder beside its place. What is finished there outlives the process:

.<name>.partial/  progress.json  tokenizer.json  <split>-00000.arrow ...
"""

import errno
import fcntl
import hashlib
import io
import json
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bertx.errors import BadInput
from bertx.text.documents import hash_file
from bertx.text.plan import offsets
from bertx.text.store import FORMAT, check_free, read_shard, view
from bertx.text.tokenizer import Tokenizer

SHARD_TOKENS = 2**25  # of all splits together: 100 MB in memory, 150 MB of English text to do again after a kill

log = logging.getLogger(__name__)


def columns(
    documents: Iterable[tuple[str, str, int]],
    sentences: np.ndarray,
    lengths: np.ndarray,
    tokens: np.ndarray,
    word_starts: np.ndarray,
    vocab_size: int,
) -> pa.RecordBatch:
    """Documents as a store has them: name, split and a 64-bit hash of the text, and how many sentences each has; the
    lengths of the sentences, none 0; the tokens, and whether a word begins there."""
    names, splits, hashes = zip(*documents, strict=True)
    if (lengths <= 0).any() or (tokens < 0).any() or (tokens >= vocab_size).any():
        raise ValueError(f'{names[0]} to {names[-1]}: an empty sentence, or a token that is not one of {vocab_size}')
    ends = offsets(sentences)
    starts, tokens = offsets(lengths)[ends], tokens.astype(np.uint16 if vocab_size <= 2**16 else np.uint32)
    return pa.record_batch({
        'name': pa.array(names, pa.string()),
        'tokens': pa.LargeListArray.from_arrays(starts, tokens),
        'word_starts': pa.LargeListArray.from_arrays(starts, word_starts.astype(np.uint8)),
        'sentence_lengths': pa.LargeListArray.from_arrays(ends, lengths.astype(np.int32)),
        'hash': pa.array(hashes, pa.uint64()),
        'split': pa.array(splits, pa.string()),
    })  # fmt: skip


class StoreWriter:
    """Writes a store; a context manager. One that was killed or failed goes on from its last shards if `job` is equal.

    job: all that decides the content. What goes wrong with the disk, or that another process writes here, is BadInput.
    """

    def __init__(self, out: str | Path, splits: Sequence[str], job: Any):
        self.out = Path(out).expanduser().absolute()
        self.partial = self.out.parent / f'.{self.out.name}.partial'
        self.read = 0  # documents of the source that are done
        self.tokenizer: Tokenizer | None = None  # from before, or by `start`
        self._job = json.loads(json.dumps(job))
        self._shards: dict[str, list[dict[str, Any]]] = {name: [] for name in splits}
        self._clear()

    def __enter__(self) -> 'StoreWriter':
        check_free(self.out)
        try:
            self.partial.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(self.partial)
            if not self._resume():
                for path in self.partial.iterdir():
                    path.unlink()
        except OSError as error:
            raise self._explain(error) from error
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        bad = self._explain(error) if isinstance(error, OSError) else None  # before the room is given back
        if isinstance(error, Exception) and not self.read:
            shutil.rmtree(self.partial, ignore_errors=True)
        os.close(self._lock)
        if bad:
            raise bad from error

    def start(self, tokenizer: Tokenizer) -> None:
        """Before the first document of a store that has no tokenizer yet."""
        self.tokenizer = tokenizer
        tokenizer.save(self.partial)
        _sync(self.partial / 'tokenizer.json')
        self._record()

    def add(self, batch: pa.RecordBatch) -> None:
        """The next documents of the source, from `columns`. Those without a sentence are counted and not stored."""
        self._batches.append(batch)
        self._tokens += len(batch.column('tokens').values)
        if self._tokens >= SHARD_TOKENS:
            self.flush()

    def flush(self) -> dict[str, int]:
        """Finishes a shard of every split; the number of documents that each has now."""
        if self._batches:
            table = pa.Table.from_batches(self._batches)
            some = pc.greater(pc.list_value_length(table['tokens']), 0)
            for name, shards in self._shards.items():
                rows = table.filter(pc.and_(some, pc.equal(table['split'], name))).drop_columns(['split'])
                if len(rows):
                    shards.append(_write(self.partial / f'{name}-{len(shards):05d}.arrow', rows))
            self.read += len(table)
            self._clear()
            self._record()
        return {name: _sum(shards, 'documents') for name, shards in self._shards.items()}

    def finish(self, language: str, source: str, **about: Any) -> None:
        """Writes what is left, then meta.json with `about` in it, then gives the folder its name."""
        assert self.tokenizer
        documents, (content, counts, twice) = self.flush(), self._survey(self.tokenizer.vocab_size)
        tokens, unknown = np.sum(list(counts.values()), axis=0), self.tokenizer.unk_id
        fingerprint = hashlib.sha256(json.dumps([self.tokenizer.fingerprint, content], sort_keys=True).encode())
        splits = {
            name: {**{key: _sum(shards, key) for key in ('documents', 'sentences', 'tokens')}, 'shards': shards}
            for name, shards in self._shards.items()
        }
        meta = {
            'format': FORMAT,
            'fingerprint': fingerprint.hexdigest(),
            'vocab_size': self.tokenizer.vocab_size,
            'tokenizer': self.tokenizer.fingerprint,
            'max_token': int(np.flatnonzero(tokens).max(initial=-1)),
            'language': language,
            'source': source,
            **about,
            'report': {
                'documents': documents,
                'sentences': _sum(splits.values(), 'sentences'),
                'tokens': int(tokens.sum()),
                'duplicate_documents': twice,
                'empty_documents': self.read - sum(documents.values()),
                'unknown_share': 0.0 if unknown is None else float(tokens[unknown] / max(tokens.sum(), 1)),
            },
            'splits': splits,
        }
        data = io.BytesIO()
        np.save(data, counts.get('train', np.zeros_like(tokens)))
        (self.partial / 'unigram.npy').write_bytes(data.getbuffer())  # np.save to a full disk: OSError without errno
        (self.partial / 'meta.json').write_text(json.dumps(meta, indent=1, ensure_ascii=False) + '\n', 'utf-8')
        for path in (*self.partial.iterdir(), self.partial):
            _sync(path)
        os.rename(self.partial, self.out)
        (self.out / 'progress.json').unlink()
        _sync(self.out.parent)

    def _clear(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._tokens = 0

    def _record(self) -> None:
        """From here on the shards that are there count as finished."""
        path = self.partial / 'progress.tmp'
        path.write_text(json.dumps({'job': self._job, 'read': self.read, 'shards': self._shards}), 'utf-8')
        _sync(path)
        path.rename(self.partial / 'progress.json')
        _sync(self.partial)

    def _resume(self) -> bool:
        try:
            progress = json.loads((self.partial / 'progress.json').read_text('utf-8'))
            entries = [entry for shards in progress['shards'].values() for entry in shards]
            whole = all(hash_file(self.partial / entry['file']).hexdigest() == entry['sha256'] for entry in entries)
            if progress['job'] != self._job or not whole:
                return False
            self.tokenizer = Tokenizer.load(self.partial / 'tokenizer.json')
        except (FileNotFoundError, ValueError, KeyError, TypeError, BadInput):
            return False
        self._shards, self.read = progress['shards'], progress['read']
        log.info('%s: going on after %d documents', self.partial, self.read)
        return True

    def _survey(self, vocab_size: int) -> tuple[dict[str, dict[str, str]], dict[str, np.ndarray], int]:
        """For each split hashes of what is in it, however it was cut, and counts of its tokens; duplicate documents."""
        content, counts, twice = {}, {}, 0
        for name, shards in self._shards.items():
            hashes = {key: hashlib.sha256() for key in ('tokens', 'word_starts', 'sentence_lengths', 'documents')}
            counts[name], texts = np.zeros(vocab_size, np.int64), [np.zeros(0, np.uint64)]
            for entry in shards:  # one at a time: a map that was read counts as memory
                batch = read_shard(self.partial / entry['file'], entry)
                values = {key: view(batch.column(key).values) for key in list(hashes)[:3]}
                values['documents'] = np.diff(view(batch.column('sentence_lengths').offsets))
                for key, hash_ in hashes.items():
                    hash_.update(values[key].data)
                for start in range(0, entry['tokens'], 2**22):  # bincount makes an int64 copy of what it counts
                    counts[name] += np.bincount(values['tokens'][start : start + 2**22], minlength=vocab_size)
                texts.append(view(batch.column('hash')).copy())
            content[name] = {key: hash_.hexdigest() for key, hash_ in hashes.items()}
            twice += sum(map(len, texts)) - len(np.unique(np.concatenate(texts)))
        return content, counts, twice

    def _explain(self, error: OSError) -> BadInput:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            free = shutil.disk_usage(self.out.parent).free / 1e6
            return BadInput(f'{self.out.parent}: no space left ({free:.0f} MB free); make room or write elsewhere')
        return BadInput(f'{self.out.parent}: cannot write the token store here ({error.strerror or error})')


def _write(path: Path, rows: pa.Table) -> dict[str, Any]:
    """A shard; its entry in meta.json."""
    (batch,) = rows.combine_chunks().to_batches()
    with pa.OSFile(str(path), 'wb') as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    _sync(path)
    return {
        'file': path.name,
        'bytes': path.stat().st_size,
        'sha256': hash_file(path).hexdigest(),
        'documents': len(batch),
        'sentences': len(batch.column('sentence_lengths').values),
        'tokens': len(batch.column('tokens').values),
    }


def _sum(entries: Iterable[Mapping[str, Any]], key: str) -> int:
    return sum(entry[key] for entry in entries)


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
