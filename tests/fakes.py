"""Splits of which only lengths matter, with tokens that say where they stand."""

import dataclasses
import types

import numpy as np

from bertx.text.plan import RowOptions
from bertx.text.rows import Rows

PAD, CLS, SEP, TEXT = 0, 1, 2, 100


@dataclasses.dataclass
class FakeSplit:
    """Sentence s of document d has `lengths[d][s]` tokens, two to a word; the n-th token of all is TEXT + n."""

    lengths: list[list[int]]

    @property
    def sentence_starts(self):
        return np.concatenate([[0], np.cumsum(np.concatenate(self.lengths))]).astype(np.int64)

    @property
    def document_starts(self):
        return np.concatenate([[0], np.cumsum([len(x) for x in self.lengths])]).astype(np.int64)

    def gather(self, index):
        return (TEXT + index).astype(np.int32)

    def gather_word_starts(self, index):
        starts = self.sentence_starts
        return ((index - starts[np.searchsorted(starts, index, side='right') - 1]) % 2 == 0).astype(np.uint8)


def made_up(documents: int = 30, sentences: int = 40, seed: int = 0) -> FakeSplit:
    """Sentences of 2 to 29 tokens."""
    rng = np.random.default_rng(seed)
    return FakeSplit([list(rng.integers(2, 30, rng.integers(2, sentences))) for _ in range(documents)])


def rows_of(split: FakeSplit, seed: int = 0, **options) -> Rows:
    tokenizer = types.SimpleNamespace(pad_id=PAD, cls_id=CLS, sep_id=SEP)
    store = types.SimpleNamespace(split=lambda name: split, tokenizer=tokenizer)
    return Rows(store, 'train', RowOptions(**options), seed)


def whole(rows: Rows, epoch: int = 0):
    """All rows of an epoch."""
    return rows.batch(epoch * len(rows) + np.arange(len(rows)))


def written(rows: Rows) -> list[list[int]]:
    """The tokens of epoch 0's rows without the padding, in ascending order."""
    return sorted([int(x) for x in tokens if x != PAD] for tokens in whole(rows).tokens)


def text(split: FakeSplit, *sentences: int) -> list[int]:
    """The tokens of these sentences."""
    starts = split.sentence_starts
    return [TEXT + n for s in sentences for n in range(starts[s], starts[s + 1])]
