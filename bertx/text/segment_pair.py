"""BERT's input format, [CLS] A [SEP] B [SEP], without the leaks of the released code (see segment_pair_original.py).

The chunks of an epoch do not depend on the objective: A and B of chunk i are the same in every arm, and only the
row's kind differs. Then by construction
- the kinds are exactly balanced (an epoch is cut to a multiple of their number);
- a random B is the B of another negative, from another document and of nearly the same length, so every arm reads the
  same sentences equally often, and a pair's length says nothing of its label;
- each chunk is taken from the beginning or the end of what is left of its document, by a coin: the sentence that
  overshoots the target would otherwise always lie in B, which lets length alone tell a swapped pair.
"""

import numpy as np

from bertx.errors import BadInput
from bertx.text.plan import ORDERED, RANDOM, SWAPPED, Pieces, Plan, stream, truncate

SPECIALS = 3  # [CLS] A [SEP] B [SEP]
LABELS = {'nsp': {ORDERED: 0, RANDOM: 1}, 'sop': {ORDERED: 0, SWAPPED: 1}}


def kinds_for(labels: tuple[str, ...]) -> tuple[int, ...]:
    """The kinds that rows must come in, in equal numbers, so that each label has its classes."""
    return tuple(sorted({ORDERED}.union(*(LABELS[name] for name in labels))))


def chunks(rng: np.random.Generator, sentence_starts, document_starts, most: int, short_probability: float):
    """(document, first, middle, last) sentence numbers [chunks]: A is first..middle, B is middle..last, both not empty.

    All documents take a step at once. A chunk grows to the target (mostly `most` tokens, with `short_probability`
    uniform in 2..most), and to two sentences at least. A lone sentence left over makes no pair; their number and
    tokens are the last two results.
    """
    begin, end = document_starts[:-1].copy(), document_starts[1:].copy()
    documents, firsts, lasts = [], [], []
    lone = lone_tokens = 0
    while True:
        left = end - begin
        single = np.flatnonzero(left == 1)
        lone += len(single)
        lone_tokens += int((sentence_starts[end[single]] - sentence_starts[begin[single]]).sum())
        end[single] = begin[single]
        live = np.flatnonzero(left >= 2)
        if not len(live):
            break
        target = np.where(rng.random(len(live)) < short_probability, rng.integers(2, most + 1, len(live)), most)
        first, last = begin[live], end[live]
        forward = np.searchsorted(sentence_starts, sentence_starts[first] + target)
        backward = np.searchsorted(sentence_starts, sentence_starts[last] - target, side='right') - 1
        back = rng.random(len(live)) < 0.5
        chunk_first = np.where(back, np.maximum(first, np.minimum(backward, last - 2)), first)
        chunk_last = np.where(back, last, np.minimum(last, np.maximum(forward, first + 2)))
        begin[live], end[live] = np.where(back, first, chunk_last), np.where(back, chunk_first, last)
        documents.append(live)
        firsts.append(chunk_first)
        lasts.append(chunk_last)
    if not documents:
        raise BadInput('no document of the split has two sentences, so no pair can be made; give longer documents')
    document, first, last = (np.concatenate(x) for x in (documents, firsts, lasts))
    middle = rng.integers(first + 1, last)
    return (document, first, middle, last), lone, lone_tokens


def exchange(rng: np.random.Generator, b: Pieces, negatives) -> np.ndarray:
    """For each negative row the row whose B it takes: of another document, of similar length, each used once.

    Negatives are sorted by B's length and dealt with in blocks; a block sorted by document and rotated by its largest
    document's share meets no document twice. Where one document holds more than half of a block that cannot be: its
    surplus takes B's of any rows of other documents.
    """
    names = rng.permutation(int(b.document.max()) + 1)[
        b.document
    ]  # neighbours in the rotation are no neighbours in time
    order = negatives[np.lexsort((rng.random(len(negatives)), b.length[negatives]))]
    giver = np.empty(len(b.start), np.int64)
    for block in np.array_split(order, max(1, len(order) // 64)):
        block = block[np.argsort(names[block], kind='stable')]
        shift = np.unique(names[block], return_counts=True)[1].max(initial=0)
        giver[block] = np.roll(block, shift)
    giver = giver[negatives]
    clash = np.flatnonzero(b.document[giver] == b.document[negatives])
    if len(clash) and len(np.unique(b.document)) < 2:
        raise BadInput(
            'nsp takes negatives from another document, and only one of the split has pairs; give more documents'
        )
    while len(clash):
        giver[clash] = rng.integers(0, len(b.start), len(clash))
        clash = clash[b.document[giver[clash]] == b.document[negatives[clash]]]
    return giver


def plan(split, labels: tuple[str, ...], length: int, short_probability: float, seed: int, epoch: int, rows: int = 0):
    """The epoch's Plan, shuffled. rows: how many; 0 for all, cut to a multiple of the kinds."""
    starts, most = split.sentence_starts, length - SPECIALS
    (document, first, middle, last), lone, lone_tokens = chunks(
        stream(seed, epoch, 'chunks'), starts, split.document_starts, most, short_probability
    )
    kinds = kinds_for(labels)
    rows = rows or len(document) // len(kinds) * len(kinds)
    if not rows:
        raise BadInput(
            f'the split makes {len(document)} pairs, fewer than the {len(kinds)} kinds of row; give more text'
        )
    # Epochs differ by a few chunks; all have the same number of rows so that row numbers can be divided into epochs.
    order = np.resize(stream(seed, epoch, 'order').permutation(len(document)), rows)
    document, first, middle, last = (x[order] for x in (document, first, middle, last))
    a = Pieces(starts[first], starts[middle] - starts[first], document)
    b = Pieces(starts[middle], starts[last] - starts[middle], document)
    kind = stream(seed, epoch, 'kinds').permutation(np.resize(np.array(kinds, np.int8), rows))

    negatives = np.flatnonzero(kind == RANDOM)
    if len(negatives):
        giver = np.arange(rows)
        giver[negatives] = exchange(stream(seed, epoch, 'exchange'), b, negatives)
        b = b[giver]
    swapped = kind == SWAPPED
    a, b = b.where(swapped, a), a.where(swapped, b)
    whole = int(a.length.sum() + b.length.sum())
    a, b = truncate(stream(seed, epoch, 'truncate'), a, b, most, one_end=True)
    return Plan(
        a,
        b,
        kind,
        {name: np.array([LABELS[name].get(k, -1) for k in range(3)], np.int8)[kind] for name in labels},
        order.astype(np.uint32),
        {
            'rows': rows,
            'tokens': int(a.length.sum() + b.length.sum()),
            'truncated_tokens': whole - int(a.length.sum() + b.length.sum()),
            'lone_sentences': lone,
            'lone_tokens': lone_tokens,
        },
    )
