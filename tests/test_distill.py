"""Distillation: what it is measured against, that the teacher stays as it is, and where one is read from."""

import dataclasses
import shutil
import types

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from analysis_cases import saved
from cases import B, Case, D, L, V, mean
from test_sweep import run, small

from bertx import checkpoint, parallel, train
from bertx.encoder import Encoder
from bertx.encoder_config import REAL_STD
from bertx.errors import BadInput
from bertx.heads import TokenHead
from bertx.objectives import base
from bertx.pretrained import Pretrained
from bertx.sweep import arm
from bertx.text.tokenizer import Tokenizer

STD, T = 0.06, 2.0
TOKENIZER = Tokenizer.train_words([' '.join(f'w{n}' for n in range(V - 5))], V)


def write_run(folder, case, params):
    """What distill reads of a finished run."""
    return saved(Pretrained('', case.config, params, TOKENIZER), folder, tuple(params))


def taught(case):
    """Parameters of a teacher that is sure of something."""
    params = jax.tree.map(np.asarray, case.state.params)
    bias = np.random.default_rng(3).normal(0, 2, V).astype(np.float32)
    return params | {'heads_mlm': params['heads_mlm'] | {'bias': bias}}


@pytest.fixture(scope='module')
def teachers(tmp_path_factory):
    """width -> a run's folder"""
    folder, found = tmp_path_factory.mktemp('teachers'), {}
    for width in (D, 2 * D):
        case = Case({'mlm': {}}, std=0.2, width=width)
        found[width] = write_run(folder / str(width), case, taught(case))
    return found


@pytest.fixture(scope='module')
def case(teachers):
    return started(
        Case({'mlm': {'weight': 2.0}, 'distill': {'teacher': str(teachers[D]), 'mse': 1.0, 'chunk': 8}}, std=STD)
    )


def started(case):
    """With the teacher read, as train.start does it."""
    frozen = {'heads_distill': jax.tree.map(jnp.asarray, case.objectives['distill'].frozen())}
    jax.tree.map(
        lambda x, y: np.testing.assert_equal((x.shape, x.dtype), (y.shape, y.dtype)), case.state.frozen, frozen
    )
    case.state = dataclasses.replace(case.state, frozen=frozen)
    return case


def networks(case, view, params):
    """Hidden states and logits, all at once, of an encoder with these parameters."""
    encoded = Encoder(case.config).apply({'params': params['encoder']}, view)
    head = TokenHead(case.config)
    return encoded.hidden_BLD, head.apply({'params': params['head']}, encoded.hidden_BLD, encoded.table_VE)


def expected(case, params):
    """Losses and agreement [B, L] in float64 numpy, from all logits."""
    view, _ = case.corrupt(case.batch)
    mine = {'encoder': params['encoder'], 'head': params['heads_distill']['token']}
    compute = jax.jit(lambda params: networks(case, view, params))
    x, s = (np.asarray(y, np.float64) for y in compute(mine))
    y, t = (np.asarray(y, np.float64) for y in compute(case.state.frozen['heads_distill']['teacher']))
    p, q = (np.exp(z / T) / np.exp(z / T).sum(-1, keepdims=True) for z in (t, s))
    return {
        'soft': T**2 * (p * np.log(p / q)).sum(-1),
        'cosine': 1 - (x * y).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1),
        'mse': ((x - y) ** 2).mean(-1),
        'accuracy': t.argmax(-1) == s.argmax(-1),
        'entropy': -(p * np.log(p)).sum(-1),
    }


def test_losses_against_all_logits_at_once(case):
    losses, metrics = case.terms(*case.corrupt(case.batch))
    right, real = expected(case, case.state.params), case.batch.segment_ids > 0
    for name in ('soft', 'cosine', 'mse'):
        found = losses[f'distill/{name}'].term
        np.testing.assert_allclose(found.sum, (right[name] * real).sum(-1), rtol=1e-4)
        np.testing.assert_array_equal(found.weight, real.sum(-1))
    np.testing.assert_array_equal(metrics['distill/accuracy'].sum, (right['accuracy'] * real).sum(-1))
    assert (right['entropy'][real] < 0.97 * np.log(V)).all()  # the teacher is sure of something
    coefficients = {name: float(loss.coefficient) for name, loss in losses.items()}
    assert coefficients == {'mlm/loss': 2, 'distill/soft': 5, 'distill/cosine': 1, 'distill/mse': 1}


def test_loss_at_the_start(case):
    """The student's distribution is flat, so the divergence is what the teacher's entropy lacks of ln V."""
    losses, _ = case.terms(*case.corrupt(case.batch))
    entropy = expected(case, case.state.params)['entropy'][case.batch.segment_ids > 0].mean()
    theory = T**2 * (np.log(V) - entropy) + D * (STD * REAL_STD) ** 2 / 2
    assert mean(losses['distill/soft'].term) == pytest.approx(theory, rel=0.02)


def test_a_student_like_the_teacher_has_nothing_to_learn(case):
    its = case.state.frozen['heads_distill']['teacher']
    params = case.state.params | {'encoder': its['encoder'], 'heads_distill': {'token': its['head']}}
    losses, metrics = case.terms(*case.corrupt(case.batch), params)
    for name in ('soft', 'cosine', 'mse'):
        assert mean(losses[f'distill/{name}'].term) == pytest.approx(0.0, abs=1e-5)
    assert mean(metrics['distill/accuracy']) == 1.0


