"""Statistics of what is selected. The released codes: tests/test_select_originals.py."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from scipy import stats

from bertx import model
from bertx.errors import BadInput
from bertx.objectives import base, mlm
from bertx.select import SELECT, NGrams, Spans, Stratified, Tokens, Units, WholeWords
from bertx.types import Example, Vocabulary

V, L = 100, 64
VOCAB = Vocabulary(jnp.int32(4), jnp.arange(V) >= 5, jnp.float32(np.arange(V) >= 5))
CLEAN = [
    Tokens(),
    WholeWords(),
    Units(),
    NGrams(),
    NGrams(favor_shorter=False),
    Spans(),
    Stratified(),
    Stratified(most=3),
]
ORIGINAL = [
    *(Tokens(variant=name) for name in ('bert', 'roberta', 'electra')),
    *(WholeWords(variant=name) for name in ('original', 'fairseq')),
    *(kind(variant='original') for kind in (NGrams, Spans, Stratified)),
    Stratified(most=3, variant='original'),
]
name_of = lambda s: f'{type(s).__name__}-{s.variant}-{getattr(s, "most", 1)}'


def row(words, length: int = 0) -> Example:
    """A row from the lengths of its words; 0 is a special token, and '|' begins another packed segment.

    Units are pairs of words.
    """
    tokens, segments, word_ids, segment, word = [], [], [], 1, 0
    for n in words:
        if n == '|':
            segment += 1
            continue
        tokens += [5 + word % (V - 5)] * n or [3]
        segments += [segment] * max(n, 1)
        word_ids += [word] * max(n, 1)
        word += 1
    pad = max(length, len(tokens)) - len(tokens)
    array = lambda x: np.pad(np.array(x, np.int32), (0, pad))
    word_ids = array(word_ids)
    word_ids[len(tokens) :] = word + np.arange(pad)
    zero, number = np.zeros(1, np.int32), np.uint32(0)
    return Example(
        tokens=array(tokens), segment_ids=array(segments), positions=np.arange(len(word_ids), dtype=np.int32),
        type_ids=0 * word_ids, word_ids=word_ids, unit_ids=word_ids // 2, starts=zero, labels={'nsp': zero},
        epoch=number, index=number,
    )  # fmt: skip


def some_words(seed: int, tokens: int) -> list[int]:
    """Lengths of words with that sum, 1.4 on average."""
    lengths = np.random.default_rng(seed).choice([1, 2, 3, 4], tokens, p=[0.75, 0.15, 0.05, 0.05])
    n = int(np.searchsorted(lengths.cumsum(), tokens))
    return [n for n in (*map(int, lengths[:n]), int(tokens - lengths[:n].sum())) if n]


PAIR = row([0, *some_words(1, 27), 0, *some_words(2, 26), 0], L)  # [CLS] A [SEP] B [SEP], padding
PACKED = row([0, *some_words(3, 20), 0, '|', *some_words(4, 16), '|', 0, *some_words(5, 20), 0], L)
LONG = row([0, *[1] * 510, 0])


@functools.cache
def compiled(k: int):
    one = lambda selector, example, key: selector(key, example, VOCAB, k)
    return jax.jit(jax.vmap(one, (None, None, 0)))


def select(selector, example: Example, n: int = 500, k: int = 32, seed: int = 0):
    """n draws for one row, as numpy. Tests with the same numbers share compilations; k=0: as many as the rate needs."""
    keys = jax.random.split(jax.random.key(seed), n)
    k = k or selector.slots(len(example.tokens))
    return jax.tree.map(np.asarray, compiled(k)(jax.tree.map(np.float32, selector), example, keys))


def chosen(selected, length: int) -> np.ndarray:
    """[n, length] bool."""
    found = np.zeros((len(selected.at_K), length), bool)
    rows, slots = np.nonzero(selected.weight_K)
    found[rows, selected.at_K[rows, slots]] = True
    return found


def is_text(example: Example) -> np.ndarray:
    return (example.tokens >= 5) & (example.segment_ids > 0)


def z_of(values: np.ndarray, expected: float) -> float:
    """How many standard errors the mean of independent values is from what is expected."""
    return (values.mean() - expected) / (values.std() / np.sqrt(len(values)) + 1e-12)


@pytest.mark.parametrize('example', [PAIR, PACKED], ids=['pair', 'packed'])
@pytest.mark.parametrize('selector', CLEAN, ids=name_of)
def test_clean_rates_are_exact_at_every_position(selector, example):
    n, rate, text = 8000, 0.15, is_text(example)
    found = chosen(select(selector, example, n, 0), L)
    assert not found[:, ~text].any()
    rates = found.mean(0)[text]
    z = (rates - rate) / np.sqrt(rate * (1 - rate) / n)
    assert np.abs(z).max() < 4, z.round(1)  # 3 sigma for the worst of some 20 words
    places, size = np.flatnonzero(text), np.bincount(example.word_ids)[example.word_ids]
    groups = {'all': places, 'first': places[:5], 'last': places[-5:], 'long words': places[size[places] > 2]}
    for name, group in groups.items():
        assert abs(z_of(found[:, group].mean(1), rate)) < 3, name


@pytest.mark.parametrize('selector', CLEAN + ORIGINAL, ids=name_of)
@pytest.mark.parametrize('example', [PAIR, PACKED], ids=['pair', 'packed'])
def test_slots_are_distinct_and_in_order(selector, example):
    s = select(selector.replace(rate=0.3), example)
    compilations = compiled(32)._cache_size()
    assert select(selector.replace(rate=0.1), example).weight_K.sum() < s.weight_K.sum()
    assert compiled(32)._cache_size() == compilations  # other rates do not compile anew
    assert ((s.at_K >= 0) & (s.at_K < L)).all()
    counts = s.weight_K > 0
    assert (np.diff(counts.astype(int)) <= 0).all()
    later = np.diff(s.at_K) * counts[:, 1:]
    if selector.variant == 'electra':
        assert (later >= 0).all() and (later[counts[:, 1:]] == 0).any()
    else:
        assert (later[counts[:, 1:]] > 0).all()
        assert all(len(set(at)) == len(at) for at in s.at_K.tolist())
    if selector.variant not in ('roberta', 'fairseq'):
        assert is_text(example)[s.at_K[counts]].all()
    assert (s.unit_K[~counts] == -1).all() and (s.unit_K[counts] >= 0).all()


@pytest.mark.parametrize('seed', range(2))
@pytest.mark.parametrize('selector', [s for s in CLEAN if s.needs_words or isinstance(s, Units)], ids=name_of)
def test_words_are_never_cut_and_units_never_cross_a_boundary(selector, seed):
    words = lambda tokens: some_words(seed * 10 + tokens, tokens)
    example = row([0, *words(21), 0, '|', *words(13), '|', *words(20), 7, 0], L)
    for rate in (0.15, 0.5, 0.9):  # the last has too few slots, so that units are left out
        s = select(selector.replace(rate=rate), example)
        found = chosen(s, L)
        ids = example.unit_ids if isinstance(selector, Units) else example.word_ids
        # Units are pairs of words, of which a boundary makes two.
        same = (
            (ids[1:] == ids[:-1]) & (np.diff(example.segment_ids) == 0) & is_text(example)[1:] & is_text(example)[:-1]
        )
        np.testing.assert_array_equal(found[:, 1:][:, same], found[:, :-1][:, same])
        for at, unit, weight in zip(s.at_K[:50], s.unit_K, s.weight_K > 0, strict=False):
            for number in set(unit[weight]):
                places = at[weight & (unit == number)]
                assert (np.diff(places) == 1).all()
                assert len(set(example.segment_ids[places])) == 1


def drawn_lengths(selector, seeds=4) -> np.ndarray:
    """How many words of those units have that begin where no end of the text can cut them."""
    lengths = []
    for seed in range(seeds):
        s = select(selector, LONG, 300, 0, seed)
        for at, unit, weight in zip(s.at_K, s.unit_K, s.weight_K > 0, strict=True):
            for number in set(unit[weight]):
                places = at[weight & (unit == number)]
                if 1 < places[0] < 500:
                    lengths.append(len(places))
    return np.bincount(lengths)[1:]


@struct.dataclass
class Apart(Spans):
    merged = False


@pytest.mark.parametrize(
    ('selector', 'law'),
    [
        (Apart(), [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]),
        (NGrams(), [0.5455, 0.2727, 0.1818]),
        (NGrams(favor_shorter=False), [0.1818, 0.2727, 0.5455]),
        (Stratified(most=3), [0.5455, 0.2727, 0.1818]),
    ],
    ids=['spans', 'ngrams', 'reversed', 'stratified'],
)
def test_lengths_follow_the_law(selector, law):
    counts = drawn_lengths(selector)
    assert len(counts) == len(law)
    assert stats.chisquare(counts, np.array(law) / sum(law) * counts.sum()).pvalue > 1e-3


def test_units_begin_as_often_all_along():
    """The first word of a text begins a unit, any other does as often as units have words: so does the second."""
    for selector, mean in ((NGrams(), 18 / 11), (Apart(), 3.797)):
        s = select(selector, row([0, *[1] * 60, 0], L), 8000, 0)
        second = (s.at_K == 2) & (s.weight_K > 0)
        begins = np.diff(s.unit_K, axis=1, prepend=-1) > 0
        assert abs(z_of(begins[second], 1 / mean)) < 3


def test_spans_that_touch_are_one_unit():
    s = select(Spans(rate=0.4), PAIR)
    touch = (np.diff(s.at_K) == 1) & (s.weight_K[:, 1:] > 0)
    assert (np.diff(s.unit_K)[touch] == 0).all()
    assert (np.diff(s.unit_K)[~touch & (s.weight_K[:, 1:] > 0)] == 1).all()


@pytest.mark.parametrize('tokens', [3, 17, 54])
@pytest.mark.parametrize('rate', [0.02, 0.15, 0.4, 1.0])
def test_counts_of_tokens_are_unbiased_and_within_one(tokens, rate):
    example = row([0, *[1] * tokens, 0], L)
    counts = select(Tokens(rate), example, 4000, L).weight_K.sum(1)
    assert np.abs(counts - rate * tokens).max() < 1
    assert counts.mean() == pytest.approx(rate * tokens, abs=3 * 0.5 / np.sqrt(4000))


def test_stratified_has_one_token_in_each_window():
    found = chosen(select(Stratified(rate=0.2), LONG, 50, 0), 512)[:, 1:-1]
    gaps = np.concatenate([np.diff(np.flatnonzero(drawn)) for drawn in found])
    assert gaps.max() <= 9 and gaps.min() >= 1 and abs(gaps.mean() - 5) < 0.1
    assert np.abs(found.sum(1) - 102).max() <= 1


@pytest.mark.parametrize('selector', CLEAN + ORIGINAL, ids=name_of)
def test_rows_of_padding_and_of_one_token(selector):
    empty, one = row([], L), row([0, 1, 0], L)
    for rate in (0.15, 1.0):
        assert select(selector.replace(rate=rate), empty).weight_K.sum() == 0
    found = chosen(select(selector.replace(rate=1.0), one), L)
    assert found[:, 1].all() or selector.variant == 'electra'


@pytest.mark.parametrize('selector', CLEAN, ids=name_of)
def test_a_rate_of_one_selects_all(selector):
    found = chosen(select(selector.replace(rate=1.0), PACKED, 30, L), L)
    np.testing.assert_array_equal(found, np.broadcast_to(is_text(PACKED), found.shape))


def test_slots_hold_what_the_rate_needs_and_share_buckets():
    assert [Tokens().slots(length) for length in (64, 128, 512)] == [12, 20, 80]
    assert Tokens(0.14).slots(128) == Tokens(0.15).slots(128)
    for rate in np.linspace(0.01, 1.0, 50):
        assert min(40, np.ceil(rate * 40)) <= Tokens(rate).least(40) <= Tokens(rate).slots(40) <= 40


def test_few_units_are_left_out_for_want_of_slots():
    """`spare` slots: the rate of a row full of long words, and of spans, is still what was asked for."""
    for selector in (WholeWords(), NGrams(), Spans(), Stratified(most=3)):
        found = chosen(select(selector, row([0, *some_words(7, 126), 0]), 3000, 0), 128)
        assert abs(z_of(found[:, 1:127].mean(1), 0.15)) < 3


def test_masks_do_not_depend_on_batch_neighbours_or_other_objectives():
    corrupt = lambda objectives, root, batch: jax.jit(model.corrupt)(objectives, root, VOCAB, batch)
    alone, both = base.make({'mlm': {}}, L), base.make({'nsp': {}, 'mlm': {}}, L)
    batch, root = jax.tree.map(lambda x: np.stack([x] * 8), PAIR), jax.random.key(3)
    batch = batch.replace(index=np.arange(8, dtype=np.uint32))
    view, targets = corrupt(alone, root, batch)
    part_view, part_targets = corrupt(alone, root, jax.tree.map(lambda x: x[3:5], batch))
    np.testing.assert_array_equal(view.tokens[3:5], part_view.tokens)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[3:5], b), targets, part_targets)
    np.testing.assert_array_equal(view.tokens, corrupt(both, root, batch)[0].tokens)
    assert (view.tokens[0] != view.tokens[1]).any()
    for other in (corrupt(alone, root, batch.replace(epoch=batch.epoch + 1)), corrupt(alone, jax.random.key(4), batch)):
        assert (other[0].tokens != view.tokens).any()


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'select': {'rate': 1.5}}, 'objectives.mlm.select.rate is 1.5'),
        ({'select': {'rate': 0.0}}, 'select.rate is 0'),
        ({'select': {'name': 'token'}}, "did you mean 'tokens'"),
        ({'select': {'name': 'ngrams', 'most': 0}}, 'select.most is 0'),
        ({'select': {'name': 'spans', 'p': 1.0}}, 'select.p is 1'),
        ({'select': {'variant': 'orginal'}}, "select.variant is 'orginal'; 'clean' or 'bert'"),
        ({'variant': 'orginal'}, "did you mean 'original'"),
        ({'variant': 'original', 'select': {'name': 'tokens', 'rate': 0.2}}, "say 'bert' or"),
        ({'k': -3}, 'mlm.k is -3'),
        ({'k': 9}, 'mlm: k is 9; for rows of 64 the rate needs 10'),
        ({'k': 12, 'select': {'name': 'spans'}}, 'the rate needs 26'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(BadInput, match=message):
        base.make({'mlm': arguments}, L)


@pytest.mark.parametrize('objectives', [{}, {'mln': {}}, {'mlm': {'selct': {}}}, {'nsp': {'variant': 'orginal'}}])
def test_bad_objectives(objectives):
    with pytest.raises(BadInput, match="is empty|did you mean '(mlm|select)'|'clean' or 'original'"):
        base.make(objectives, L)


@pytest.mark.slow
def test_noise_costs_little_beside_a_step():
    """256 rows of 512, of which a step of BERT-base takes minutes on two cores.

    Prints milliseconds (with -s): more than in a run, for the suite compiles without optimizations.
    """
    long = row([0, *some_words(8, 254), 0, *some_words(9, 255), 0])
    batch = jax.tree.map(lambda x: np.stack([x] * 256), long).replace(index=np.arange(256, dtype=np.uint32))
    run = jax.jit(model.corrupt)
    variants = [{'variant': name} for name in mlm.PRESETS]
    for arguments in variants + [{'select': {'name': name}} for name in SELECT]:
        objectives = jax.tree.map(np.float32, base.make({'mlm': arguments}, 512))
        seconds = []
        for seed in range(4):
            begun = time.perf_counter()
            jax.block_until_ready(run(objectives, jax.random.key(seed), VOCAB, batch))
            seconds.append(time.perf_counter() - begun)
        print(arguments, round(1e3 * min(seconds)))
        assert min(seconds) < 2
