"""How segment pairs are made, clean and as the released code makes them."""

import numpy as np
import pytest
from fakes import TEXT, FakeSplit, made_up, rows_of, whole

from bertx.errors import BadInput
from bertx.objectives.base import Needs
from bertx.text import leakage, segment_pair, segment_pair_original
from bertx.text.pairs import kinds_for
from bertx.text.plan import Pieces, RowOptions, truncate
from bertx.text.rows import Rows, options_for


class Pairs:
    """A plan's pairs, one to a row."""

    def __init__(self, plan):
        self.a, self.b = plan.pieces[0::2], plan.pieces[1::2]
        self.labels, self.index, self.dropped = plan.labels, plan.index, plan.dropped
        self.random = self.a.document != self.b.document
        self.swapped = ~self.random & (self.a.start > self.b.start)

    def __len__(self):
        return len(self.index)


def plan(split, labels=(), length=64, seed=0, epoch=0, rows=0, short=0.1, make=segment_pair.plan):
    options = RowOptions(length=length, labels=labels, short_probability=short)
    return Pairs(make(split, options, seed, epoch, rows))


def original(split, label, length, short):
    return plan(split, (label,), length, short=short, make=segment_pair_original.plan)


def test_a_hand_made_document():
    # One document of four sentences, targets never short: 4 + 5 reach the 9 that fit; so do 4 + 5 from the other end.
    p = plan(FakeSplit([[4, 5, 5, 4]]), length=12, short=0.0)
    order = np.argsort(p.a.start)
    assert p.a.start[order].tolist() == [0, 9]
    assert p.a.length[order].tolist() == [4, 5]
    assert p.b.start[order].tolist() == [4, 14]
    assert p.b.length[order].tolist() == [5, 4]


@pytest.mark.parametrize('labels', [(), ('nsp',), ('sop',), ('nsp', 'sop')])
def test_labels_are_exactly_balanced(labels):
    p = plan(made_up(), labels)
    each = len(p) // len(kinds_for(labels))
    assert p.random.sum() == (each if 'nsp' in labels else 0)
    assert p.swapped.sum() == (each if 'sop' in labels else 0)
    assert len(p) % 6 == 0
    assert len(p) > 50
    for name in labels:
        assert (p.labels[name] == 0).sum() == (p.labels[name] == 1).sum()


def test_nsp_negatives_come_from_another_document_and_positives_follow_on():
    p = plan(made_up(), ('nsp',), length=1000)
    negative = p.labels['nsp'] == 1
    assert (p.a.document[negative] != p.b.document[negative]).all()
    assert (p.a.document[~negative] == p.b.document[~negative]).all()
    split = made_up()
    sentence = lambda start: np.searchsorted(split.sentence_starts, start, side='right') - 1
    gap = sentence(p.b.start[~negative]) - sentence(p.a.start[~negative] + p.a.length[~negative] - 1)
    assert (gap == 1).all()


def test_sop_swaps_and_never_takes_another_document():
    p = plan(made_up(), ('sop',))
    assert (p.a.document == p.b.document).all()
    swapped = p.labels['sop'] == 1
    assert (p.a.start[swapped] > p.b.start[swapped]).all()
    assert (p.a.start[~swapped] < p.b.start[~swapped]).all()
    np.testing.assert_array_equal(swapped, p.swapped)


def test_every_arm_reads_the_same_chunks_in_the_same_order():
    split = made_up()
    none, nsp, sop = (plan(split, labels, length=1000) for labels in ((), ('nsp',), ('sop',)))
    np.testing.assert_array_equal(none.index, nsp.index)
    np.testing.assert_array_equal(none.index, sop.index)
    np.testing.assert_array_equal(none.a.start, nsp.a.start)
    np.testing.assert_array_equal(none.a.start, np.where(sop.swapped, sop.b.start, sop.a.start))
    # The same B's, each once, only elsewhere.
    assert sorted(nsp.b.start) == sorted(none.b.start)


def test_length_says_nothing_of_the_label():
    p = plan(made_up(200, 80), ('nsp', 'sop'))
    for name, label in p.labels.items():
        a, b = (p.a.length, p.b.length)
        for quantity in (a + b, a - b):
            gap = quantity[label == 1].mean() - quantity[label == 0].mean()
            assert abs(gap) < 4 * quantity.std() / np.sqrt((label >= 0).sum() / 4), (name, gap)


