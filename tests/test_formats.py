"""The four input formats of Liu et al. 2019, on documents whose tokens say where they come from."""

import collections
import itertools

import numpy as np
import pytest
from fakes import CLS, SEP, TEXT, FakeSplit, made_up, rows_of, text, whole, written

from bertx.errors import BadInput
from bertx.objectives.base import Needs
from bertx.text import leakage, pairs
from bertx.text.plan import RowOptions
from bertx.text.rows import FORMATS, options_for

PAIRED = ('segment_pair', 'sentence_pair')
UNPAIRED = ('full_sentences', 'doc_sentences')
LABELS = [(), ('nsp',), ('sop',), ('three_way',), ('nsp', 'sop', 'three_way')]


def test_sentence_pairs_of_hand_made_documents():
    split = FakeSplit([[3, 4], [2, 2, 5]])
    found = written(rows_of(split, format='sentence_pair', length=12))
    row = lambda a, b: [CLS, *text(split, a), SEP, *text(split, b), SEP]
    assert found in ([row(0, 1), row(2, 3)], [row(0, 1), row(3, 4)])  # by the coin of the second document


def test_sentence_pairs_are_neighbours_and_take_turns():
    split = made_up()
    rows = rows_of(split, format='sentence_pair', length=64)
    halves = []
    for epoch in range(2):
        a, b = rows.plan(epoch).pieces[0::2], rows.plan(epoch).pieces[1::2]
        np.testing.assert_array_equal(a.start + a.length, b.start)
        used = np.searchsorted(split.sentence_starts, np.concatenate([a.start, b.start]))
        assert len(set(used)) == len(used) > 0.9 * (len(split.sentence_starts) - 1)
        assert np.isin([a.start, b.start], split.sentence_starts).all()
        halves.append(set(a.start))
    assert len(halves[0] - halves[1]) > 0.2 * len(halves[0])


def in_reading_order(rows) -> list[int]:
    """Row numbers of full_sentences in the order in which the text was read."""
    return np.argsort(rows.plan(0).index).tolist()


