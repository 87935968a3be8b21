"""Units of several words, which are masked together.

    config.rows.units   ''           words are the units
                        'pmi'        n-grams of words that go together (pmi.py); 'pmi:20000': of a vocabulary of 20,000;
                                     'pmi:0.2': of a fifth of the n-grams that occur often enough
                        a file       what somebody marked in the corpus, such as named entities (annotation.py)

Where the units of a store begin is worked out once and lies in its folder, units/<kind>-<hash>: for each split a byte a
token, 1 where a unit begins, as word starts are. For PMI the vocabulary lies there too, to be read.
"""

import hashlib
import logging
import math
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bertx.errors import BadInput
from bertx.text import annotation, pmi, words
from bertx.text.documents import hash_file

FORMAT = 1  # of what is in the folder, and of how units are found: raise it with any change to these
log = logging.getLogger(__name__)


def content(spec: str) -> str:
    """What the units depend on besides the store, for the hash of a run: of a file its SHA-256 and not its path."""
    if not spec:
        return ''
    if _is_pmi(spec):
        return f'pmi {_size(spec):g}'
    path = Path(spec).expanduser()
    if not path.is_file():
        raise BadInput(f"config.rows.units: there is no file {spec!r}; 'pmi', or '' for words, would do as well")
    return hash_file(path).hexdigest()


def starts(store, split: str, spec: str) -> np.ndarray | None:
    """[tokens of the split] uint8, memory mapped: 1 where a unit begins. None where units are words."""
    hash_ = hashlib.sha256(f'{FORMAT} {content(spec)}'.encode()).hexdigest()[:8]
    if not spec:
        return None
    folder = store.path / 'units' / f'{"pmi" if _is_pmi(spec) else "file"}-{hash_}'
    if not folder.is_dir():
        _make(store, spec, folder)
    try:
        found = np.asarray(np.load(folder / f'{split}.npy', mmap_mode='r'))
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f'{folder}/{split}.npy: missing or damaged ({error}); delete that folder') from None
    if len(found) != store.split(split).n_tokens:
        raise BadInput(f'{folder}/{split}.npy: not of this token store; delete that folder')
    return found


def _is_pmi(spec: str) -> bool:
    return spec.partition(':')[0] == 'pmi'


def _size(spec: str) -> float:
    """Of the vocabulary; 0: the default."""
    number = spec.partition(':')[2]
    try:
        size = float(number or 0)
    except ValueError:
        size = math.nan
    if number and not 0 < size < math.inf or not number and spec != 'pmi':
        raise BadInput(f"config.rows.units is {spec!r}; 'pmi:20000' n-grams, or a share, 'pmi:0.2', would do")
    return size


def _make(store, spec: str, folder: Path) -> None:
    """Writes the folder. What two processes make at once is the same, and the first to be ready names it."""
    words.require(store, f'config.rows.units={spec!r}')
    joined: dict[str, Iterable[np.ndarray]]
    lines: list[str] = []
    if _is_pmi(spec):
        train, ordinary_V = store.split('train'), store.tokenizer.ordinary()
        vocabulary = pmi.mine(train, ordinary_V, _size(spec))
        joined = {name: pmi.joined(store.split(name), ordinary_V, vocabulary) for name in store.meta['splits']}
        lines = pmi.describe(store, vocabulary)
    else:
        joined = {name: [at] for name, at in annotation.joined(store, Path(spec).expanduser()).items()}
    try:
        folder.parent.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix='.partial-'))
        try:
            for name, parts in joined.items():
                counts = _write(partial / f'{name}.npy', store.split(name), parts)
                log.info('units %s, split %s: %s words in %s units', spec, name, *(f'{count:,}' for count in counts))
            if lines:
                (partial / 'vocabulary.tsv').write_text('\n'.join(lines) + '\n', 'utf-8')
            partial.chmod(0o755)
            os.rename(partial, folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        if not folder.is_dir():
            raise BadInput(f'{folder}: cannot write the units here ({error.strerror or error})') from None


def _write(path: Path, split, joined: Iterable[np.ndarray]) -> tuple[int, int]:
    """How many words and units there are."""
    n_words = n_joined = 0
    with open(path, 'wb') as file:  # a full disk raises here; writing to the map, it would kill the process
        header = {'descr': '|u1', 'fortran_order': False, 'shape': (split.n_tokens,)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, split.n_tokens, pmi.CHUNK):
            begins = split.gather_word_starts(np.arange(first, min(first + pmi.CHUNK, split.n_tokens)))
            file.write(begins.data)
            n_words += int(begins.sum())
    out = np.load(path, mmap_mode='r+')
    for at in joined:
        out[at] = 0
        n_joined += len(at)
    out.flush()
    return n_words, n_words - n_joined
