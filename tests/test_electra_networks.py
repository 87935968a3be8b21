"""The ELECTRA family: which loss reaches which network and table, the encoder of a run, and what a step costs."""

import contextlib
import dataclasses
import functools
import re
import subprocess
import sys
from types import SimpleNamespace

import as_users
import electra_cost
import jax
import numpy as np
import pytest
from etils import epath
from two_networks import ROOT, VOCAB, WIDTH, B, L, V, largest, rows, setup

import configs.electra
from bertx import evaluate, model, sweep
from bertx.errors import BadInput
from bertx.model import Net
from bertx.objectives import base, generator
from bertx.scheduling import engine
from bertx.types import view_of

# ---- gradients ------------------------------------------------------------------------------------------------------


def table(tree):
    return tree['token']['embedding'], tree['position']['embedding']


def own_table(params):
    return table(params['heads_electra']['generator']['encoder']['embeddings'])


def test_tied_tables_learn_from_both_losses_and_nothing_goes_through_the_samples():
    s = setup()
    of_mlm, of_rtd = s.gradients
    for grads in (of_mlm, of_rtd):
        assert min(map(largest, table(grads['encoder']['embeddings']))) > 1e-4
    assert largest(of_rtd['heads_electra']['generator']) == 0
    assert largest(of_mlm['encoder']['layers']) == 0
    assert 'embeddings' not in s.params['heads_electra']['generator']['encoder']  # nothing unused is kept
    assert 'project' in s.params['heads_electra']['generator']['encoder']


def test_gdes_tables_learn_the_generators_from_its_loss_and_the_difference_from_the_encoders():
    s = setup(embeddings='gdes')
    of_mlm, of_rtd = s.gradients
    delta = table(s.params['encoder']['embeddings'])
    assert largest(delta) == 0  # starts at 0
    assert largest(own_table(of_rtd)) == 0
    assert min(map(largest, table(of_rtd['encoder']['embeddings']))) > 1e-4
    assert min(map(largest, own_table(of_mlm))) > 1e-4
    assert largest(of_mlm['encoder']) == 0