def test_full_sentences_go_on_into_the_next_document():
    # All documents are alike, so how rows are cut does not depend on their order.
    split = FakeSplit([[3, 3], [3, 3], [3, 3]])
    rows = rows_of(split, format='full_sentences', length=12, short_probability=0.0)
    found = whole(rows)
    first, second = (found.tokens[r].tolist() for r in in_reading_order(rows))
    a, b, c = ((tokens - TEXT) // 6 for tokens in (first[1], first[8], second[5]))
    assert {a, b, c} == {0, 1, 2}
    assert first == [CLS, *text(split, 2 * a, 2 * a + 1), SEP, *text(split, 2 * b), SEP]
    assert second == [CLS, *text(split, 2 * b + 1), SEP, *text(split, 2 * c, 2 * c + 1), SEP]
    assert (found.segment_ids == 1).all()
    assert (found.positions == np.arange(12)).all()
    assert (found.type_ids == 0).all()
    assert not found.labels


def test_doc_sentences_of_hand_made_documents():
    split = FakeSplit([[3, 3, 4], [5], [20, 1]])
    rows = rows_of(split, format='doc_sentences', length=10, short_probability=0.0)
    row = lambda *sentences: [CLS, *text(split, *sentences), SEP]
    cut = [CLS, *text(split, 4)[:8], SEP]  # a sentence longer than a row
    assert written(rows) == sorted([row(0, 1), row(2), row(3), cut, row(5)])
    assert rows.plan(0).dropped['truncation'] == 12


@pytest.mark.parametrize('format', UNPAIRED)
@pytest.mark.parametrize('short', [0.0, 0.5])
@pytest.mark.parametrize('packing', [1, 3])
def test_every_sentence_is_read_once_and_whole(format, short, packing):
    split = made_up()
    rows = rows_of(split, format=format, length=64, short_probability=short, packing=packing)
    tokens = whole(rows).tokens
    np.testing.assert_array_equal(np.sort(tokens[tokens >= TEXT]) - TEXT, np.arange(split.sentence_starts[-1]))
    pieces = rows.plan(0).pieces
    assert np.isin([pieces.start, pieces.start + pieces.length], split.sentence_starts).all()
    assert sum(rows.plan(0).dropped.values()) == 0


def test_full_sentences_equal_the_plain_loop():
    split, length = made_up(), 48
    rows = rows_of(split, format='full_sentences', length=length, short_probability=0.0)
    p = rows.plan(0)
    at = in_reading_order(rows)
    read = [p.pieces.document[i] for r in at for i in range(p.input_starts[r], p.input_starts[r + 1])]
    expected, row = [], [CLS]
    for document in dict.fromkeys(read):
        for s in range(split.document_starts[document], split.document_starts[document + 1]):
            fresh = s == split.document_starts[document]
            if len(row) + fresh * (len(row) > 1) + len(text(split, s)) + 1 > length:
                expected.append([*row, SEP])
                row = [CLS]
            elif fresh and len(row) > 1:
                row.append(SEP)
            row += text(split, s)
    expected.append([*row, SEP])
    tokens = whole(rows).tokens
    assert [[x for x in tokens[r].tolist() if x] for r in at] == expected


def test_documents_come_in_a_new_order_each_epoch():
    rows = rows_of(made_up(), format='full_sentences', length=64, short_probability=0.0)
    orders = []
    for p in (rows.plan(0), rows.plan(1)):
        first = p.pieces.document[p.input_starts[:-1]][np.argsort(p.index)]
        orders.append(list(dict.fromkeys(first.tolist())))
    assert orders[0] != orders[1]


def test_what_crosses_documents_and_what_does_not():
    documents = lambda p: [len(set(p.pieces.document[i:j])) for i, j in itertools.pairwise(p.input_starts)]
    plans = {name: rows_of(made_up(200, 8), format=name, length=96).plan(0) for name in FORMATS}
    assert max(documents(plans['full_sentences'])) > 1
    for name in ('segment_pair', 'sentence_pair', 'doc_sentences'):
        assert set(documents(plans[name])) == {1}
    # Only a document's last input may leave room for its next sentence.
    split, p = made_up(200, 8), rows_of(made_up(200, 8), format='doc_sentences', length=96, short_probability=0).plan(0)
    ends = p.pieces.start + p.pieces.length
    last = np.isin(ends, split.sentence_starts[split.document_starts])
    after = np.diff(split.sentence_starts)[np.searchsorted(split.sentence_starts, ends[~last])]
    assert (p.pieces.length[~last] + after > 94).all()
    assert last.sum() == 200


@pytest.mark.parametrize('format', UNPAIRED)
def test_short_targets_come_with_their_probability(format):
    long = FakeSplit([[1] * 200_000])
    length = rows_of(long, format=format, length=64, short_probability=0.1).plan(0).pieces.length
    assert (length < 62).mean() == pytest.approx(0.1 * 61 / 62, abs=0.02)
    assert length.min() == 1


@pytest.mark.parametrize('format', FORMATS)
def test_epochs_differ_and_repeat_and_are_equally_long(format):
    rows, again = (rows_of(made_up(), format=format, length=64) for _ in range(2))
    n = len(rows)
    for epoch in (2, 0, 1):  # each can be built by itself
        np.testing.assert_array_equal(whole(rows, epoch).tokens, again.batch(epoch * n + np.arange(n)).tokens)
        assert len(rows.plan(epoch)) == n
    assert (whole(rows, 0).tokens != whole(rows, 1).tokens).any()


@pytest.mark.parametrize('format', PAIRED)
@pytest.mark.parametrize('labels', LABELS)
def test_labels_say_how_pieces_relate_and_are_exactly_balanced(format, labels):
    rows = rows_of(made_up(), format=format, length=64, labels=labels)
    assert len(rows) == len(rows_of(made_up(), format=format, length=64))
    for epoch in (0, 1):
        p = rows.plan(epoch)
        a, b = p.pieces[0::2], p.pieces[1::2]
        relation = np.where(a.document != b.document, 'random', np.where(a.start < b.start, 'ordered', 'swapped'))
        counts = collections.Counter(relation.tolist())
        assert len(set(counts.values())) == 1
        assert len(counts) == len(pairs.kinds_for(labels))
        meaning = {
            'nsp': {'ordered': 0, 'random': 1, 'swapped': -1},
            'sop': {'ordered': 0, 'random': -1, 'swapped': 1},
            'three_way': {'ordered': 0, 'swapped': 1, 'random': 2},
        }
        for name in labels:
            assert p.labels[name].tolist() == [meaning[name][r] for r in relation]


@pytest.mark.parametrize('labels', LABELS)
def test_fewer_than_six_pairs_still_make_rows(labels):
    kinds = len(pairs.kinds_for(labels))
    rows = rows_of(FakeSplit([[9, 9], [9, 9], [9, 9]]), length=24, labels=labels)
    assert len(rows) == 3 // kinds * kinds


def test_static_rows_repeat_every_dupe_factor_epochs():
    rows = rows_of(made_up(), length=64, static=True, dupe_factor=2)
    first, second, third = (whole(rows, epoch) for epoch in range(3))
    np.testing.assert_array_equal(first.tokens, third.tokens)
    np.testing.assert_array_equal(first.epoch, third.epoch)  # so masks repeat too
    assert (first.tokens != second.tokens).any()
    assert second.epoch[0] == 1


def test_options_come_from_all_objectives():
    found = options_for({'a': Needs(label='sop'), 'b': Needs(static=True), 'c': Needs()}, packing=3)
    assert (found.labels, found.static, found.original, found.packing) == (('sop',), True, False, 3)
    assert options_for({'mlm': Needs(original=True)}).static
    assert not options_for({'mlm': Needs()}).static


@pytest.mark.parametrize(
    ('settings', 'needs', 'message'),
    [
        ({'packing': 0}, Needs(), r'config\.rows\.packing is 0; 1 or more'),
        ({'dupe_factor': 0}, Needs(), r'config\.rows\.dupe_factor is 0'),
        ({'short_probability': 1.5}, Needs(), r'config\.rows\.short_probability is 1\.5; from 0 to 1'),
        ({'length': 4}, Needs(), r'config\.rows\.length is 4'),
        ({'format': 'full_sentence'}, Needs(), r'config\.rows\.format.*full_sentences'),
        ({'packing': 2}, Needs(original=True), r'config\.rows\.packing is 2.*original'),
        ({'packing': 2}, Needs(one_input=True), r'config\.rows\.packing is 2; x is the variant'),
        ({'format': 'sentence_pair'}, Needs(original=True, label='nsp'), r'config\.rows\.format is sentence_pair'),
        ({}, Needs(original=True, label='three_way'), 'three_way'),
        ({'format': 'doc_sentences'}, Needs(formats=PAIRED, label='nsp'), 'objective x needs config.rows.format = '
         'segment_pair or sentence_pair, not doc_sentences'),
    ],
)  # fmt: skip
def test_bad_options_name_the_key(settings, needs, message):
    with pytest.raises(BadInput, match=message):
        options_for({'x': needs}, **settings)


@pytest.mark.parametrize('format', FORMATS)
def test_a_report_for_each_format(format, store):
    labels = ('three_way',) if format in PAIRED else ()
    line, *leaks = leakage.describe(store, RowOptions(format=format, length=48, labels=labels, packing=4), [8, 16])
    assert line.startswith(' + '.join([format, *labels]))
    assert 'truncation' in line
    assert ' in a batch of 8,' in line
    assert len(leaks) == len(labels)
    assert all('33.3% are 1, 33.3% are 2' in leak for leak in leaks)
