"""RoBERTa's FULL-SENTENCES (Liu et al. 2019, section 4.2): whole sentences up to the length, on into the next document
with one more [SEP] between: [CLS] text [SEP] (text [SEP])*. No pairs, so no labels; one type id.

DOC-SENTENCES, of the same section, does not go on: [CLS] text [SEP]. The last input of a document may be much shorter;
config.rows.packing fills such rows up.
"""

import numpy as np

from bertx.errors import BadInput
from bertx.text.packing import arrange
from bertx.text.plan import Pieces, Plan, RowOptions, offsets, ragged, stream, targets

SPECIALS = 2  # [CLS] text [SEP]


def plan(split, options: RowOptions, seed: int, epoch: int, rows: int = 0, cross: bool = True) -> Plan:
    """The epoch's Plan, shuffled: every sentence once, documents in a new order. A sentence longer than a row loses its
    tail. cross: whether an input may go on into the next document. rows: how many; 0 for all."""
    starts, most = split.sentence_starts, options.length - SPECIALS
    if len(starts) < 2:
        raise BadInput('the split has no sentence; give more text')
    documents = stream(seed, epoch, 'documents').permutation(len(split.document_starts) - 1)
    sentence, document, number = ragged(split.document_starts, documents)  # in the order in which they are read
    length, count = np.diff(starts)[sentence], len(sentence)
    # Sentences i to j of one input take ends[j] - begins[i] slots: their text, and a [SEP] where a document ends.
    ends = np.cumsum(length) + document
    begins = ends - length
    target = targets(stream(seed, epoch, 'chunks'), count, 1, most, options.short_probability)
    after = np.searchsorted(ends, begins + target, side='right')  # the input that i begins ends before this sentence
    if not cross:
        after = np.minimum(after, np.searchsorted(document, document, side='right'))
    step = memoryview(np.maximum(after, np.arange(count) + 1))  # a list would hold an object for each sentence
    heads = [0]
    while (at := step[heads[-1]]) < count:
        heads.append(at)

    edge = number == 0  # pieces begin where documents and inputs do
    edge[heads] = True
    edges = np.flatnonzero(edge)
    size = np.add.reduceat(length, edges)
    pieces = Pieces(starts[sentence[edges]], np.minimum(size, most), documents[document[edges]])
    input_starts = np.append(np.searchsorted(edges, heads), len(edges))
    sizes = np.add.reduceat(pieces.length + 1, input_starts[:-1]) + 1
    inputs, row_starts = arrange(sizes, options.length, options.packing, seed, epoch, rows)
    items, owner, _ = ragged(input_starts, inputs)
    return Plan(
        pieces[items],
        input_starts=offsets(np.bincount(owner, minlength=len(inputs))),
        row_starts=row_starts,
        index=inputs[row_starts[:-1]].astype(np.uint32),
        dropped={
            'truncation': int((size - pieces.length)[items].sum()),
            'the cut to the rows of other epochs': max(0, int(size.sum() - size[items].sum())),
        },
    )
