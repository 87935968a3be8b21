"""From a corpus to a token store: split by document, train a tokenizer on the training split, encode, write."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import logging
from array import array
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

from bertx.errors import BadInput, unknown
from bertx.text.sentences import check_language, split
from bertx.text.sources import Document, Source, open_source
from bertx.text.store import StoreWriter, TokenStore, check_free, check_tokenizer
from bertx.text.tokenizer import VOCABULARIES, Tokenizer
from bertx.text.words import Finder, finder

log = logging.getLogger(__name__)

_BATCH = 4096  # sentences encoded at once: enough to keep the tokenizer's threads busy
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


def prepare(options: PrepareOptions, out: str | Path) -> TokenStore:
    """The token store of these options in folder `out`: made, or found there. BadInput if another one is there.

    Reads the corpus once, and once more before that where a tokenizer has to be trained. Memory holds a shard of each
    split, the distinct words and 8 bytes a document.
    """
    _check(options)
    out = Path(out).expanduser()
    if (out / 'meta.json').is_file():
        return _found(options, out)
    check_free(out)  # before the work, not after it
    source, words = open_source(options.source), finder(options.words)
    given = options.tokenizer
    tokenizer = Tokenizer.load(given, options.lowercase) if given else _train(options, source)
    splits = [name for name, share in _shares(options).items() if share]
    with StoreWriter(out, tokenizer, splits) as writer:
        report = _write(options, source, tokenizer, words, writer)
        _require_splits(options, report['documents'])
        about = {'options': dataclasses.asdict(options), 'source_sha256': source.digest(), 'report': report}
        writer.finish(options.language, options.source, **about)
    log.info('%s: %s', out, report)
    if report['unknown_share'] > _MANY_UNKNOWN:
        log.warning(
            '%.1f %% of the tokens are unknown to the tokenizer; is it for language %r and for %s text?',
            100 * report['unknown_share'], options.language, 'lower-cased' if options.lowercase else 'cased',
        )  # fmt: skip
    return TokenStore(out)


def assign(options: PrepareOptions, text: str) -> str:
    """The split of a document: by its text alone, so equal documents share a side and order does not matter."""
    return _side(options, _hash(options, text))


def _check(options: PrepareOptions) -> None:
    check_language(options.language)
    if options.vocabulary not in VOCABULARIES:
        raise unknown('config.data.vocabulary', options.vocabulary, VOCABULARIES)
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
            check_tokenizer(store, Tokenizer.load(options.tokenizer, options.lowercase))
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


def _train(options: PrepareOptions, source: Source) -> Tokenizer:
    documents: collections.Counter = collections.Counter()

    def lines() -> Iterator[str]:
        for document in _tracked(source, 'tokenizer'):
            side = assign(options, document.text)
            documents[side] += 1
            if side == 'train':
                yield from document.text.split('\n')
        _require_splits(options, documents)

    train = Tokenizer.train_words if options.vocabulary == 'words' else Tokenizer.train
    tokenizer = train(lines(), options.vocab_size, options.lowercase)
    if tokenizer.vocab_size < options.vocab_size:
        log.warning('the corpus has words for a vocabulary of %d, not %d', tokenizer.vocab_size, options.vocab_size)
    return tokenizer


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


def _write(
    options: PrepareOptions, source: Source, tokenizer: Tokenizer, words: Finder | None, writer: StoreWriter
) -> dict:
    """Encodes and writes all documents; the counts that go into meta.json as `report`."""
    documents = {name: 0 for name, share in _shares(options).items() if share}
    sentences = tokens = unknown = empty = 0
    hashes = array('Q')

    for batch in _batches(options, source):
        encoded = iter(tokenizer.encode(list(itertools.chain.from_iterable(parts for _, parts in batch)), words=words))
        for document, parts in batch:
            kept = [pair for pair in itertools.islice(encoded, len(parts)) if len(pair[0])]
            if not kept:
                empty += 1
                continue
            hash_ = _hash(options, document.text)
            hashes.append(hash_)
            side = _side(options, hash_)
            writer.add(side, document.name, kept)
            documents[side] += 1
            sentences += len(kept)
            tokens += sum(len(ids) for ids, _ in kept)
            if tokenizer.unk_id is not None:
                unknown += sum(int((ids == tokenizer.unk_id).sum()) for ids, _ in kept)
    return {
        'documents': documents,
        'sentences': sentences,
        'tokens': tokens,
        'duplicate_documents': len(hashes) - len(np.unique(np.frombuffer(hashes, np.uint64))) if hashes else 0,
        'empty_documents': empty,
        'unknown_share': unknown / tokens if tokens else 0.0,
    }


def _batches(options: PrepareOptions, source: Source) -> Iterator[list[tuple[Document, list[str]]]]:
    """Documents with their sentences, whole, in lists of `_BATCH` sentences or somewhat more."""
    batch: list[tuple[Document, list[str]]] = []
    size = 0
    for document in _tracked(source, 'store'):
        parts = split(document.text, options.language)
        batch.append((document, parts))
        size += len(parts)
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
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
