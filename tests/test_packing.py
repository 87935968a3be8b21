"""Several inputs in a row: the same inputs as without, apart from each other, in rows that are nearly full."""

import collections
import itertools
import types

import jax
import numpy as np
import pytest
from fakes import CLS, PAD, SEP, TEXT, FakeSplit, made_up, rows_of, text, whole

from bertx import model, train
from bertx.families import encoder_of
from bertx.objectives import base
from bertx.text.packing import best_fit
from bertx.text.pairs import kinds_for
from bertx.text.rows import FORMATS, Rows, options_for

PAIRED = ('segment_pair', 'sentence_pair')
LABELS = [(), ('nsp',), ('sop',), ('three_way',)]


def inputs(p) -> collections.Counter:
    """Each input's pieces."""
    spans = list(zip(p.pieces.start.tolist(), p.pieces.length.tolist(), strict=True))
    return collections.Counter(tuple(spans[i:j]) for i, j in itertools.pairwise(p.input_starts))


@pytest.mark.parametrize('most', [1, 2, 3, 100])
def test_best_fit_equals_the_plain_search(most):
    sizes = np.random.default_rng(0).integers(3, 65, 400)
    rows, found = [], []
    for size in sorted(sizes.tolist(), reverse=True):
        fitting = [row for row in rows if sum(row) + size <= 64 and len(row) < most]
        if not fitting:
            rows.append(row := [])
            fitting = [row]
        max(fitting, key=sum).append(size)
    row = best_fit(sizes, 64, most)
    for r in range(row.max() + 1):
        found.append(sorted(sizes[row == r].tolist(), reverse=True))
    # Which of two rows with the same room is taken may differ; how full rows are may not.
    assert sorted(map(sum, found)) == sorted(map(sum, rows))
    assert max(map(len, found)) <= most


def test_a_hand_made_packed_row():
    split = FakeSplit([[4], [2, 2]])
    batch = whole(rows_of(split, format='doc_sentences', length=13, packing=3, short_probability=0.0))
    a, b = [CLS, *text(split, 0), SEP], [CLS, *text(split, 1, 2), SEP]
    assert batch.tokens.tolist() in ([[*a, *b, PAD]], [[*b, *a, PAD]])
    assert batch.segment_ids.tolist() == [[1] * 6 + [2] * 6 + [0]]
    assert batch.positions.tolist() == [[*range(6), *range(6), 0]]
    assert batch.type_ids.tolist() == [[0] * 13]
    assert batch.word_ids.tolist() == [[0, 1, 1, 2, 2, 3, 4, 5, 5, 6, 6, 7, 8]]
    assert batch.starts.tolist() == [[0, 6, 0]]


