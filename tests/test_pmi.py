"""Collocations, against counting them in a plain loop."""

import collections
import itertools
import math

import numpy as np
import pytest

from bertx.text import pmi, units
from bertx.text.prepare import PrepareOptions, prepare
from bertx.text.rows import RowOptions, Rows

PLANTED = ['carbon dioxide', 'los angeles lakers', 'once upon a time', 'as far as i know']


def write(folder, seed=0):
    """Sentences of random words, with collocations planted in a third of them; some words have several pieces."""
    rng = np.random.default_rng(seed)
    words = [f'{"abcdefgh"[i % 8]}{"xyz"[i % 3]}{i}' for i in range(60)]
    weights = 1 / np.arange(1, 61)
    documents = []
    for _ in range(40):
        lines = []
        for _ in range(30):
            line = list(rng.choice(words, rng.integers(3, 9), p=weights / weights.sum()))
            if rng.random() < 1 / 3:
                line.insert(rng.integers(0, len(line) + 1), str(rng.choice(PLANTED)))
            lines.append(' '.join(line) + '.')
        documents.append('\n'.join(lines))
    folder.mkdir()
    (folder / 'text.txt').write_text('\n\n'.join(documents))
    return PrepareOptions(source=f'text:{folder}/text.txt', vocab_size=120, validation=0.2, test=0, split_seed=0)


@pytest.fixture(scope='module')
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp('pmi')
    return prepare(write(folder / 'corpus'), folder / 'store')


def sentences(store, name='train'):
    """Each as a list of (flat index, tuple of pieces)."""
    split = store.split(name)
    for first, end in itertools.pairwise(split.sentence_starts):
        flat = np.arange(first, end)
        begins = np.flatnonzero(split.gather_word_starts(flat)).tolist()
        tokens = split.gather(flat).tolist()
        yield [(int(first) + a, tuple(tokens[a:b])) for a, b in itertools.pairwise([*begins, len(flat)])]


@pytest.fixture(scope='module')
def plain(store):
    """{n-gram: (count, score)} of all lengths, by loops; as nothing is special or unknown here, all words count."""
    counts = {n: collections.Counter() for n in range(1, 6)}
    for sentence in sentences(store):
        words = [word for _, word in sentence]
        for n in counts:
            counts[n].update(zip(*(words[i:] for i in range(n)), strict=False))
    total = {n: sum(counts[n].values()) for n in counts}
    p = lambda gram: math.log(counts[len(gram)][gram] / total[len(gram)])

    def segmentations(gram):
        for cuts in itertools.product([0, 1], repeat=len(gram) - 1):
            if any(cuts):
                at = [0, *(i for i, cut in enumerate(cuts, 1) if cut), len(gram)]
                yield [gram[a:b] for a, b in itertools.pairwise(at)]

    return {
        gram: (count, min(p(gram) - sum(map(p, parts)) for parts in segmentations(gram)) if n > 1 else 0)
        for n in counts
        for gram, count in counts[n].items()
        if count >= 10
    }


def grams(store, table):
    """{n-gram: (count, score)} of a table."""
    split = store.split('train')
    found = {}
    for at, count, score in zip(table.at, table.count, table.score, strict=True):
        flat = np.arange(*at)
        starts = [*np.flatnonzero(split.gather_word_starts(flat)).tolist(), len(flat)]
        tokens = split.gather(flat).tolist()
        gram = tuple(tuple(tokens[a:b]) for a, b in itertools.pairwise(starts))
        assert len(gram) == table.n and gram not in found
        found[gram] = int(count), float(score)
    return found


def text(store, gram):
    return ' '.join(store.tokenizer.decode(word) for word in gram)


def test_counts_and_scores_are_those_of_a_plain_loop(store, plain):
    tables = pmi.mine(store.split('train'), store.tokenizer.ordinary(), 10**6)
    assert any(len(word) > 1 for gram in plain for word in gram)
    for table in tables:
        wanted = {gram: x for gram, x in plain.items() if len(gram) == table.n and x[1] > 1e-9}
        found = grams(store, table)
        assert found.keys() == wanted.keys() and len(found) > 2
        for gram, (count, score) in found.items():
            assert count == wanted[gram][0] and score == pytest.approx(wanted[gram][1], abs=1e-9)


def test_planted_collocations_come_first(store):
    for table in pmi.mine(store.split('train'), store.tokenizer.ordinary(), 10**6):
        best = sorted(grams(store, table).items(), key=lambda item: -item[1][1])
        planted = [words for words in PLANTED if len(words.split()) == table.n]
        assert {text(store, gram) for gram, _ in best[:6]} >= set(planted)


def test_the_size_is_shared_out_by_length(store, plain):
    often = sum(len(gram) > 1 for gram in plain)
    ordinary = store.tokenizer.ordinary()
    whole = pmi.mine(store.split('train'), ordinary, 10**6)
    for size, wanted in ((40, 40), (0.2, 0.2 * often), (0, 0.5 * often)):
        tables = pmi.mine(store.split('train'), ordinary, size)
        for table, every, share in zip(tables, whole, (0.5, 0.25, 0.125, 0.125), strict=True):
            assert len(table.key) == min(int(share * wanted), len(every.key))
            if len(table.key):
                assert table.score.min() >= np.sort(every.score)[-len(table.key)]