def test_untied_networks_share_no_gradient():
    s = setup(embeddings='untied')
    of_mlm, of_rtd = s.gradients
    assert largest(of_rtd['heads_electra']['generator']) == largest(of_mlm['encoder']) == 0
    assert min(map(largest, own_table(of_mlm))) > 1e-4
    assert own_table(s.params)[0].shape == (V, WIDTH // 4)


@pytest.mark.parametrize('name', ['replace_mlm', 'all_tokens_mlm'])
def test_the_other_losses_leave_the_generator_alone(name):
    _, grads = setup(name).gradients
    assert largest(grads[f'heads_{name}']['generator']) == 0
    assert largest(grads['encoder']['layers']) > 1e-4


@pytest.mark.parametrize('own', [True, False])
def test_an_optimizer_of_its_own_clips_each_network_by_itself(own):
    """With eps=1e3 Adam's first update is in proportion to the clipped gradient."""
    s, batch = setup(**({'variant': 'deberta'} if own else {'embeddings': 'gdes'})), rows()
    assert bool(s.objective.groups()) == own
    states = []
    for factor in (1.0, 1000.0):
        objective = dataclasses.replace(s.objective, generator_weight=np.float32(factor))
        states.append(s.step(s.state, batch, {'electra': objective}, clip=0.1, eps=1e3)[0].params)
    a, b = (x['encoder']['layers'] for x in states)
    apart = largest(jax.tree.map(lambda x, y: x - y, a, b))
    moved = largest(jax.tree.map(lambda x, y: x - y, a, s.params['encoder']['layers']))
    assert moved > 1e-7
    assert (apart == 0) if own else (apart > 0.5 * moved)


def test_the_generators_learning_rate_is_a_factor():
    s, batch = setup(variant='deberta'), rows()
    moves = []
    for factor in (1.0, 0.5):
        objective = dataclasses.replace(s.objective, generator_learning_rate=np.float32(factor))
        new = s.step(s.state, batch, {'electra': objective}, learning_rate=1e-3)[0].params
        moves.append(jax.tree.map(lambda x, y: x - y, new, s.params))
    full, half = moves
    # Not closer, as a difference of parameters near 1 is rounded to 6e-8.
    near = functools.partial(jax.tree.map, lambda x, y: np.testing.assert_allclose(x, y, atol=2e-7))
    near(full['encoder'], half['encoder'])
    full, half = (x['heads_electra']['generator'] for x in moves)
    near(jax.tree.map(lambda x: x / 2, full), half)
    assert largest(full) > 5e-4


# ---- the encoder taken out, and measured ----------------------------------------------------------------------------


def learned(embeddings: str):
    """(setup, parameters other than the first ones): with gdes, differences that are not 0."""
    s, rng = setup(embeddings=embeddings), np.random.default_rng(0)
    return s, jax.tree.map(lambda x: x + rng.normal(scale=0.1, size=x.shape).astype(np.float32), s.params)


@pytest.mark.parametrize('embeddings', generator.EMBEDDINGS)
def test_the_encoder_alone_is_the_encoder_of_the_run(embeddings):
    s, params = learned(embeddings)
    encode = lambda net, view: net.encoder(view, base=s.objective.base(net.head['electra'])).hidden_BLD
    view = view_of(rows())
    expected = jax.jit(lambda params: s.net.apply({'params': params}, view, method=encode))(params)
    alone = model.encoder_params(s.encoder, s.objectives, params)
    config = dataclasses.replace(s.encoder, delta_embeddings=False)
    run = jax.jit(lambda params: Net(config, {}).apply({'params': {'encoder': params}}, view, method=Net.encode))
    np.testing.assert_allclose(run(alone).hidden_BLD, expected, atol=1e-5)
    if embeddings == 'gdes':
        assert np.abs(run(params['encoder']).hidden_BLD - expected).max() > 1e-2


@pytest.mark.parametrize('embeddings', ['tied', 'gdes'])
def test_another_objectives_head_is_measured_on_the_encoder_of_the_run(embeddings):
    """MLM's head is measured by itself, without ELECTRA's generator, but with its tables."""
    s, params = learned(embeddings)
    head = setup('mlm').params['heads_mlm']
    run = SimpleNamespace(encoder=s.encoder, objectives=s.objectives)
    state = SimpleNamespace(params=params | {'heads_mlm': head}, frozen={})
    (mlm,) = base.make({'mlm': {}}, L).values()
    task = evaluate.Task.__new__(evaluate.Task)
    task.name, task.objectives = 'mlm', jax.tree.map(np.float32, {'mlm': mlm})
    task.structure = jax.tree.structure(task.objectives)
    task._map = lambda function, used, *_: function(used, task.objectives, ROOT, VOCAB, rows())
    (found,) = (m for m in task.own(run, state, 'validation', B) if m.metric == 'loss')
    alone = {'encoder': model.encoder_params(s.encoder, s.objectives, params), 'heads_mlm': head}
    expected, _ = setup('mlm').terms(alone, rows())
    np.testing.assert_allclose(found.sum_N, expected['mlm/loss'].term.sum, rtol=1e-5)


def test_what_an_arm_makes_for_itself_is_no_task_for_all(store):
    settings = {'evaluation': {'batch': 8, 'validation_rows': 8, 'test_rows': 8, 'tasks': ('electra',)}}
    with pytest.raises(BadInput, match='config.evaluation.tasks: Electra'):
        evaluate.Suite(settings | {'rows': {'length': L}}, store, VOCAB, SimpleNamespace(size=1))


# ---- a run, and what a step costs -----------------------------------------------------------------------------------


def test_a_run_warns_once_and_is_resumed_with_both_optimizers(store, tmp_path):
    """With NSP beside it, whose head is measured on the tables that the generator gives."""
    config = configs.electra.get_config('tiny')
    config.data.store = str(store.path)
    config.rows.length = 32
    config.encoder.update(layers=1, width=16, heads=2, max_positions=32)
    few = {'name': 'tokens', 'rate': 0.005}
    config.objectives = {'electra': {'embeddings': 'gdes', 'own_optimizer': True, 'select': few}, 'nsp': {}}
    config.train.update(batch=8, steps=6, log_every=1, validate_every=6, checkpoint_every=3, devices=1)
    config.train.update(dropout=0.0, attention_dropout=0.0)
    config.evaluation.update(batch=16, validation_rows=16, test_rows=16, tasks=('mlm',))
    config.evaluation.refit.update(tasks=())
    texts, logs = [], []
    for stop in (None, 5):
        (planned,) = sweep.plan(config, [{}], epath.Path(tmp_path / str(stop)))
        run = lambda at, p=planned: engine.Engine(functools.partial(stopping, at))([p])
        if stop:
            with pytest.raises(KeyboardInterrupt):
                run(stop)
        assert not run(None)
        texts.append((planned.folder.path / 'metrics.jsonl').read_text())
        logs.append((planned.folder.path / 'log.txt').read_text())
    assert texts[0] == texts[1]
    assert '"electra/auc"' in texts[0]
    assert logs[0].count('config.objectives.electra: fewer than 1 %') == 1
    found = {(v['task'], v['head'], v['metric']) for v in planned.folder.result['values']}
    assert {('electra', 'own', 'auc'), ('nsp', 'own', 'accuracy')} <= found


@contextlib.contextmanager
def stopping(at, *_):
    """Progress of a run that is killed at a step."""

    def advance(step, _):
        if step == at:
            raise KeyboardInterrupt

    yield advance


def shapes(text: str) -> set[tuple[int, ...]]:
    """Of all arrays in a compiled program's text."""
    return {tuple(map(int, shape.split(','))) for shape in re.findall(r'\w+\[(\d+(?:,\d+)*)\]', text)}


@pytest.mark.parametrize('name', ['electra', 'replace_mlm', 'all_tokens_mlm'])
def test_no_array_of_batch_by_length_by_vocabulary(name):
    s = setup(name)
    with_vocabulary = {shape for shape in shapes(s.compiled.as_text()) if V in shape}
    assert any(np.prod(shape) == B * s.objective.k * V for shape in with_vocabulary)  # the generator's logits are found
    assert max(map(np.prod, with_vocabulary)) < B * L * V


@pytest.mark.slow
@pytest.mark.parametrize('embeddings', ['tied', 'untied'])
def test_a_step_takes_little_more_than_its_two_networks(embeddings):
    """At most 1.15 times its generator trained alone (MLM) and its discriminator trained alone (on random fakes), as
    compiled for real runs, so in a process of its own. A minute."""
    command = [sys.executable, electra_cost.__file__, embeddings]
    done = subprocess.run(command, env=as_users.environment(), capture_output=True, text=True, check=True)
    print(done.stdout)
    assert float(done.stdout.split()[-1]) < 1.15
