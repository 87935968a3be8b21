"""The row plan: which sentences make the rows of an epoch, computed from lengths alone.

A plan is arrays, one entry a row, so that any row can be built by itself: hosts read slices, resuming is a seek.
"""

import dataclasses
import zlib

import numpy as np

# How the two parts of a row relate.
ORDERED, SWAPPED, RANDOM = 0, 1, 2


def stream(seed: int, epoch: int, name: str) -> np.random.Generator:
    """One generator per purpose, so that a draw more in one does not shift another."""
    return np.random.default_rng([seed, epoch, zlib.crc32(name.encode())])


@dataclasses.dataclass(frozen=True)
class Pieces:
    """Contiguous runs of tokens, one a row: flat offset of the first token, and how many. Document numbers beside."""

    start: np.ndarray  # int64
    length: np.ndarray  # int64
    document: np.ndarray  # int64

    def __getitem__(self, rows) -> 'Pieces':
        return Pieces(self.start[rows], self.length[rows], self.document[rows])

    def where(self, condition, other: 'Pieces') -> 'Pieces':
        pick = lambda name: np.where(condition, getattr(self, name), getattr(other, name))
        return Pieces(pick('start'), pick('length'), pick('document'))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Rows of one epoch. `index` identifies a row's text within the epoch and keys its noise."""

    a: Pieces
    b: Pieces
    kind: np.ndarray  # int8: ORDERED, SWAPPED or RANDOM
    labels: dict[str, np.ndarray]  # int8; -1: the row holds no such pair
    index: np.ndarray  # uint32
    counts: dict[str, int]  # tokens of the split, of the rows, dropped by truncation and as lone last sentences

    def __len__(self) -> int:
        return len(self.kind)


def truncate(rng: np.random.Generator, a: Pieces, b: Pieces, most: int, one_end: bool) -> tuple[Pieces, Pieces]:
    """Trim the longer (ties: the second) until both fit in `most` tokens.

    With `one_end` a piece loses all at its front or all at its back, by a coin; else there is a coin for each token, as
    in google-research/bert, which mostly cuts both ends. The coin matters: if always the outer ends
    were cut, a first piece that ends in a full stop would tell that the pair is in order.
    """
    excess = np.maximum(a.length + b.length - most, 0)
    lead = np.minimum(excess, np.abs(a.length - b.length))  # taken off the longer until both are equal
    off_a = np.where(a.length > b.length, lead, 0) + (excess - lead) // 2
    off_b = excess - off_a

    def trim(piece: Pieces, off) -> Pieces:
        front = off * rng.integers(0, 2, len(off)) if one_end else rng.binomial(off, 0.5)
        return Pieces(piece.start + front, piece.length - off, piece.document)

    return trim(a, off_a), trim(b, off_b)
