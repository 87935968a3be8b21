"""Objectives with few classes: detection of shuffled and random tokens, classes of masked tokens, three-way pairs."""

import cases
import jax
import numpy as np
import pytest
from cases import MASK, B, D, L, mean

from bertx import model
from bertx.errors import BadInput
from bertx.objectives import base
from bertx.refit import Features, RefitOptions, refit
from bertx.replace import Split
from bertx.types import FIRST_CHARS, TOKEN_TYPES

CLASSES = {
    'shuffled_token': 2,
    'random_token': 2,
    'shuffled_random': 3,
    'token_type': TOKEN_TYPES,
    'first_char': FIRST_CHARS,
    'three_way': 3,
}
every = pytest.mark.parametrize('name', CLASSES)
detection = pytest.mark.parametrize('name', ['shuffled_token', 'random_token', 'shuffled_random'])


def corrupted(name, rows=400, **arguments):
    """(rows, view, targets), compiled apart from any network."""
    objectives = jax.tree.map(np.float32, base.make({name: arguments}, L))
    batch = cases.rows(rows)
    view, targets = jax.jit(model.corrupt)(objectives, jax.random.key(1), cases.vocabulary(), batch)
    return batch, jax.device_get(view), jax.device_get(targets[name])


@every
@pytest.mark.slow  # the table of test_objectives.py has the same for all
def test_loss_at_the_start(name):
    case = cases.cases(name)
    losses, _ = case.terms(*case.corrupt(case.batch))
    assert mean(losses[f'{name}/loss'].term) == pytest.approx(np.log(CLASSES[name]), abs=0.05)


@every
@pytest.mark.slow  # the table of test_objectives.py has the same for all
def test_overfits_one_batch(name):
    first, last = cases.cases(name).fit(120)
    assert last[f'{name}/loss'] < 0.1 < first[f'{name}/loss']
    assert last[f'{name}/accuracy'] > 0.97


@every
def test_weights_gradients_compilations_and_segments(name):
    case = cases.cases(name)
    cases.check_weights(case)
    cases.check_gradients(case)
    cases.check_one_compilation(case)
    cases.check_segments_are_apart(case)


@detection
def test_labels_say_what_has_changed(name):
    batch, view, targets = corrupted(name)
    text = batch.tokens > MASK
    np.testing.assert_array_equal(targets['weight'], text)
    np.testing.assert_array_equal(targets['label'] > 0, view.tokens != batch.tokens)
    assert (view.tokens[~text] == batch.tokens[~text]).all()
    assert text[view.tokens != batch.tokens].all()
    rate = 0.2 if name == 'shuffled_random' else 0.15
    share = (view.tokens != batch.tokens).sum() / text.sum()
    # Of two tokens of a segment that are permuted, one in two stays; a random token is the old one 1 in 95 times.
    assert 0.3 * rate < share < rate


def test_tokens_are_permuted_within_their_segment():
    batch, view, targets = corrupted('shuffled_token', rate=0.9)
    for segment in (0, 1, 2):
        of = batch.segment_ids == segment
        old, new = (np.sort(np.where(of, tokens, -1), axis=1) for tokens in (batch.tokens, view.tokens))
        np.testing.assert_array_equal(old, new)
        assert segment == 0 or (view.tokens != batch.tokens)[of].any()


def test_a_permutation_of_equal_tokens_moves_nothing():
    batch = cases.rows()
    batch = batch.replace(tokens=np.where(batch.tokens > MASK, 7, batch.tokens))
    objectives = base.make({'shuffled_token': {'rate': 0.9}}, L)
    view, targets = model.corrupt(objectives, jax.random.key(0), cases.vocabulary(), batch)
    np.testing.assert_array_equal(view.tokens, batch.tokens)
    assert not targets['shuffled_token']['label'].any()


@pytest.mark.parametrize('source', ['ordinary', 'unigram'])
def test_random_tokens_come_from_where_they_should(source):
    batch, view, _ = corrupted('random_token', rows=2000, random_from=source)
    drawn = view.tokens[view.tokens != batch.tokens]
    assert drawn.min() > MASK
    assert drawn.max() < 80 if source == 'unigram' else drawn.max() == 99
    if source == 'unigram':
        counts = np.bincount(drawn, minlength=100)[5:80]
        expected = cases.vocabulary().unigram_V[5:80]
        assert np.corrcoef(counts, expected)[0, 1] > 0.95


def test_shuffled_and_random_halves():
    batch, view, targets = corrupted('shuffled_random', rate=0.4)
    label = targets['label']
    # A moved token is one of its segment's; a random one seldom is.
    same = (view.tokens[:, :, None] == batch.tokens[:, None]) & (
        batch.segment_ids[:, :, None] == batch.segment_ids[:, None]
    )
    assert same.any(-1)[label == 1].all()
    assert same.any(-1)[label == 2].mean() < 0.3
    assert 0.5 < (label == 1).sum() / (label == 2).sum() < 1.0  # the permutation leaves some where they are


@detection
def test_balanced_targets(name):
    batch, view, targets = corrupted(name, balanced=True)
    changed = view.tokens != batch.tokens
    at, label, weight = targets['at'], targets['label'], targets['weight'] > 0
    np.testing.assert_array_equal(np.take_along_axis(changed, at, 1)[weight], label[weight] > 0)
    assert (np.take_along_axis(batch.tokens, at, 1)[weight] > MASK).all()
    np.testing.assert_array_equal((weight & (label > 0)).sum(1), (weight & (label == 0)).sum(1))
    np.testing.assert_array_equal((weight & (label > 0)).sum(1), changed.sum(1))
    assert all(len(set(a[w])) == w.sum() for a, w in zip(at, weight, strict=True))  # no position twice
    assert at.shape[1] <= L / 2


