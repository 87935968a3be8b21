"""The row plan: which sentences make the rows of an epoch, computed from lengths alone.

A row holds one or more inputs that know nothing of each other, each [CLS] piece [SEP] (piece [SEP])*. A plan is arrays,
so that any row can be built by itself: hosts read slices, resuming is a seek.
"""

import dataclasses
import zlib

import numpy as np

# How the two pieces of a pair relate.
ORDERED, SWAPPED, RANDOM = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """What a row looks like; labels, original and static come from what the objectives need."""

    format: str = 'segment_pair'
    length: int = 128
    short_probability: float = 0.1  # of a random, shorter target length (google-research/bert)
    packing: int = 1  # the most inputs in a row
    units: str = ''  # of several words: see units.py
    labels: tuple[str, ...] = ()
    original: bool = False
    static: bool = False  # epoch e has the rows and the noise of epoch e % dupe_factor
    dupe_factor: int = 10  # static only: how many times the corpus is masked and paired (google-research/bert)


def stream(seed: int, epoch: int, name: str) -> np.random.Generator:
    """One generator per purpose, so that a draw more in one does not shift another."""
    return np.random.default_rng([seed, epoch, zlib.crc32(name.encode())])


def ragged(starts: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(item, owner, number) [items] of these groups, one after another: group g is items starts[g]..starts[g + 1], and
    item i is the number-th of groups[owner]."""
    counts = starts[groups + 1] - starts[groups]
    owner = np.repeat(np.arange(len(groups)), counts)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    return starts[groups][owner] + number, owner, number


def offsets(*counts: np.ndarray) -> np.ndarray:
    """[0, c_0, c_0 + c_1, ...] int64 of counts, which may come in parts."""
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]), dtype=np.int64)


def targets(rng: np.random.Generator, count: int, least: int, most: int, short_probability: float) -> np.ndarray:
    """[count] tokens of text to aim at: `most`, or with `short_probability` uniform in least..most."""
    return np.where(rng.random(count) < short_probability, rng.integers(least, most + 1, count), most)


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Contiguous runs of tokens: flat offset of the first token, and how many. Document numbers beside. [P] each."""

    start: np.ndarray  # int64
    length: np.ndarray  # int64
    document: np.ndarray  # int64

    def __getitem__(self, rows) -> 'Pieces':
        return Pieces(self.start[rows], self.length[rows], self.document[rows])

    def where(self, condition, other: 'Pieces') -> 'Pieces':
        pick = lambda name: np.where(condition, getattr(self, name), getattr(other, name))
        return Pieces(pick('start'), pick('length'), pick('document'))

    def beside(self, other: 'Pieces') -> 'Pieces':
        """The first of self, the first of other, the second of self, ..."""
        join = lambda name: np.stack([getattr(self, name), getattr(other, name)], axis=1).ravel()
        return Pieces(join('start'), join('length'), join('document'))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Rows of one epoch: row r holds inputs row_starts[r] to row_starts[r + 1], input i holds pieces likewise."""

    pieces: Pieces
    input_starts: np.ndarray  # [I + 1]
    row_starts: np.ndarray  # [R + 1]
    index: np.ndarray  # [R] uint32: identifies a row's text within the epoch, and keys its noise
    dropped: dict[str, int]  # tokens of text that no row of the epoch holds, by reason
    labels: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # [I] int8; -1: the input is no such pair
    paired: bool = False  # each input is A and B, with type ids 0 and 1

    def __len__(self) -> int:
        return len(self.row_starts) - 1

    @property
    def real(self) -> int:
        """Slots of all rows that are not padding: text, a [SEP] after each piece, a [CLS] before each input."""
        return int(self.pieces.length.sum()) + len(self.pieces.length) + len(self.input_starts) - 1


def truncate(a: Pieces, b: Pieces, most, rng: np.random.Generator | None = None) -> tuple[Pieces, Pieces]:
    """Trim the longer (ties: the second) until both fit in `most` tokens, [pairs] or a number.

    A piece loses its tail, so that the first words of both, which tell most of how they relate, are kept. That an end
    is cut off says nothing of the order: which piece is the longer does not depend on it where pairs are split at
    random and taken from both ends of a text alike. With `rng` each token comes off the front or the back by a coin,
    as in google-research/bert, which mostly cuts both ends.
    """
    excess = np.maximum(a.length + b.length - most, 0)
    lead = np.minimum(excess, np.abs(a.length - b.length))  # taken off the longer until both are equal
    off_a = np.where(a.length > b.length, lead, 0) + (excess - lead) // 2

    def trim(piece: Pieces, off) -> Pieces:
        front = rng.binomial(off, 0.5) if rng else 0
        return Pieces(piece.start + front, piece.length - off, piece.document)

    return trim(a, off_a), trim(b, excess - off_a)
