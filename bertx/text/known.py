"""Strings between spaces that were encoded before: most of a text is, and looking them up takes a tenth of the time."""

import collections
import itertools
from collections.abc import Callable, Sequence

import numpy as np

_MOST = 2**20  # tokens that are kept: some 100 MB

Flat = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids [n], word starts [n], tokens of each text [texts]


class Known:
    """The tokens of sentences, from those of the strings between their spaces."""

    def __init__(self, encode: Callable[[Sequence[str]], Flat]):
        self.encode = encode
        self._forget()

    def _forget(self) -> None:
        self.row: dict[str, int] = collections.defaultdict(itertools.count().__next__)  # numbers strings as they come
        self.end = np.zeros(1, np.int64)  # the tokens of string r are [end[r], end[r + 1]) of these
        self.ids, self.starts = np.zeros(0, np.int32), np.zeros(0, np.uint8)

    def __call__(self, sentences: Sequence[str]) -> Flat:
        if len(self.ids) > _MOST:
            self._forget()
        flat = ' '.join(sentences).split(' ') if sentences else []
        row = np.fromiter(map(self.row.__getitem__, flat), np.int64, len(flat))
        ids, starts, lengths = self.encode(list(itertools.islice(self.row, len(self.end) - 1, None)))
        self.end = np.append(self.end, len(self.ids) + np.cumsum(lengths))
        self.ids, self.starts = np.append(self.ids, ids), np.append(self.starts, starts)
        end = np.cumsum(lengths := np.diff(self.end)[row])
        index = np.arange(lengths.sum()) + np.repeat(self.end[row] - end + lengths, lengths)
        first = np.cumsum([0, *(sentence.count(' ') + 1 for sentence in sentences)])[:-1]
        return self.ids[index], self.starts[index], np.add.reduceat(lengths, first) if len(first) else lengths
