"""RoBERTa's SENTENCE-PAIR (Liu et al. 2019, section 4.2): [CLS] A [SEP] B [SEP], single natural sentences next to each
other. Much shorter than a row, so config.rows.packing should allow for several; there is no shorter target length."""

import numpy as np

from bertx.text import pairs
from bertx.text.plan import Plan, RowOptions, offsets, ragged, stream


def chunks(rng: np.random.Generator, document_starts: np.ndarray):
    """(document, first, middle, last) [pairs]: the sentences of each document two by two, each at most once.

    A coin for each document decides whether its first sentence is left out, so that epochs have different pairs.
    """
    sentences = np.diff(document_starts)
    skip = np.where(sentences > 2, rng.integers(0, 2, len(sentences)), 0)
    counts = np.maximum(sentences - skip, 0) // 2
    _, document, number = ragged(offsets(counts), np.arange(len(counts)))
    first = document_starts[document] + skip[document] + 2 * number
    return document, first, first + 1, first + 2


def plan(split, options: RowOptions, seed: int, epoch: int, rows: int = 0) -> Plan:
    """The epoch's Plan, shuffled. rows: how many; 0 for all that a multiple of six leaves."""
    made = chunks(stream(seed, epoch, 'chunks'), split.document_starts)
    return pairs.plan(split, made, options, seed, epoch, rows)
