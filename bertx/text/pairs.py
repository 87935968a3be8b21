"""Pairs of pieces A and B with labels that tell how they relate: what segment_pair and sentence_pair share.

The chunks of an epoch do not depend on the labels: A and B of chunk i, and the row it stands in, are the same in every
arm, and only its kind differs. Then by construction
- the kinds are exactly balanced over an epoch, packed or not (an epoch is cut to a multiple of six, see packing.py);
- a random B is the B of another negative, from another document and of nearly the same length, so every arm reads the
  same sentences equally often, and a pair's length says nothing of its label.
"""

import numpy as np

from bertx.errors import BadInput
from bertx.text.packing import arrange
from bertx.text.plan import ORDERED, RANDOM, SWAPPED, Pieces, Plan, RowOptions, stream, truncate

SPECIALS = 3  # [CLS] A [SEP] B [SEP]
LABELS = {
    'nsp': {ORDERED: 0, RANDOM: 1},  # Devlin et al. 2019
    'sop': {ORDERED: 0, SWAPPED: 1},  # Lan et al. 2020
    'three_way': {ORDERED: 0, SWAPPED: 1, RANDOM: 2},  # Wang et al. 2020, StructBERT
}
BLOCK = 16  # chunks with B's of nearly the same length, which negatives exchange: the fewer, the more alike


def kinds_for(labels: tuple[str, ...]) -> tuple[int, ...]:
    """The kinds that pairs must come in, in equal numbers, so that each label has its classes."""
    return tuple(sorted({ORDERED}.union(*(LABELS[name] for name in labels))))


def blocks(rng: np.random.Generator, length: np.ndarray) -> np.ndarray:
    """[chunks] the block of each: by B's length, ties at random."""
    count = len(length)
    block = np.empty(count, np.int64)
    block[np.lexsort((rng.random(count), length))] = np.arange(count) * max(1, count // BLOCK) // count
    return block


def exchange(rng: np.random.Generator, document: np.ndarray, block: np.ndarray, negatives) -> np.ndarray:
    """For each negative the pair whose B it takes: of another document, of the same block, each used once.

    A block's negatives sorted by document and rotated by the largest document's share meet no document twice. Where
    one document holds more than half of them that cannot be: what is left over is exchanged within two blocks, four,
    and so on; and if a document holds more than half of all, its surplus takes B's of any pairs of other documents.
    """
    name = rng.permutation(int(document.max()) + 1)[document]  # neighbours in the rotation are no neighbours in time
    giver, left = np.arange(len(document)), negatives
    for level in range(int(block.max()).bit_length() + 1):
        group = block[left] >> level
        order = np.lexsort((name[left], group))
        for same in np.split(left[order], np.flatnonzero(np.diff(group[order])) + 1):
            giver[same] = np.roll(giver[same], np.unique(name[same], return_counts=True)[1].max(initial=0))
        left = left[document[giver[left]] == document[left]]
    if len(left) and len(np.unique(document)) < 2:
        raise BadInput('negatives are from another document, and only one of the split has pairs; give more documents')
    while len(left):
        giver[left] = rng.integers(0, len(document), len(left))
        left = left[document[giver[left]] == document[left]]
    return giver[negatives]


def plan(split, chunks, options: RowOptions, seed: int, epoch: int, rows: int) -> Plan:
    """The Plan of these chunks, shuffled. chunks: (document, first, middle, last) [chunks] sentence numbers, where A is
    first..middle and B is middle..last."""
    document, first, middle, last = chunks
    if not len(document):
        raise BadInput('no document of the split has two sentences, so no pair can be made; give longer documents')
    starts, most, kinds = split.sentence_starts, options.length - SPECIALS, kinds_for(options.labels)
    a = Pieces(starts[first], starts[middle] - starts[first], document)
    b = Pieces(starts[middle], starts[last] - starts[middle], document)
    # A pair gets room for any B of its block, so that which chunks share a row does not depend on the labels.
    block = blocks(stream(seed, epoch, 'blocks'), b.length)
    longest = np.zeros(block.max() + 1, np.int64)
    np.maximum.at(longest, block, b.length)
    room = np.minimum(a.length + longest[block], most)
    made = int((a.length + b.length).sum())
    inputs, row_starts = arrange(room + SPECIALS, options.length, options.packing, seed, epoch, rows, len(kinds))
    if not rows and len(inputs) % len(kinds):
        raise BadInput(f'the split makes {len(document)} pairs, too few for {len(kinds)} kinds of pair; give more text')
    a, b, block, room = a[inputs], b[inputs], block[inputs], room[inputs]
    whole = int((a.length + b.length).sum())

    # Kinds come last, when it is known which pairs the epoch has.
    kind = stream(seed, epoch, 'kinds').permutation(np.resize(np.array(kinds, np.int8), len(inputs)))
    negatives = np.flatnonzero(kind == RANDOM)
    if len(negatives):
        giver = np.arange(len(inputs))
        giver[negatives] = exchange(stream(seed, epoch, 'exchange'), b.document, block, negatives)
        b = b[giver]
    swapped = kind == SWAPPED
    a, b = truncate(b.where(swapped, a), a.where(swapped, b), room)
    pieces = a.beside(b)
    return Plan(
        pieces,
        input_starts=2 * np.arange(len(inputs) + 1),
        row_starts=row_starts,
        index=inputs[row_starts[:-1]].astype(np.uint32),
        labels={name: np.array([LABELS[name].get(k, -1) for k in range(3)], np.int8)[kind] for name in options.labels},
        paired=True,
        dropped={
            'truncation': whole - int(pieces.length.sum()),
            'lone sentences': int(starts[-1]) - made,
            'the cut to a multiple of six': max(0, made - whole),
        },
    )