def test_overfits_one_batch(case):
    first, last = case.fit(200)
    for name in ('soft', 'cosine', 'mse'):
        assert last[f'distill/{name}'] < 0.15 * first[f'distill/{name}'], name
    assert last['mlm/loss'] < 0.1 and last['distill/accuracy'] > 0.9


def test_the_teacher_stays_as_it_is(case):
    view, targets = case.corrupt(case.batch)
    (_, of_frozen), _ = case.gradient(case.state.params, case.state.frozen, view, targets)
    assert not any(np.any(g) for g in jax.tree.leaves(of_frozen))
    state, _ = case.step(case.state)
    jax.tree.map(np.testing.assert_array_equal, state.frozen, case.state.frozen)
    assert 'teacher' not in state.params['heads_distill']


def test_weights_gradients_compilations_and_segments(case):
    cases.check_weights(case)
    cases.check_gradients(case)
    cases.check_one_compilation(case)  # with another temperature and other coefficients
    cases.check_segments_are_apart(case)


def test_no_array_of_row_by_vocabulary(case):
    assert f'f32[{B},8,{V}]' in case.hlo  # logits of one chunk: the search finds what there is
    for shape in (f'{B},{L},{V}', f'{L},{B},{V}', f'{B * L},{V}', f'{L // 8},{B},8,{V}'):
        assert f'[{shape}]' not in case.hlo


def test_a_teacher_of_another_width(teachers):
    case = started(Case({'mlm': {}, 'distill': {'teacher': str(teachers[2 * D])}}, std=STD))
    assert case.state.params['heads_distill']['project']['kernel'].shape == (D, 2 * D)
    losses, _ = case.terms(*case.corrupt(case.batch))
    assert losses.keys() == {'mlm/loss', 'distill/soft', 'distill/cosine'}  # mse has no coefficient
    cases.check_gradients(case)
    first, last = case.fit(60)
    assert last['distill/cosine'] < 0.6 * first['distill/cosine']


def test_content_is_that_of_the_parameters(teachers, tmp_path):
    content = lambda folder: base.make({'distill': {'teacher': str(folder)}}, L)['distill'].content()
    shutil.copytree(teachers[D], tmp_path / 'copy')
    assert content(tmp_path / 'copy') == content(teachers[D]) != content(teachers[2 * D])


def test_another_vocabulary(teachers):
    distill = base.make({'distill': {'teacher': str(teachers[D])}}, L)['distill']
    store = lambda words, size: types.SimpleNamespace(tokenizer=Tokenizer.train_words([' '.join(words)], size))
    same = [f'w{n}' for n in range(V - 5)]
    distill.check_store('key', store(same, V))
    with pytest.raises(BadInput, match="id .* is 'v0.*' in config.data and 'w.*' in"):
        distill.check_store('key', store([f'v0{word}' for word in same], V))
    with pytest.raises(BadInput, match=f'key.teacher has {V} pieces, and config.data'):
        distill.check_store('key', store(sorted(same)[:20], 25))


def test_teachers_that_will_not_do(teachers, tmp_path):
    def make(length=L, **arguments):
        return base.make({'distill': arguments}, length)

    with pytest.raises(BadInput, match="distill.teacher is ''"):
        make()
    with pytest.raises(BadInput, match='nowhere holds no weights; a run'):
        make(teacher=str(tmp_path / 'nowhere'))
    with pytest.raises(BadInput, match='length is 1024; the teacher .* has 512 positions'):
        make(1024, teacher=str(teachers[D]))
    with pytest.raises(BadInput, match='temperature is 0'):
        make(teacher=str(teachers[D]), temperature=0.0)
    unfinished = tmp_path / 'unfinished'
    shutil.copytree(teachers[D], unfinished, ignore=shutil.ignore_patterns('checkpoints'))
    with pytest.raises(BadInput, match='unfinished has no checkpoint'):
        make(teacher=str(unfinished))
    causal = cases.cases('clm')
    write_run(tmp_path / 'causal', causal, causal.state.params)
    with pytest.raises(BadInput, match='causal was not trained with mlm'):
        make(teacher=str(tmp_path / 'causal'))


def test_from_one_run_to_the_next(store, tmp_path):
    """A teacher is trained and a student of half its width taught, by the commands' own functions."""
    config = small(store)
    config.evaluation.update(tasks=('mlm',))
    config.evaluation.refit.update(tasks=())
    config.train.update(steps=2, log_every=1, validate_every=2, checkpoint_every=2)
    ([teacher], failed) = run(config, arm('teacher', objectives={'mlm': {}}), tmp_path / 'teacher')
    assert not failed
    config.encoder.update(width=8)
    objectives = {'mlm': {'weight': 2.0}, 'distill': {'teacher': str(teacher.folder.path)}}
    ([student], failed) = run(config, arm('student', objectives=objectives), tmp_path / 'student')
    assert not failed
    line = student.folder.metrics()[-1]
    assert {'distill/soft', 'distill/cosine', 'distill/accuracy', 'mlm/loss'} <= line.keys()
    its, own = (checkpoint.Trained(p.folder.checkpoints).params() for p in (teacher, student))
    assert own['heads_distill'].keys() == {'token', 'project'}
    rows = train.Rows(store, 'train', student.run.rows, 0)
    state = train.start(student.run, rows, train.vocabulary(store), parallel.data_mesh(1))
    held = state.frozen['heads_distill']['teacher']
    jax.tree.map(np.testing.assert_array_equal, held, {'encoder': its['encoder'], 'head': its['heads_mlm']})
