"""What the original variants select, against the released codes' loops, written anew in numpy."""

import collections
import functools
import math

import numpy as np
import pytest
from scipy import stats

from bertx.select import NGrams, Spans, Stratified, Tokens, WholeWords
from tests.test_select import LONG, PAIR, L, chosen, is_text, name_of, row, select, z_of

# The released codes, in numpy. Each gives the set of tokens of a text that is predicted; words are lists of tokens.


def bert_words(rng, words, rate, k=99):
    return albert(rng, words, rate, [1.0], k)


def albert(rng, words, rate, p, k=99):
    """create_masked_lm_predictions of google-research/albert."""
    budget = min(k, max(1, round((sum(map(len, words)) + 3) * rate)))
    masked = set()
    for start in rng.permutation(len(words)):
        n = rng.choice(len(p), p=p) + 1
        tokens = sum(words[start : start + n], [])
        while n > 1 and len(masked) + len(tokens) > budget:
            n -= 1
            tokens = sum(words[start : start + n], [])
        if len(masked) + len(tokens) <= budget and not masked & set(tokens):
            masked |= set(tokens)
    return masked


def spanbert(rng, words, rate, p):
    """PairWithSpanMaskingScheme.mask."""
    length = sum(map(len, words))
    budget, masked = math.ceil(length * rate), set()
    word_of = {token: i for i, word in enumerate(words) for token in word}
    while len(masked) < budget:
        n, anchor = rng.choice(len(p), p=p) + 1, sorted(word_of)[rng.integers(length)]
        if anchor in masked:
            continue
        for token in sum(words[word_of[anchor] : word_of[anchor] + n], []):
            if len(masked) >= budget:
                break
            masked.add(token)
    return masked


def deberta(rng, words, rate, p):
    """NGramMaskGenerator.mask_tokens."""
    budget, window = max(1, round((sum(map(len, words)) + 3) * rate)), int(1 / rate)
    offset, marked = 0, [False] * len(words)
    while offset < len(words):
        n = rng.choice(len(p), p=p) + 1
        context = min(n * window, len(words) - offset)
        start = offset + rng.integers(context)
        end = min(start + n, len(words))
        offset = max(offset + context, end)
        marked[start:end] = [True] * (end - start)
    masked = set()
    for mark, word in zip(marked, words, strict=True):
        if mark and len(masked) < budget:
            masked |= set(word)
    return masked


def fairseq(rng, words, rate):
    """MaskTokensDataset.__getitem__ with mask_whole_words."""
    n = int(rate * len(words) + rng.random())
    return {token for i in rng.choice(len(words), n, replace=False) for token in words[i]}


FAVOR_SHORT = np.array([6, 3, 2]) / 11
GEOMETRIC = 0.8 ** np.arange(10) / sum(0.8 ** np.arange(10))
A, B = [1, 2, 1, 3, 1], [2, 1, 1]  # words of the hand-made row