def test_rows_fit_and_what_is_dropped_is_counted():
    split = made_up()
    p = plan(split, ('nsp',), length=32)
    assert ((p.a.length + p.b.length) <= 29).all()
    assert (np.minimum(p.a.length, p.b.length) >= 1).all()
    for q in (p, plan(split, length=32)):
        tokens = q.a.length.sum() + q.b.length.sum()
        assert tokens + sum(q.dropped.values()) == split.sentence_starts[-1]
        assert q.dropped['truncation'] > 0


def test_short_rows_come_with_their_probability():
    long = FakeSplit([[1] * 200_000])
    p = plan(long)
    total = p.a.length + p.b.length
    # A target of 61 is met exactly with sentences of one token; a short one is uniform in 2..61.
    assert (total < 61).mean() == pytest.approx(0.1 * 59 / 60, abs=0.02)
    assert total.min() == 2


@pytest.mark.parametrize(('a', 'b'), [(10, 20), (20, 10), (15, 15), (40, 3), (3, 40), (9, 8), (1, 1)])
def test_truncation_equals_the_published_loop(a, b):
    def loop(a: int, b: int, most: int):  # truncate_seq_pair, lengths only
        while a + b > most:
            if a > b:
                a -= 1
            else:
                b -= 1
        return a, b

    piece = lambda n: Pieces(np.array([0]), np.array([n]), np.array([0]))
    for rng in (None, np.random.default_rng(0)):
        x, y = truncate(piece(a), piece(b), 17, rng)
        assert (x.length[0], y.length[0]) == loop(a, b, 17)
        for cut, uncut in ((x, a), (y, b)):
            assert 0 <= cut.start[0] <= (uncut - cut.length[0] if rng else 0)


def test_clean_pieces_begin_where_sentences_do():
    split = made_up()
    p = plan(split, ('nsp', 'sop'), length=32)
    assert np.isin([p.a.start, p.b.start], split.sentence_starts).all()


def test_epochs_differ_and_seeds_differ_and_both_repeat():
    split = made_up()
    a, b, c, again = plan(split), plan(split, epoch=1), plan(split, seed=1), plan(split)
    np.testing.assert_array_equal(a.a.start, again.a.start)
    assert (a.a.start[: len(b)] != b.a.start[: len(a)]).any()
    assert (a.a.start[: len(c)] != c.a.start[: len(a)]).any()
    assert len(plan(split, epoch=1, rows=len(a))) == len(a)


def test_one_document_makes_no_nsp():
    with pytest.raises(BadInput, match='another document'):
        plan(FakeSplit([[5] * 40]), ('nsp',))
    assert len(plan(FakeSplit([[5] * 40]), ('sop',)))
    with pytest.raises(BadInput, match='two sentences'):
        plan(FakeSplit([[5], [6]]))


def test_a_document_with_more_than_half_of_the_text():
    p = plan(FakeSplit([[5] * 400, [6] * 20, [7] * 20]), ('nsp',))
    assert p.random.sum() == len(p) / 2


class TestOriginal:
    def test_single_sentence_chunks_are_always_negative_and_unbalance_the_labels(self):
        split = FakeSplit([[70] * 20 for _ in range(10)])  # each sentence fills a row
        p = original(split, 'nsp', 64, 0.0)
        assert (p.labels['nsp'] == 1).all()
        p = original(split, 'sop', 64, 0.0)
        assert p.random.mean() > 0.99  # the ten tries for another document may fail
        assert (p.labels['sop'] == 1).all()

    def test_displaced_sentences_are_put_back(self):
        split = made_up()
        p = original(split, 'nsp', 1000, 0.0)
        ordered = p.labels['nsp'] == 0
        covered = int(p.a.length.sum() + p.b.length[ordered].sum())
        assert covered == split.sentence_starts[-1]

    def test_ten_tries_for_another_document_then_the_same_one(self):
        p = original(FakeSplit([[5] * 200]), 'nsp', 64, 0.1)
        negative = p.labels['nsp'] == 1
        assert negative.any()
        assert (p.b.document[negative] == 0).all()

    def test_sop_swaps_about_half(self):
        p = original(made_up(200), 'sop', 64, 0.1)
        assert p.swapped.sum() / (~p.random).sum() == pytest.approx(0.5, abs=0.05)


