"""Causal language modelling: what is predicted from what, and that the chunks do not show."""

import cases
import jax
import numpy as np
import optax
import pytest
from cases import CLS, SEP, B, D, L, V
from etils import epath
from test_sweep import run, small

from bertx import model, sweep
from bertx.encoder_config import REAL_STD
from bertx.errors import BadInput
from bertx.heads import TokenHead, ends
from bertx.model import Net
from bertx.objectives import base
from bertx.sweep import arm
from bertx.types import Encoded


def test_labels_of_a_packed_row():
    tokens = [CLS, 7, SEP, 8, SEP, CLS, 9, SEP, 0, 0]
    segment = [1, 1, 1, 1, 1, 2, 2, 2, 0, 0]
    example = jax.tree.map(lambda x: x[0, :10] if x.ndim == 2 else x[0], cases.rows(1))
    example = example.replace(tokens=np.array(tokens), segment_ids=np.array(segment))
    clm = base.make({'clm': {}}, 10)['clm']
    view, targets = clm.corrupt(jax.random.key(0), example, model.view_of(example), cases.vocabulary())
    np.testing.assert_array_equal(view.tokens, tokens)
    counts = targets['weight'] > 0
    assert counts.tolist() == [True] * 4 + [False] + [True] * 2 + [False] * 3
    assert targets['label'][counts].tolist() == [7, SEP, 8, SEP, 9, SEP]  # no [CLS], nothing across, no padding


@pytest.mark.slow  # the table of test_objectives.py has the same for all
def test_loss_at_the_start_and_overfitting():
    case = cases.Case({'clm': {}}, std=0.06)
    first, last = case.fit(200)
    assert first['clm/loss'] == pytest.approx(np.log(V) + D * (0.06 * REAL_STD) ** 2 / 2, abs=0.03)
    # After [CLS], and in the rows that begin alike, several tokens may follow.
    assert last['clm/loss'] < 0.5 and last['clm/accuracy'] > 0.85


def test_weights_gradients_compilations_and_segments():
    case = cases.cases('clm')
    cases.check_weights(case)
    cases.check_gradients(case)
    cases.check_one_compilation(case)
    cases.check_segments_are_apart(case)


def naive(case, params, view, targets):
    """[B, L] nats and hits, with all logits at once."""
    encoded = case.net.apply({'params': params}, view, method=Net.encode)
    logits = TokenHead(case.config).apply({'params': params['heads_clm']}, encoded.hidden_BLD, encoded.table_VE)
    label = targets['clm']['label']
    return optax.softmax_cross_entropy_with_integer_labels(logits, label), logits.argmax(-1) == label


@pytest.mark.parametrize('chunk', [1, 7])
def test_chunks_do_not_show(chunk):
    case = cases.cases('clm')
    objectives = jax.tree.map(np.float32, base.make({'clm': {'chunk': chunk}}, L))
    view, targets = case.corrupt(case.batch)
    weight = targets['clm']['weight']

    def loss(params):
        losses, metrics = case.net.apply({'params': params}, objectives, view, targets)
        return losses['clm/loss'].term.sum.sum(), metrics['clm/accuracy'].sum

    def expected(params):
        nats, hit = naive(case, params, view, targets)
        return (nats * weight).sum(), (hit * weight).sum(-1)

    of = lambda f: jax.jit(jax.value_and_grad(f, has_aux=True))(case.state.params)
    ((found, hits), grads), ((right, right_hits), right_grads) = of(loss), of(expected)
    np.testing.assert_allclose(found, right, rtol=1e-5)
    np.testing.assert_array_equal(hits, right_hits)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=2e-4), grads, right_grads)


def test_nothing_is_predicted_from_what_comes_later():
    case = cases.cases('clm')
    view, targets = case.corrupt(case.batch)
    later = np.arange(L)[None] >= 5
    other = view.replace(tokens=np.where(later & (view.tokens > 4), 5 + view.tokens % 70, view.tokens))
    compute = jax.jit(lambda view: naive(case, case.state.params, view, targets)[0])
    a, b = compute(view), compute(other)
    np.testing.assert_allclose(a[:, :5], b[:, :5], rtol=1e-5)
    assert np.abs(a[:, 5:] - b[:, 5:]).max() > 1e-3


@pytest.mark.slow  # the table of test_objectives.py has the same for all
def test_no_array_of_row_by_vocabulary():
    case = cases.Case({'clm': {'chunk': 8}})
    assert f'f32[{B},8,{V}]' in case.hlo  # logits of one chunk: the search finds what there is
    for shape in (f'{B},{L},{V}', f'{L},{B},{V}', f'{B * L},{V}', f'{L // 8},{B},8,{V}'):
        assert f'[{shape}]' not in case.hlo


def test_sentence_heads_read_the_end_of_their_segment():
    case = cases.cases('clm', 'nsp')
    segment, starts = case.batch.segment_ids, case.batch.starts
    last = np.stack([[np.flatnonzero(row == s)[-1] for s in (1, 2)] for row in segment])
    np.testing.assert_array_equal(ends(segment, starts), last)
    hidden = np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32)
    view, targets = case.corrupt(case.batch)
    nsp = case.objectives['nsp']
    for causal, at in ((True, last), (False, starts)):
        found = nsp.features(Encoded(hidden, None, view, causal), targets['nsp'])
        np.testing.assert_array_equal(found, np.take_along_axis(hidden, at[..., None], 1))
    cases.check_weights(case)
    _, after = case.fit(80)
    assert after['nsp/loss'] < 0.1  # its rows are told apart by more than their [CLS]


def test_a_run_judged_on_tasks_of_others(store, tmp_path):
    config = small(store)
    config.train.update(steps=2, log_every=1, validate_every=2, checkpoint_every=2)
    tasks = ('clm', 'nsp', 'random_token')
    config.evaluation.update(tasks=tasks)
    config.evaluation.refit.update(tasks=tasks)
    point = arm('clm', objectives={'clm': {}, 'nsp': {}})
    with pytest.raises(BadInput, match='config.evaluation.refit.tasks names clm'):
        sweep.plan(config, point, epath.Path(tmp_path))
    config.evaluation.refit.update(tasks=('nsp', 'random_token'))
    ([planned], failed) = run(config, point, tmp_path)
    assert not failed
    values = planned.folder.result['values']
    found = {(v['task'], v['head'], v['metric']) for v in values}
    heads = [('clm', 'own'), ('nsp', 'own'), ('nsp', 'refit'), ('random_token', 'refit')]
    assert found == {(*head, metric) for head in heads for metric in ('loss', 'accuracy')}
    assert all(np.isfinite(v['value']) for v in values)
    _, weight_N = planned.folder.predictions('random_token', 'refit', 'test', 'accuracy')
    assert (weight_N % 2 == 0).all() and weight_N.max() < L / 2  # as many replaced tokens as others


def test_what_it_can_be_with():
    assert base.make({'clm': {}, 'sop': {}}, L).keys() == {'clm', 'sop'}
    with pytest.raises(BadInput, match='mixes bidirectional and causal'):
        base.make({'clm': {}, 'mlm': {}}, L)
    with pytest.raises(BadInput, match='clm.chunk is 0'):
        base.make({'clm': {'chunk': 0}}, L)
