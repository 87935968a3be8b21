"""Pairs as the released create_pretraining_data.py of google-research/bert and albert make them, leaks included.

A walk of one document after another: the target length is drawn once per document; a chunk of one sentence always
takes a random B, so the label is unbalanced and depends on length; up to ten tries for another document, then whatever
was drawn; sentences displaced by a random B are put back. ALBERT's SOP swaps instead, but keeps the random B for
chunks of one sentence, with label 1.
"""

import itertools

import numpy as np

from bertx.text.pairs import SPECIALS
from bertx.text.plan import ORDERED, RANDOM, SWAPPED, Pieces, Plan, RowOptions, stream, truncate


def walk(rng: np.random.Generator, split, document: int, most: int, short_probability: float, label: str):
    """Yields (document, A first, A last, B document, B first, B last, kind, label), in sentence numbers."""
    starts, documents = split.sentence_starts, split.document_starts
    at, end = int(documents[document]), int(documents[document + 1])
    target = most
    if rng.random() < short_probability:
        target = int(rng.integers(2, most + 1))
    while at < end:
        last = min(end, int(np.searchsorted(starts, starts[at] + target)))
        sentences = last - at
        middle = at + (int(rng.integers(1, sentences)) if sentences >= 2 else 1)
        one = sentences == 1
        if one or (label == 'nsp' and rng.random() < 0.5):
            for _ in range(10):
                other = int(rng.integers(0, len(documents) - 1))
                if other != document:
                    break
            b_first, b_end = int(rng.integers(documents[other], documents[other + 1])), int(documents[other + 1])
            wanted = target - int(starts[middle] - starts[at])
            b_last = min(b_end, max(b_first + 1, int(np.searchsorted(starts, starts[b_first] + wanted))))
            yield document, at, middle, other, b_first, b_last, RANDOM, 1
            at = middle
        else:
            swapped = label == 'sop' and rng.random() < 0.5
            yield document, at, middle, document, middle, last, SWAPPED if swapped else ORDERED, int(swapped)
            at = last


def plan(split, options: RowOptions, seed: int, epoch: int, rows: int = 0) -> Plan:
    """One duplicate of the corpus (`epoch` is its number), shuffled; all of its rows. The label is nsp or sop."""
    most, starts, (label,) = options.length - SPECIALS, split.sentence_starts, options.labels
    rng = stream(seed, epoch, f'original {label}')
    documents = rng.permutation(len(split.document_starts) - 1).tolist()
    walks = (walk(rng, split, document, most, options.short_probability, label) for document in documents)
    found = list(itertools.chain.from_iterable(walks))
    document, a_first, a_last, other, b_first, b_last, kind, value = np.array(found).T
    a = Pieces(starts[a_first], starts[a_last] - starts[a_first], document)
    b = Pieces(starts[b_first], starts[b_last] - starts[b_first], other)
    swapped = kind == SWAPPED
    a, b = b.where(swapped, a), a.where(swapped, b)
    whole = int((a.length + b.length).sum())
    a, b = truncate(a, b, most, rng)
    order = rng.permutation(len(found))
    pieces = a[order].beside(b[order])
    return Plan(
        pieces,
        input_starts=2 * np.arange(len(order) + 1),
        row_starts=np.arange(len(order) + 1),
        index=order.astype(np.uint32),
        labels={label: value[order].astype(np.int8)},
        paired=True,
        dropped={'truncation': whole - int(pieces.length.sum())},
    )