def test_balance_where_few_are_untouched():
    batch, view, targets = corrupted('random_token', balanced=True, rate=0.9)
    changed, text = view.tokens != batch.tokens, batch.tokens > MASK
    ones, zeros = (((targets['weight'] > 0) & (targets['label'] == k)).sum(1) for k in (1, 0))
    np.testing.assert_array_equal(ones, zeros)
    assert (ones <= (text & ~changed).sum(1)).all() and ones.any()


@pytest.mark.parametrize(('name', 'table'), [('token_type', 'type_V'), ('first_char', 'first_char_V')])
def test_classes_of_masked_tokens(name, table):
    """Positions and replacements are MLM's for the same key; the label is the token's class."""
    batch = jax.tree.map(lambda x: x[3], cases.rows())
    vocab, key = cases.vocabulary(), jax.random.key(5)
    made = base.make({name: {}}, L)[name], base.make({'mlm': {}}, L)['mlm']
    (view, targets), (mlm_view, mlm) = (o.corrupt(key, batch, model.view_of(batch), vocab) for o in made)
    np.testing.assert_array_equal(view.tokens, mlm_view.tokens)
    np.testing.assert_array_equal(targets['at'], mlm['at'])
    assert targets['weight'].sum() > 0
    np.testing.assert_array_equal(targets['label'], getattr(vocab, table)[batch.tokens[targets['at']]])


def test_three_way_labels():
    batch, view, targets = corrupted('three_way', rows=8)
    np.testing.assert_array_equal(view.tokens, batch.tokens)
    np.testing.assert_array_equal(targets['at'], batch.starts)
    np.testing.assert_array_equal(targets['weight'], batch.labels['three_way'] >= 0)
    assert targets['weight'][0].tolist() == [1, 0]  # the second pair of row 0 has no such label
    assert set(targets['label'][targets['weight'] > 0]) == {0, 1, 2}


@pytest.mark.parametrize('name', ['random_token', 'token_type', 'first_char', 'three_way'])
def test_heads_are_refitted(name):
    """On features that give the label away, a new head finds it."""
    arguments = {'balanced': True} if name == 'random_token' else {}
    objectives = jax.tree.map(np.float32, base.make({name: arguments}, L))
    batch, _, targets = corrupted(name, rows=128, **arguments)
    classes, label = CLASSES[name], targets['label']
    x_NKD = np.random.default_rng(0).normal(size=(*label.shape, D)).astype(np.float32)
    x_NKD[..., :classes] += 4 * np.eye(classes)[label]
    features = Features(x_NKD, targets, np.zeros((100, D), np.float32))
    config = cases.cases(name).config
    structure = jax.tree.structure(objectives[name])
    found = refit(
        config, structure, RefitOptions(rows=128, steps=200, batch=64, learning_rate=1e-2), features, features
    )
    assert mean(found['accuracy']) > 0.9
    assert found['accuracy'].sum.shape == (128,)


@every
def test_as_a_task(name):
    task = base.make({name: {}}, L)[name].as_task()
    if name in ('shuffled_token', 'random_token', 'shuffled_random'):
        assert task.balanced and getattr(task, 'random_from', 'unigram') == 'unigram'
    elif name == 'three_way':
        assert task == base.make({name: {}}, L)[name]
    else:
        assert task.replace_by == Split(mask=1.0, random=0.0)


@pytest.mark.parametrize('name', ['mlm', 'sbo', 'token_type', 'first_char'])
def test_what_is_predicted_as_a_task_cannot_be_copied(name):
    """Not even by an arm that was trained to find kept tokens."""
    objectives = {name: base.make({name: {}}, L)[name].as_task()}
    view, targets = jax.jit(model.corrupt)(objectives, jax.random.key(1), cases.vocabulary(), cases.rows(100))
    at, weight = targets[name]['at'], np.asarray(targets[name]['weight'])
    assert (np.take_along_axis(np.asarray(view.tokens), np.asarray(at), 1)[weight > 0] == MASK).all()
    assert weight.sum() > 100


@detection
def test_features_are_what_the_head_reads(name):
    encoded = model.Encoded(np.arange(B * L * 3, dtype=np.float32).reshape(B, L, 3), None, None)
    for balanced in (False, True):
        objective = base.make({name: {'balanced': balanced}}, L)[name]
        at = np.array([[3, 5, 1]] * B)
        found = objective.features(encoded, {'at': at})
        np.testing.assert_array_equal(found, encoded.hidden_BLD[:, [3, 5, 1]] if balanced else encoded.hidden_BLD)


@pytest.mark.parametrize(
    ('name', 'arguments', 'said'),
    [
        ('random_token', {'rate': 0.0}, 'random_token.rate is 0'),
        ('random_token', {'random_from': 'unigrm'}, "random_from 'unigrm' is unknown; did you mean 'unigram'"),
        ('shuffled_random', {'moved': 1.5}, 'moved is 1.5'),
        ('shuffled_token', {'slots': -1}, 'slots is -1'),
        ('three_way', {'variant': 'original'}, "variant is 'original'"),
    ],
)
def test_values_out_of_range(name, arguments, said):
    with pytest.raises(BadInput, match=said):
        base.make({name: arguments}, L)
