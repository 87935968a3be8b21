"""BERT's input format, [CLS] A [SEP] B [SEP] of several sentences each, without the leaks of the released code (see
segment_pair_original.py).

Each chunk is taken from the beginning or the end of what is left of its document, by a coin: the sentence that
overshoots the target would otherwise always lie in B, which lets length alone tell a swapped pair.
"""

import numpy as np

from bertx.text import pairs
from bertx.text.plan import Plan, RowOptions, stream, targets


def chunks(rng: np.random.Generator, sentence_starts, document_starts, most: int, short_probability: float):
    """(document, first, middle, last) sentence numbers [chunks]: A is first..middle, B is middle..last, both not empty.

    All documents take a step at once. A chunk grows to the target (mostly `most` tokens, with `short_probability`
    uniform in 2..most), and to two sentences at least. A lone sentence left over makes no pair.
    """
    begin, end = document_starts[:-1].copy(), document_starts[1:].copy()
    taken = [(np.zeros(0, np.int64),) * 3]
    while len(live := np.flatnonzero(end - begin >= 2)):
        target = targets(rng, len(live), 2, most, short_probability)
        first, last = begin[live], end[live]
        forward = np.searchsorted(sentence_starts, sentence_starts[first] + target)
        backward = np.searchsorted(sentence_starts, sentence_starts[last] - target, side='right') - 1
        back = rng.random(len(live)) < 0.5
        chunk_first = np.where(back, np.maximum(first, np.minimum(backward, last - 2)), first)
        chunk_last = np.where(back, last, np.minimum(last, np.maximum(forward, first + 2)))
        begin[live], end[live] = np.where(back, first, chunk_last), np.where(back, chunk_first, last)
        taken.append((live, chunk_first, chunk_last))
    document, first, last = (np.concatenate(x) for x in zip(*taken, strict=True))
    return document, first, rng.integers(first + 1, last), last


def plan(split, options: RowOptions, seed: int, epoch: int, rows: int = 0) -> Plan:
    """The epoch's Plan, shuffled. rows: how many; 0 for all that a multiple of six leaves."""
    most = options.length - pairs.SPECIALS
    rng = stream(seed, epoch, 'chunks')
    made = chunks(rng, split.sentence_starts, split.document_starts, most, options.short_probability)
    return pairs.plan(split, made, options, seed, epoch, rows)