@pytest.mark.parametrize(
    ('selector', 'code'),
    [
        (WholeWords(rate=0.3, variant='original'), functools.partial(bert_words, rate=0.3)),
        (NGrams(rate=0.3, variant='original'), functools.partial(albert, rate=0.3, p=FAVOR_SHORT)),
        (
            NGrams(rate=0.3, variant='original', favor_shorter=False),
            functools.partial(albert, rate=0.3, p=FAVOR_SHORT[::-1]),
        ),
        (Stratified(rate=0.4, variant='original', most=3), functools.partial(deberta, rate=0.4, p=FAVOR_SHORT)),
        (Stratified(rate=0.15, variant='original', most=2), functools.partial(deberta, rate=0.15, p=[2 / 3, 1 / 3])),
        (Spans(rate=0.3, variant='original'), functools.partial(spanbert, rate=0.3, p=GEOMETRIC)),
        (
            Spans(rate=0.6, variant='original', most=3),
            functools.partial(spanbert, rate=0.6, p=np.array([1, 0.8, 0.64]) / 2.44),
        ),
        (WholeWords(rate=0.3, variant='fairseq'), functools.partial(fairseq, rate=0.3)),
    ],
    ids=lambda x: name_of(x) if hasattr(x, 'rate') else '',
)
def test_originals_select_the_same_sets_as_often(selector, code):
    n, rng = 6000, np.random.default_rng(0)
    one = isinstance(selector, Spans)  # SpanBERT's text is one run without special tokens
    example = row([0, *A, *B, 0] if one else [0, *A, 0, *B, 0])
    specials = selector.variant == 'fairseq'
    words = [list(np.flatnonzero(example.word_ids == i)) for i in range(example.word_ids.max() + 1)]
    words = [word for word in words if specials or is_text(example)[word[0]]]
    expected = collections.Counter(frozenset(code(rng, words)) for _ in range(n))
    found = chosen(select(selector, example, n, k=len(example.tokens)), len(example.tokens))
    ours = collections.Counter(frozenset(np.flatnonzero(drawn)) for drawn in found)
    common = [s for s, count in (expected + ours).items() if count >= 20]
    assert len(common) >= 5
    table = np.array([[counts[s] for s in common] for counts in (expected, ours)])
    rest = n - table.sum(1, keepdims=True)
    table = np.hstack([table, rest]) if rest.sum() >= 20 else table
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_spanbert_masks_the_first_positions_less():
    found = chosen(select(Spans(variant='original'), LONG, 800, 0), 512)[:, 1:-1]
    assert (found.sum(1) == 77).all()  # ceil(510 * 0.15)
    for i, expected in enumerate((0.047, 0.070, 0.096, 0.110, 0.118, 0.132)):
        assert abs(z_of(found[:, i], expected)) < 3.3, (i, found[:, i].mean())
    assert abs(z_of(found[:, 50:].mean(1), 0.152)) < 3


def test_deberta_hardly_masks_the_tail():
    found = chosen(select(Stratified(variant='original'), LONG, 800, 0), 512)[:, 1:-1]
    assert (found.sum(1) == 77).all()
    deciles = found.reshape(800, 10, 51).mean((0, 2))
    np.testing.assert_allclose(deciles, [1 / 6] * 9 + [0.009], atol=0.003)


def test_bert_rounds_half_to_even_and_counts_specials():
    for tokens in (9, 14, 27, 33, 47):  # 1.8, 2.55, 4.5, 5.4 and 7.5 of the row's tokens
        example = row([0, *[1] * tokens, 0, 0], L)
        for selector in (Tokens(variant='bert'), WholeWords(variant='original'), NGrams(variant='original', most=1)):
            assert (select(selector, example).weight_K.sum(1) == max(1, round(0.15 * (tokens + 3)))).all()
    assert (select(Tokens(variant='bert'), row([0, 1, 0], L)).weight_K.sum(1) == 1).all()


def test_electra_draws_with_replacement():
    example = row([0, *[1] * 125, 0, 0])
    s = select(Tokens(variant='electra'), example, 3000, 20)
    counts = s.weight_K > 0
    assert (counts.sum(1) == 19).all() and (s.at_K[~counts] == 0).all()
    distinct = np.array([len(set(at[weight])) for at, weight in zip(s.at_K, counts, strict=True)])
    assert abs(z_of(distinct, 125 * (1 - (124 / 125) ** 19))) < 3  # 17.7
    assert stats.chisquare(np.bincount(s.at_K[counts], minlength=128)[1:126]).pvalue > 1e-3


def test_roberta_selects_special_tokens_as_often():
    found, real = chosen(select(Tokens(variant='roberta'), PAIR, 6000, 0), L), PAIR.segment_ids > 0
    assert not found[:, ~real].any()
    assert stats.chisquare(found.sum(0)[real]).pvalue > 1e-3
    assert abs(z_of(found.sum(1), 0.15 * real.sum())) < 3