@pytest.mark.parametrize('name, value', [('CHUNK', 500), ('CHUNK', 1), ('TABLE', 1500)])
def test_memory_is_bounded_and_changes_nothing(store, monkeypatch, name, value):
    split, ordinary = store.split('train'), store.tokenizer.ordinary()
    whole = pmi.mine(split, ordinary, 60)
    labelled = np.sort(np.concatenate(list(pmi.joined(split, ordinary, whole))))
    sizes = []
    monkeypatch.setattr(pmi, name, value)
    unique = np.unique
    monkeypatch.setattr(np, 'unique', lambda x, **kwargs: sizes.append(len(x)) or unique(x, **kwargs))
    for a, b in zip(pmi.mine(split, ordinary, 60), whole, strict=True):
        for column in ('key', 'count', 'first', 'at', 'score'):
            np.testing.assert_array_equal(getattr(a, column), getattr(b, column))
    assert max(sizes) < (1.5 * value if value > 1 else 100)
    np.testing.assert_array_equal(np.sort(np.concatenate(list(pmi.joined(split, ordinary, whole)))), labelled)


def test_longer_units_come_first_then_those_on_the_left(store):
    """By hand: the same rule in loops."""
    split, ordinary = store.split('train'), store.tokenizer.ordinary()
    tables = pmi.mine(split, ordinary, 300)
    vocabulary = set().union(*(grams(store, table) for table in tables))
    wanted = []
    for sentence in sentences(store):
        taken = [False] * len(sentence)
        for n in (5, 4, 3, 2):
            for i in range(len(sentence) - n + 1):
                if tuple(word for _, word in sentence[i : i + n]) in vocabulary and not any(taken[i : i + n]):
                    taken[i : i + n] = [True] * n
                    wanted += [at for at, _ in sentence[i + 1 : i + n]]
    found = np.concatenate(list(pmi.joined(split, ordinary, tables)))
    assert len(wanted) > 500
    assert sorted(found.tolist()) == sorted(wanted)


def test_n_grams_hold_no_unknown_token(store, tmp_path):
    split, ordinary = store.split('train'), store.tokenizer.ordinary().copy()
    dioxide = store.tokenizer.encode(['carbon dioxide'])[0][0]
    ordinary[dioxide[-1]] = False
    for table in pmi.mine(split, ordinary, 10**6):
        assert not any(dioxide[-1] in word for gram in grams(store, table) for word in gram)
        odd = [[dioxide[-1] in word for _, word in sentence] for sentence in sentences(store)]
        whole = (not any(words[i : i + table.n]) for words in odd for i in range(len(words) - table.n + 1))
        assert table.total == sum(whole)


def test_rows_of_pmi_units(store):
    """Each row's pieces of a planted collocation share an id, and so do those of a word; nothing else does."""
    plain_rows, rows = (Rows(store, 'train', RowOptions(length=48, units=u), seed=0) for u in ('', 'pmi'))
    numbers = np.arange(min(60, len(rows)))
    batch, words = rows.batch(numbers), plain_rows.batch(numbers)
    np.testing.assert_array_equal(words.unit_ids, words.word_ids)
    np.testing.assert_array_equal(batch.word_ids, words.word_ids)
    assert (batch.unit_ids < batch.word_ids).any() and batch.unit_ids.dtype == np.int32
    lakers = store.tokenizer.encode(['los angeles lakers'])[0][0].tolist()
    seen = 0
    for tokens, unit, word in zip(batch.tokens.tolist(), batch.unit_ids, batch.word_ids, strict=True):
        assert (np.diff(unit) >= 0).all() and (np.diff(unit) <= np.diff(word)).all()
        for i in range(48 - len(lakers)):
            if tokens[i : i + len(lakers)] == lakers:
                seen += 1
                assert len(set(unit[i : i + len(lakers)])) == 1
                assert len(set(word[i : i + len(lakers)])) == 3
    assert seen > 3
    cut = RowOptions(length=16, units='pmi', labels=('nsp',), original=True, dupe_factor=1)  # of both ends
    short = Rows(store, 'train', cut, seed=0)
    batch = short.batch(np.arange(len(short)))
    special = ~store.tokenizer.ordinary()[batch.tokens]
    for unit, alone in zip(batch.unit_ids, special, strict=True):  # also where truncation cut a unit
        assert not set(unit[alone]) & set(unit[~alone]) and len(set(unit[alone])) == alone.sum()
    (folder,) = (store.path / 'units').iterdir()
    assert sorted(path.name for path in folder.iterdir()) == ['train.npy', 'validation.npy', 'vocabulary.tsv']
    lines = (folder / 'vocabulary.tsv').read_text().splitlines()
    assert any(line.startswith('3\t') and line.endswith('\tlos angeles lakers') for line in lines)


def test_two_stores_of_a_corpus_have_the_same_units(store, tmp_path):
    other = prepare(write(tmp_path / 'corpus'), tmp_path / 'store')
    for name in ('train', 'validation'):
        a, b = (units.starts(s, name, 'pmi:50') for s in (store, other))
        assert a.tobytes() == b.tobytes() and 0 < a.sum() < len(a)
