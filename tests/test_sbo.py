"""The span boundary objective: which tokens stand around a span, and what its head reads."""

import dataclasses

import cases
import jax
import numpy as np
import pytest
from cases import CLS, MASK, SEP, B, D, L, V, mean

from bertx import model
from bertx.encoder_config import REAL_STD
from bertx.errors import BadInput
from bertx.objectives import base
from bertx.objectives.mlm import MLM
from bertx.objectives.sbo import PLACE_WIDTH, around
from bertx.refit import Features, RefitOptions, refit
from bertx.types import Encoded


def corrupted(rows=200, **arguments):
    objectives = jax.tree.map(np.float32, base.make({'sbo': arguments}, L))
    batch = cases.rows(rows)
    view, targets = jax.jit(model.corrupt)(objectives, jax.random.key(1), cases.vocabulary(), batch)
    return batch, jax.device_get(view), jax.device_get(targets['sbo'])


def test_around_a_run():
    #            a run   one  a run that a segment's end cuts   slots that are left
    at = np.array([3, 4, 5, 8, 10, 11, 12, 13, 14, 20])
    segment = np.array([1, 1, 1, 1, 1, 1, 2, 2, 2, 2])
    weight = np.array([1, 1, 1, 1, 1, 1, 1, 1, 0, 0])
    before, after = around(at, weight, segment)
    assert before[:8].tolist() == [2, 2, 2, 7, 9, 9, 11, 11]
    assert after[:8].tolist() == [6, 6, 6, 9, 12, 12, 14, 14]


def hand_made(monkeypatch, variant, at, max_span_tokens=20):
    """Targets where exactly these positions of a packed row are selected, by position."""
    tokens = [CLS, 10, 11, SEP, 12, SEP, CLS, 13, 14, 15, 16, SEP, 0, 0]
    segment = [1] * 6 + [2] * 6 + [0] * 2
    example = jax.tree.map(lambda x: x[0, :14] if x.ndim == 2 else x[0], cases.rows(1))
    example = example.replace(tokens=np.array(tokens), segment_ids=np.array(segment))
    slots = np.array([*at, 0, 13][: len(at) + 2])
    weight = np.array([1.0] * len(at) + [0.0] * 2, np.float32)

    def select(self, key, example, view, vocab):
        return view, {'at': slots, 'label': example.tokens[slots], 'weight': weight}

    monkeypatch.setattr(MLM, 'corrupt', select)
    sbo = base.make({'sbo': {'variant': variant, 'max_span_tokens': max_span_tokens}}, 14)['sbo']
    _, targets = sbo.corrupt(jax.random.key(0), example, model.view_of(example), cases.vocabulary())
    names = ('before', 'after', 'place', 'inside')
    return {p: tuple(int(targets[name][i]) for name in names) for i, p in enumerate(at)}


def test_targets_by_hand(monkeypatch):
    """(before, after, place, whether it counts) of each selected position."""
    at = [1, 4, 8, 9]
    assert hand_made(monkeypatch, 'clean', at) == {1: (0, 2, 0, 1), 4: (3, 5, 0, 1), 8: (7, 10, 0, 1), 9: (7, 10, 1, 1)}
    # [CLS] and [SEP] are no text, so the spans at the ends of A have nothing around them.
    found = hand_made(monkeypatch, 'original', at)
    assert {p: x[-1] for p, x in found.items()} == {1: 0, 4: 0, 8: 1, 9: 1}
    assert found[8] == (7, 10, 0, 1) and found[9] == (7, 10, 1, 1)


def test_places_beyond_the_last(monkeypatch):
    at = [7, 8, 9]
    clean = hand_made(monkeypatch, 'clean', at, max_span_tokens=2)
    assert clean == {7: (6, 10, 0, 1), 8: (6, 10, 1, 1), 9: (6, 10, 1, 1)}
    original = hand_made(monkeypatch, 'original', [8, 9], max_span_tokens=1)
    assert original[8] == (7, 10, 0, 1) and original[9][-1] == 0


@pytest.mark.parametrize('variant', ['clean', 'original'])
def test_boundaries_of_selected_spans(variant):
    batch, view, targets = corrupted(variant=variant)
    at, counts, inside = targets['at'], targets['weight'] > 0, targets['inside'] > 0
    assert (inside <= counts).all() and inside.sum() > 0.2 * counts.sum()
    of = lambda x, at: np.take_along_axis(x, at, 1)
    before, after = targets['before'], targets['after']
    for around_it in (before, after):
        # as they were, of the same segment, not selected themselves
        np.testing.assert_array_equal(of(view.tokens, around_it)[inside], of(batch.tokens, around_it)[inside])
        np.testing.assert_array_equal(of(batch.segment_ids, around_it)[inside], of(batch.segment_ids, at)[inside])
        selected = [set(a[c]) for a, c in zip(at, counts, strict=True)]
        assert not any(set(b[i]) & s for b, i, s in zip(around_it, inside, selected, strict=True))
        if variant == 'original':
            assert (of(batch.tokens, around_it)[inside] > MASK).all()
    np.testing.assert_array_equal((before + 1 + targets['place'])[inside], at[inside])
    assert ((before < at) & (at < after))[inside].all()
    if variant == 'clean':  # [CLS] and [SEP] are around what is at the ends
        np.testing.assert_array_equal(inside, counts)
        assert (of(batch.tokens, before)[inside] == CLS).any()


