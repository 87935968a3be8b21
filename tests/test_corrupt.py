"""Statistics of the masks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from bertx.corrupt import Split, Tokens, slots
from bertx.errors import BadInput
from bertx.objectives import base
from bertx.types import Example, Vocabulary, view_of

V, L = 100, 40
VOCAB = Vocabulary(jnp.int32(4), jnp.arange(V) >= 5, jnp.ones(V))


def rows(n: int, real: int = 30, seed: int = 0) -> Example:
    """[CLS] text [SEP] text [SEP] padding."""
    rng = np.random.default_rng(seed)
    at = np.broadcast_to(np.arange(L), (n, L))
    tokens = rng.integers(5, V, (n, L))
    tokens[:, 0], tokens[:, 10], tokens[:, real - 1] = 2, 3, 3
    tokens[:, real:] = 0
    segment = (at < real).astype(np.int32)
    zero = np.zeros((n, 1), np.int32)
    return Example(
        tokens.astype(np.int32), segment, at.astype(np.int32), (at > 10).astype(np.int32) * segment,
        at.astype(np.int32), at.astype(np.int32), zero, {'nsp': zero}, np.zeros(n, np.uint32), np.arange(n, dtype=np.uint32),
    )  # fmt: skip


def select(selector, examples: Example, k: int, seed: int = 0):
    keys = jax.random.split(jax.random.key(seed), len(examples.tokens))
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda key, e: selector(key, e, VOCAB, k)))(keys, examples))


@pytest.mark.parametrize(('rate', 'real'), [(0.15, 30), (0.15, 17), (0.4, 30), (0.02, 30)])
def test_rate_is_unbiased_and_within_one_of_it(rate, real):
    at, weight = select(Tokens(rate), rows(4000, real), slots(rate, L))
    wanted = rate * (real - 3)
    counts = weight.sum(1)
    assert np.abs(counts - wanted).max() < 1
    assert counts.mean() == pytest.approx(wanted, abs=4 * 0.5 / np.sqrt(4000))


def test_positions_are_distinct_ordinary_and_uniform():
    examples = rows(6000)
    at, weight = select(Tokens(0.15), examples, 8)
    chosen = weight > 0
    assert all(len(set(row)) == 8 for row in at)
    tokens = np.take_along_axis(examples.tokens, at, 1)
    assert (tokens[chosen] >= 5).all()
    assert (np.take_along_axis(examples.segment_ids, at, 1)[chosen] > 0).all()
    hits = np.bincount(at[chosen], minlength=L)
    ordinary = np.flatnonzero((examples.tokens[0] >= 5) & (examples.segment_ids[0] > 0))
    assert hits.sum() == hits[ordinary].sum()
    assert stats.chisquare(hits[ordinary]).pvalue > 1e-3


def test_80_10_10():
    split, y = Split(), jnp.full(60_000, 50, jnp.int32)
    new = np.asarray(jax.jit(lambda key: split(key, y, VOCAB))(jax.random.key(0)))
    masked, kept = (new == 4).sum(), (new == 50).sum()
    other = len(new) - masked - kept
    # A random replacement is the original itself once in 95.
    expected = np.array([0.8, 0.1 + 0.1 / 95, 0.1 * 94 / 95]) * len(new)
    assert stats.chisquare([masked, kept, other], expected).pvalue > 1e-3
    random = np.bincount(new[(new != 4) & (new != 50)], minlength=V)
    assert random[:5].sum() == 0
    assert stats.chisquare(np.delete(random[5:], 45)).pvalue > 1e-3


def test_original_replaces_from_the_whole_vocabulary():
    y = jnp.full(40_000, 50, jnp.int32)
    new = np.asarray(Split(0.0, 1.0, 'vocabulary')(jax.random.key(0), y, VOCAB))
    assert stats.chisquare(np.bincount(new, minlength=V)).pvalue > 1e-3


def test_original_count_rounds_half_to_even_and_counts_specials():
    # google-research/bert: max(1, int(round(len(tokens) * 0.15))), with [CLS] and [SEP] in len.
    for real in (12, 17, 30, 36):
        _, weight = select(Tokens(0.15, 'bert'), rows(50, real), 8)
        assert (weight.sum(1) == max(1, round(np.float32(real) * np.float32(0.15)))).all()


def test_slots_hold_the_rounded_up_count_and_share_buckets():
    assert slots(0.15, 64) == 12
    assert slots(0.15, 128) == 20
    assert slots(0.15, 512) == 80
    assert slots(0.14, 128) == slots(0.15, 128)
    for rate in np.linspace(0.01, 1.0, 50):
        assert slots(rate, 40) >= min(40, np.ceil(rate * 40))


def corrupt(objectives, root, batch):
    from bertx import model

    return jax.jit(model.corrupt)(objectives, root, VOCAB, batch)


def test_masks_do_not_depend_on_batch_neighbours_or_other_objectives():
    alone, both = base.make({'mlm': {}}, L), base.make({'nsp': {}, 'mlm': {}}, L)
    batch, root = rows(8), jax.random.key(3)
    view, targets = corrupt(alone, root, batch)
    part = jax.tree.map(lambda x: x[3:5], batch)
    part_view, part_targets = corrupt(alone, root, part)
    np.testing.assert_array_equal(view.tokens[3:5], part_view.tokens)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[3:5], b), targets, part_targets)
    np.testing.assert_array_equal(view.tokens, corrupt(both, root, batch)[0].tokens)
    later = corrupt(alone, root, batch.replace(epoch=batch.epoch + 1))[0]
    assert (later.tokens != view.tokens).any()
    other = corrupt(alone, jax.random.key(4), batch)[0]
    assert (other.tokens != view.tokens).any()


def test_mlm_changes_only_what_it_predicts_and_keeps_the_labels():
    batch = rows(64)
    (view, targets) = corrupt(base.make({'mlm': {}}, L), jax.random.key(0), batch)
    mlm = targets['mlm']
    changed = np.asarray(view.tokens) != view_of(batch).tokens
    predicted = np.zeros_like(changed)
    for row, at, weight in zip(predicted, mlm['at'], mlm['weight'], strict=True):
        row[at[weight > 0]] = True
    assert not (changed & ~predicted).any()
    np.testing.assert_array_equal(np.take_along_axis(batch.tokens, np.asarray(mlm['at']), 1), mlm['label'])


@pytest.mark.parametrize(
    ('objectives', 'message'),
    [
        ({'mlm': {'select': {'rate': 1.5}}}, 'objectives.mlm.select.rate is 1.5'),
        ({'mlm': {'replace_by': {'mask': 0.8, 'random': 0.3}}}, 'at most 1'),
        ({'mlm': {'selct': {}}}, "did you mean 'select'"),
        ({'mln': {}}, "did you mean 'mlm'"),
        ({}, 'objectives is empty'),
        ({'nsp': {'variant': 'orginal'}}, "'clean' or 'original'"),
        ({'mlm': {'select': {'name': 'token'}}}, "did you mean 'tokens'"),
    ],
)
def test_bad_arguments_are_named(objectives, message):
    with pytest.raises(BadInput, match=message):
        base.make(objectives, L)
