"""Statistics of what is written over the selected positions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from test_select import PAIR, VOCAB, L, V, is_text

from bertx import model
from bertx.errors import BadInput
from bertx.objectives import base
from bertx.replace import Split, per_unit

N = 60_000
OLD = jnp.full(N, 50, jnp.int32)
ALONE = jnp.arange(N)


def replaced(split, tokens=OLD, units=ALONE, vocab=VOCAB, seed=0) -> np.ndarray:
    return np.asarray(jax.jit(split.__call__)(jax.random.key(seed), tokens, units, vocab))


def shares(new: np.ndarray) -> list[int]:
    """How many are [MASK], as before, and something else."""
    return [(new == 4).sum(), (new == 50).sum(), ((new != 4) & (new != 50)).sum()]


@pytest.mark.parametrize(('mask', 'random'), [(0.8, 0.1), (0.85, 0.0), (0.0, 1.0), (0.3, 0.6)])
def test_shares(mask, random):
    # A random replacement is the original itself once in 95.
    expected = np.array([mask, 1 - mask - random + random / 95, random * 94 / 95]) * N
    counts = np.array(shares(replaced(Split(mask, random))))
    assert (counts[expected == 0] == 0).all()
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_a_unit_shares_its_action_not_its_random_tokens():
    size, one = 3, Split(per='unit')
    units = jnp.arange(N) // size
    new = replaced(one, units=units).reshape(-1, size)
    masked, kept = (new == 4).all(1), (new == 50).all(1)
    other = ((new != 4) & (new >= 5)).all(1) & ~kept
    assert (masked | kept | other).all()
    assert stats.chisquare([masked.sum(), kept.sum(), other.sum()], np.array([0.8, 0.1, 0.1]) * len(new)).pvalue > 1e-3
    assert (new[other][:, 0] == new[other][:, 1]).mean() < 0.05
    apart = replaced(Split(), units=units).reshape(-1, size)
    assert not ((apart == 4).all(1) | (apart != 4).all(1)).all()


def test_per_unit_takes_the_first_value():
    units = np.array([0, 0, 3, 3, 3, 7, -1, -1])
    np.testing.assert_array_equal(per_unit(jnp.arange(8), jnp.array(units)), [0, 0, 2, 2, 2, 5, 6, 6])


@pytest.mark.parametrize('random_from', ['ordinary', 'vocabulary', 'fairseq', 'unigram'])
def test_random_tokens(random_from):
    counts = np.random.default_rng(0).integers(0, 50, V)
    counts[[0, 17]] = 0
    weights = {
        'ordinary': np.arange(V) >= 5,  # text
        'vocabulary': np.ones(V),  # google-research/bert: special tokens and the original too
        'fairseq': np.arange(V) >= 4,  # of the special tokens, [MASK]
        'unigram': counts * (np.arange(V) >= 5),  # as in the corpus, of which only text may be written
    }[random_from]
    vocab = VOCAB.replace(unigram_V=jnp.float32(counts))
    drawn = np.bincount(replaced(Split(0.0, 1.0, random_from), vocab=vocab), minlength=V)
    assert drawn[weights == 0].sum() == 0
    possible = weights > 0
    expected = weights[possible] / weights.sum() * N
    assert stats.chisquare(drawn[possible], expected).pvalue > 1e-3


def corrupt(arguments, n=2000, epoch=0):
    """(tokens before, tokens seen, targets) of n draws for one row."""
    batch = jax.tree.map(lambda x: np.stack([x] * n), PAIR)
    batch = batch.replace(index=np.arange(n, dtype=np.uint32), epoch=np.full(n, epoch, np.uint32))
    objectives = jax.tree.map(np.float32, base.make({'mlm': arguments}, L))
    view, targets = jax.jit(model.corrupt)(objectives, jax.random.key(0), VOCAB, batch)
    return batch.tokens, np.asarray(view.tokens), jax.tree.map(np.asarray, targets['mlm'])


def with_loss(targets) -> np.ndarray:
    found = np.zeros((len(targets['at']), L), bool)
    rows, slots = np.nonzero(targets['weight'])
    found[rows, targets['at'][rows, slots]] = True
    return found


@pytest.mark.parametrize('variant', ['clean', 'original', 'albert', 'spanbert', 'roberta', 'deberta', 'electra'])
def test_mlm_changes_only_what_it_predicts_and_keeps_the_labels(variant):
    before, after, targets = corrupt({'variant': variant})
    changed, predicted = before != after, with_loss(targets)
    assert not (changed & ~predicted).any()
    np.testing.assert_array_equal(np.take_along_axis(before, targets['at'], 1), targets['label'])
    masked = (after == 4)[predicted].mean()
    assert masked == pytest.approx(0.85 if variant == 'electra' else 0.8, abs=0.02)
    assert (changed & ~(after == 4)).any() != (variant == 'electra')


def test_electra_masks_a_position_if_one_of_its_draws_does():
    _, after, targets = corrupt({'variant': 'electra'}, 6000)
    twice = np.zeros((6000, L), bool)
    for row, (at, weight) in enumerate(zip(targets['at'], targets['weight'] > 0, strict=True)):
        twice[row] = np.bincount(at[weight], minlength=L) == 2
    assert (after == 4)[twice].mean() == pytest.approx(1 - 0.15**2, abs=0.02)


def test_spanbert_does_the_same_to_all_of_a_span():
    before, after, targets = corrupt({'variant': 'spanbert'})
    predicted = with_loss(targets)
    pairs = predicted[:, 1:] & predicted[:, :-1]
    masked = after == 4
    np.testing.assert_array_equal(masked[:, 1:][pairs], masked[:, :-1][pairs])


@pytest.mark.parametrize(('corrupted', 'predicted'), [(0.5, 1.0), (1.0, 0.25)])
def test_corruption_and_prediction_rates_apart(corrupted, predicted):
    """Wettig et al. 2023: of 40 % selected, half are masked and all predicted, or all and a quarter."""
    arguments = {'select': {'rate': 0.4}, 'replace_by': {'mask': 1.0, 'random': 0.0}}
    before, after, targets = corrupt(arguments | {'corrupted': corrupted, 'predicted': predicted})
    text = is_text(PAIR)
    assert (after != before)[:, text].mean() == pytest.approx(0.4 * corrupted, abs=0.005)
    assert with_loss(targets)[:, text].mean() == pytest.approx(0.4 * predicted, abs=0.005)
    both = ((after != before) & with_loss(targets))[:, text].mean()
    assert both == pytest.approx(0.4 * corrupted * predicted, abs=0.005)


def test_the_shares_are_of_whole_units():
    arguments = {'select': {'name': 'whole_words', 'rate': 0.4}, 'replace_by': {'mask': 1.0, 'random': 0.0}}
    for name in ('corrupted', 'predicted'):
        before, after, targets = corrupt(arguments | {name: 0.5})
        found = with_loss(targets) if name == 'predicted' else before != after
        same = (np.diff(PAIR.word_ids) == 0)[None] & np.ones_like(found[:, 1:])
        np.testing.assert_array_equal(found[:, 1:][same], found[:, :-1][same])


def test_what_a_variant_needs_of_the_host():
    def needs(**arguments):
        return base.make({'mlm': arguments}, L)['mlm'].needs

    assert not needs().static and not needs().original and not needs().words
    assert needs(variant='original').static and needs(variant='original').original
    assert needs(variant='albert').static and needs(variant='albert').words
    assert needs(static=True).static and not needs(static=True).original
    assert needs(variant='spanbert').words and not needs(variant='spanbert').static
    assert not needs(variant='deberta').words and needs(select={'name': 'stratified', 'most': 3}).words


def test_words_that_a_tokenizer_does_not_mark_are_refused(store, monkeypatch):
    from bertx.config import make_run
    from configs.base import get_config

    config = get_config()
    config.objectives = {'mlm': {'select': {'name': 'whole_words'}}}
    assert make_run(config, store).objectives['mlm'].needs.words
    monkeypatch.setattr(type(store), 'marks_words', False)
    with pytest.raises(BadInput, match='config.objectives.mlm needs words'):
        make_run(config, store)
    config.objectives = {'mlm': {}}
    make_run(config, store)


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'replace_by': {'mask': 0.8, 'random': 0.3}}, 'at most 1'),
        ({'replace_by': {'mask': -0.1}}, 'at most 1'),
        ({'replace_by': {'random_from': 'unigrams'}}, "did you mean 'unigram'"),
        ({'replace_by': {'per': 'word'}}, "per is 'word'"),
        ({'corrupted': 0.0}, 'mlm.corrupted is 0'),
        ({'predicted': 1.5}, 'mlm.predicted is 1.5'),
        ({'predicted': 0.5, 'corrupted': 0.5}, 'both below 1'),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(BadInput, match=message):
        base.make({'mlm': arguments}, L)