def test_a_hand_made_packed_row_of_pairs():
    split = FakeSplit([[3, 1], [3, 1]])
    batch = whole(rows_of(split, format='sentence_pair', length=16, packing=3, labels=('sop',)))
    [tokens], [label] = batch.tokens.tolist(), batch.labels['sop'].tolist()
    assert sorted(label) == [-1, 0, 1]
    assert label[2] == -1
    expected, types = [], []
    for document, swapped in zip((0, 1) if tokens[1] < TEXT + 4 else (1, 0), label, strict=False):
        pair = [text(split, 2 * document), text(split, 2 * document + 1)]
        a, b = reversed(pair) if swapped else pair
        expected += [CLS, *a, SEP, *b, SEP]
        types += [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert tokens == [*expected, PAD, PAD]
    assert batch.type_ids.tolist() == [[*types, 0, 0]]
    assert batch.segment_ids.tolist() == [[1] * 7 + [2] * 7 + [0] * 2]
    assert batch.positions.tolist() == [[*range(7), *range(7), 0, 0]]
    assert batch.starts.tolist() == [[0, 7, 0]]


@pytest.mark.parametrize('format', FORMATS)
@pytest.mark.parametrize('packing', [2, 5])
def test_packed_rows_hold_the_same_inputs(format, packing):
    split = made_up(60)
    plain, packed = (rows_of(split, format=format, length=64, packing=n).plan(0) for n in (1, packing))
    held = np.diff(packed.row_starts)
    assert 1 < held.max() <= packing
    missing = inputs(plain) - inputs(packed)
    assert not inputs(packed) - inputs(plain) or format in PAIRED
    # Up to five rows, and five more pairs, are cut where there may be labels.
    assert missing.total() <= (5 * packing + 5 if format in PAIRED else 0)
    assert len(packed) < len(plain)


@pytest.mark.parametrize('format', FORMATS)
def test_every_field_agrees_with_the_plan(format):
    rows = rows_of(made_up(60), format=format, length=64, packing=4, labels=('three_way',) if format in PAIRED else ())
    batch, p = whole(rows, 1), rows.plan(1)
    split = rows.split
    for r in range(len(p)):
        tokens, segments, positions, types, starts = [], [], [], [], []
        for number, i in enumerate(range(p.row_starts[r], p.row_starts[r + 1]), 1):
            mine, kinds = [CLS], [0]
            for side, k in enumerate(range(p.input_starts[i], p.input_starts[i + 1])):
                mine += [*split.gather(p.pieces.start[k] + np.arange(p.pieces.length[k])), SEP]
                kinds += [side if format in PAIRED else 0] * (len(mine) - len(kinds))
            starts.append(len(tokens))
            tokens, types = tokens + mine, types + kinds
            segments, positions = segments + [number] * len(mine), positions + [*range(len(mine))]
        padding = [0] * (64 - len(tokens))
        assert batch.tokens[r].tolist() == tokens + padding
        assert batch.segment_ids[r].tolist() == segments + padding
        assert batch.positions[r].tolist() == positions + padding
        assert batch.type_ids[r].tolist() == types + padding
        assert batch.starts[r].tolist() == starts + [0] * (4 - len(starts))
        for name, labels in p.labels.items():
            mine = labels[p.row_starts[r] : p.row_starts[r + 1]].tolist()
            assert batch.labels[name][r].tolist() == mine + [-1] * (4 - len(mine))
    index = whole(rows).index.tolist()
    assert len(set(index)) == len(index)


@pytest.mark.parametrize('format', PAIRED)
@pytest.mark.parametrize('labels', [*LABELS, ('nsp', 'sop')])
def test_labels_stay_exactly_balanced_over_each_epoch(format, labels):
    rows = rows_of(made_up(60), format=format, length=64, packing=3, labels=labels)
    for epoch in range(4):
        p = rows.plan(epoch)
        pairs = len(p.input_starts) - 1
        assert len(p) == len(rows)
        assert pairs % 6 == 0
        for values in p.labels.values():
            shares = np.bincount(values[values >= 0])
            assert set(shares) == {pairs // len(kinds_for(labels))}


@pytest.mark.parametrize('format', PAIRED)
def test_arms_pack_the_same_chunks_into_the_same_rows(format):
    arms = [rows_of(made_up(60), format=format, length=64, packing=3, labels=labels) for labels in LABELS]
    for epoch in range(2):
        plans = [rows.plan(epoch) for rows in arms]
        for p in plans[1:]:
            np.testing.assert_array_equal(p.index, plans[0].index)
            np.testing.assert_array_equal(p.row_starts, plans[0].row_starts)
        none, nsp, sop, _ = ((p.pieces[0::2], p.pieces[1::2]) for p in plans)
        np.testing.assert_array_equal(nsp[0].start, none[0].start)
        swapped = plans[2].labels['sop'] == 1
        np.testing.assert_array_equal(none[0].start, np.where(swapped, sop[1].start, sop[0].start))
        np.testing.assert_array_equal(none[1].start, np.where(swapped, sop[0].start, sop[1].start))
        assert sorted(nsp[1].start) == sorted(none[1].start)
        if format == 'sentence_pair':  # two of at most 29 tokens: a random B is whole too
            assert sorted(nsp[1].length) == sorted(none[1].length)


def test_length_says_nothing_of_the_label_in_packed_rows():
    p = rows_of(made_up(300, 80), length=64, packing=4, labels=('three_way',)).plan(0)
    a, b = p.pieces.length.reshape(-1, 2).T
    label = p.labels['three_way']
    for quantity in (a + b, a - b):
        for value in (1, 2):
            gap = quantity[label == value].mean() - quantity[label == 0].mean()
            assert abs(gap) < 4 * quantity.std() / np.sqrt(len(p) / 6), (value, gap)


@pytest.mark.parametrize('format', FORMATS)
def test_any_row_can_be_built_by_itself(format):
    make = lambda: rows_of(made_up(60), format=format, length=64, packing=4)
    rows = make()
    n = len(rows)
    numbers = np.array([0, n - 1, n, 2 * n + 3])
    together = rows.batch(numbers)
    for i in (3, 1, 0, 2):
        alone = make().batch(numbers[i : i + 1])
        for field in ('tokens', 'segment_ids', 'positions', 'starts', 'index', 'epoch'):
            np.testing.assert_array_equal(getattr(alone, field)[0], getattr(together, field)[i])


@pytest.mark.parametrize('count', [30, 60])
def test_a_given_number_of_rows_is_kept_and_balanced(count):
    rows = rows_of(made_up(60), length=64, packing=4, labels=('nsp',))
    store = types.SimpleNamespace(split=lambda name: rows.split, tokenizer=rows.tokenizer)
    some = Rows(store, 'train', rows.options, 0, count)
    label = some.plan(0).labels['nsp']
    assert len(some) == count
    assert (label == 0).sum() == (label == 1).sum() == len(label) / 2


@pytest.mark.parametrize(
    ('format', 'least'),
    [('segment_pair', 0.95), ('sentence_pair', 0.97), ('full_sentences', 0.9), ('doc_sentences', 0.9)],
)
@pytest.mark.parametrize('sentences', [20, 200])  # in a document, at most; of 15.5 tokens each on average
def test_rows_are_nearly_full(format, least, sentences):
    fill = {}
    for packing in (1, 8):
        rows = rows_of(made_up(10000 // sentences, sentences), format=format, length=128, packing=packing)
        assert rows.plan(0).real == (whole(rows).segment_ids > 0).sum()
        fill[packing] = rows.plan(0).real / len(rows) / 128
    assert fill[8] > max(least, fill[1])


def test_the_loss_of_a_token_does_not_depend_on_the_packing(store):
    """Without noise, so that nothing but the rows differs."""
    objectives = base.make({'clm': {}}, 48)
    found = []
    for packing in (1, 3):
        rows = Rows(store, 'train', options_for({}, format='doc_sentences', length=48, packing=packing), 0)
        batch = rows.batch(np.arange(len(rows)))
        view, targets = model.corrupt(objectives, jax.random.key(0), train.vocabulary(store), batch)
        encoder = encoder_of('bert', 'tiny', store.tokenizer.vocab_size, layers=1, width=32, heads=2, std=0.1)
        net = model.make_net(objectives['clm'].adapt(encoder), objectives)
        params = net.init(jax.random.key(0), objectives, view, targets)
        losses, _ = jax.jit(net.apply)(params, objectives, view, targets)
        found.append([np.asarray(x, np.float64).sum() for x in jax.tree.leaves(losses['clm/loss'].term)])
    (one, tokens), (other, as_many) = found
    assert tokens == as_many > 1000
    assert one == pytest.approx(other, rel=1e-6)