class TestRows:
    @pytest.fixture(scope='class')
    def rows(self, store):
        return Rows(store, 'train', RowOptions(length=48, labels=('nsp',)), seed=0)

    def test_a_row_reads_cls_a_sep_b_sep(self, rows, store):
        batch, p = rows.batch(np.arange(40)), rows.plan(0)
        tokens = store.split('train').gather(np.arange(store.split('train').n_tokens))
        t = store.tokenizer
        for i in range(40):
            a, b = (tokens[x.start[i] : x.start[i] + x.length[i]] for x in (p.pieces[0::2], p.pieces[1::2]))
            expected = [t.cls_id, *a, t.sep_id, *b, t.sep_id]
            n = len(expected)
            assert batch.tokens[i].tolist() == expected + [t.pad_id] * (48 - n)
            assert batch.segment_ids[i].tolist() == [1] * n + [0] * (48 - n)
            assert batch.type_ids[i].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (48 - n)
            assert batch.positions[i, :n].tolist() == list(range(n))
        np.testing.assert_array_equal(batch.labels['nsp'][:, 0], p.labels['nsp'][:40])

    @pytest.mark.parametrize('original', [False, True])  # which cuts pieces at the front, inside of words too
    def test_word_ids_follow_the_words(self, original):
        rows = rows_of(made_up(), length=32, labels=('nsp',), original=original, static=original)
        batch, inside = whole(rows), 0
        for tokens, words in zip(batch.tokens, batch.word_ids, strict=True):
            text = tokens >= TEXT
            begins = ~text | (rows.split.gather_word_starts(tokens - TEXT) > 0)
            inside += (~begins[1:] & ~text[:-1]).sum()
            begins[1:] |= ~text[:-1]
            np.testing.assert_array_equal(words, np.cumsum(begins) - 1)
        assert (inside > 0) == original

    def test_any_batch_of_any_epoch_can_be_built_alone(self, rows, store):
        n = len(rows)
        across = np.arange(n - 3, n + 4)
        whole = rows.batch(across)
        fresh = Rows(store, 'train', RowOptions(length=48, labels=('nsp',)), seed=0)
        for i, number in enumerate(across[::-1]):
            one = fresh.batch(np.array([number]))
            np.testing.assert_array_equal(one.tokens[0], whole.tokens[len(across) - 1 - i])
        assert whole.epoch.tolist() == [0] * 3 + [1] * 4
        assert rows.batch(np.array([10**9])).epoch[0] == 10**9 // n

    def test_original_rows_repeat_after_dupe_factor_epochs(self, store):
        options = RowOptions(length=48, labels=('nsp',), original=True, static=True, dupe_factor=3)
        rows = Rows(store, 'train', options, seed=0)
        cycle = int(rows.ends[-1])
        a, b = rows.batch(np.arange(20)), rows.batch(np.arange(20) + cycle)
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_array_equal(a.epoch, b.epoch)
        assert (rows.batch(np.arange(20) + int(rows.ends[0])).tokens != a.tokens).any()

    def test_what_the_objectives_need_is_checked(self):
        with pytest.raises(BadInput, match=r'rows.format.*segment_pair'):
            options_for({}, format='segment_pairs')
        with pytest.raises(BadInput, match='mixes'):
            options_for({'mlm': Needs(original=False), 'nsp': Needs(original=True)})
        assert options_for({'clm': Needs(), 'nsp': Needs(original=True)}).original


def test_leakage_report(store):
    found = leakage.report(store, RowOptions(length=32, labels=('sop',)), 'sop')
    assert found.shares == (0.5, 0.5)
    assert abs(found.length_only - 0.5) < 0.15
    assert '50.0% are 1' in str(found)


def test_released_sop_lets_length_tell_the_label_and_ours_does_not():
    split = made_up(200, 80)

    def gap(p):
        difference, label = p.a.length - p.b.length, p.labels['sop']
        error = difference.std() * 2 / np.sqrt(len(p))
        return (difference[label == 1].mean() - difference[label == 0].mean()) / error

    assert abs(gap(plan(split, ('sop',)))) < 3
    assert gap(original(split, 'sop', 64, 0.1)) > 5