def test_original_replaces_a_span_as_one():
    batch, view, targets = corrupted(rows=1000, variant='original')
    done = np.where(view.tokens == MASK, 0, np.where(view.tokens == batch.tokens, 1, 2))
    of = lambda x, at: np.take_along_axis(x, at, 1)
    inside = (targets['inside'] > 0) & (of(done, targets['at']) == 0)
    first = of(done, targets['before'] + 1)
    assert (first[inside] == 0).all() and inside.sum() > 100
    share = (of(done, targets['at']) == 0)[targets['weight'] > 0].mean()
    assert share == pytest.approx(0.8, abs=0.04)


@pytest.mark.slow  # the table of test_objectives.py has the same for all
def test_loss_at_the_start_and_overfitting():
    case = cases.Case({'sbo': {}}, std=0.06)
    assert case.state.params['heads_sbo']['span']['first']['kernel'].shape == (2 * D + PLACE_WIDTH, D)
    first, last = case.fit(200)
    for name in ('mlm', 'sbo'):
        assert first[f'sbo/{name}'] == pytest.approx(np.log(V) + D * (0.06 * REAL_STD) ** 2 / 2, abs=0.1)
        assert last[f'sbo/{name}'] < 0.15
    assert last['sbo/accuracy'] > 0.95 and last['sbo/mlm_accuracy'] > 0.95


def test_weights_gradients_compilations_and_segments():
    case = cases.cases('sbo')
    cases.check_weights(case)
    cases.check_gradients(case)
    cases.check_one_compilation(case)
    cases.check_segments_are_apart(case)


def test_losses_read_what_they_should():
    """`mlm` the token's own vector, `sbo` those around its span and its place."""
    case = cases.cases('sbo')
    sbo, params = case.objectives['sbo'], case.state.params['heads_sbo']
    hidden = np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32)
    table = np.random.default_rng(1).normal(size=(V, D)).astype(np.float32)
    view, targets = case.corrupt(case.batch)
    targets = targets['sbo']
    head = lambda *x: sbo.build(case.config).apply({'params': params}, *x)

    @jax.jit
    def sums(hidden, targets):
        encoded = Encoded(hidden, table, view)
        losses, _ = sbo.scores(head, sbo.features(encoded, targets), table, targets)
        return {name: loss.term.sum for name, loss in losses.items()}

    def moved(at, there):
        rows = np.arange(B)[:, None]
        other = hidden.copy()
        other[rows, np.where(there, at, L - 1)] += 1.0  # the last place is padding
        found, before = sums(other, targets), sums(hidden, targets)
        return {name: float(np.abs(found[name] - before[name]).max()) > 1e-3 for name in found}

    counts = np.asarray(targets['weight']) > 0
    assert moved(targets['at'], counts) == {'mlm': True, 'sbo': False}
    for name in ('before', 'after'):
        assert moved(targets[name], counts) == {'mlm': False, 'sbo': True}
    place = sums(hidden, targets | {'place': (targets['place'] + 1) % 20})
    assert {n: float(np.abs(x - sums(hidden, targets)[n]).max()) > 1e-3 for n, x in place.items()} == {
        'mlm': False,
        'sbo': True,
    }


def test_coefficients_scale_their_loss():
    case = cases.cases('sbo')
    weighted = {'sbo': case.objectives['sbo'].replace(weight=np.float32(3), sbo_weight=np.float32(0.5))}
    (_, one), (_, other) = case.step(case.state), case.step(case.state, weighted)
    assert mean(one['loss']) == pytest.approx(mean(one['sbo/mlm']) + mean(one['sbo/sbo']), rel=1e-5)
    assert mean(other['loss']) == pytest.approx(3 * mean(one['sbo/mlm']) + 0.5 * mean(one['sbo/sbo']), rel=1e-5)


def test_heads_are_refitted():
    case = cases.cases('sbo')
    _, targets = case.corrupt(case.batch)
    targets = jax.device_get(targets['sbo'])
    x_NKD = np.random.default_rng(0).normal(size=(*targets['at'].shape, 3 * D)).astype(np.float32)
    features = Features(x_NKD, targets, np.zeros((V, D), np.float32))
    structure = jax.tree.structure(case.objectives['sbo'])
    found = refit(case.config, structure, RefitOptions(rows=8, steps=3, batch=8), features, features)
    assert found['accuracy'].sum.shape == (B,) and found.keys() == {'mlm', 'sbo', 'accuracy', 'mlm_accuracy'}


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        ({'variant': 'albert'}, "sbo.variant 'albert' is unknown; known: clean, original"),
        ({'max_span_tokens': 0}, 'max_span_tokens is 0'),
        ({'predicted': 0.5}, 'predicted is 0.5; 1 would do'),
        ({'select': {'name': 'spans', 'p': 0.0}}, 'select.p is 0'),
    ],
)
def test_values_out_of_range(arguments, said):
    with pytest.raises(BadInput, match=said):
        base.make({'sbo': arguments}, L)


def test_a_part_without_a_name_is_the_preset_s():
    made = lambda **arguments: base.make({'sbo': arguments}, 64)['sbo']
    assert made(select={'rate': 0.3}).select == dataclasses.replace(made().select, rate=0.3)
    assert made(replace_by={'mask': 0.9}).replace_by.per == 'unit'
    assert made(variant='original', select={'rate': 0.3}).select.variant == 'original'
    with pytest.raises(BadInput, match='config.objectives.sbo: k is 2; for rows of 64'):
        made(k=2)
    with pytest.raises(BadInput, match='config.objectives.random_token: slots is 2; for rows of 64'):
        base.make({'random_token': {'slots': 2}}, 64)
    assert base.make({'electra': {'replace_by': {'mask': 0.9}}}, 64)['electra'].replace_by.random == 0.0
