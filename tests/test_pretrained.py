"""Runs that start from weights: what is taken, what stays fresh, what is frozen, what is refused."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from etils import epath

from bertx import hf
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.parallel import data_mesh
from bertx.pretrained import Pretrained, start_from
from bertx.sweep import arm, plan
from bertx.text.prepare import PrepareOptions, prepare
from bertx.train import Rows, start, vocabulary
from experiments import evaluate
from tests.test_cli import call
from tests.test_sweep import run, small


def quick(store):
    config = small(store)
    config.evaluation.update(tasks=('mlm', 'nsp'))
    config.evaluation.refit.update(tasks=('nsp',))
    config.train.update(steps=2, log_every=1, validate_every=2, checkpoint_every=2)
    return config


@pytest.fixture(scope='module')
def teacher(store, tmp_path_factory):
    """The folder of a finished run."""
    points = arm('first', objectives={'mlm': {}})
    ([planned], failed) = run(quick(store), points, tmp_path_factory.mktemp('teacher'))
    assert not failed
    return str(planned.folder.path)


def begun(config, workdir, **objectives):
    """What a run would start with."""
    ([p]) = plan(config, arm('next', objectives=objectives or {'mlm': {}}), epath.Path(workdir))
    rows = Rows(p.store, 'train', p.run.rows, p.run.seed)
    return p, jax.device_get(start(p.run, rows, vocabulary(p.store), data_mesh(1)).params)


def test_a_run_starts_where_another_ended(store, teacher, tmp_path, caplog):
    config = quick(store)
    _, fresh = begun(config, tmp_path, mlm={}, nsp={})
    config.init_from = teacher
    config.encoder.size = 'base'  # the weights decide
    with caplog.at_level('INFO', 'bertx'):
        planned, found = begun(config, tmp_path, mlm={}, nsp={})
    source = Pretrained.load(teacher)
    assert source.heads == ['mlm']
    for name in ('encoder', 'heads_mlm'):
        jax.tree.map(np.testing.assert_array_equal, found[name], source.params[name])
    jax.tree.map(np.testing.assert_array_equal, found['heads_nsp'], fresh['heads_nsp'])
    assert 'encoder, heads_mlm; new: heads_nsp; 0 new rows' in caplog.text
    assert planned.run.hash != begun(quick(store), tmp_path, mlm={}, nsp={})[0].run.hash


def test_new_pieces_get_fresh_rows(store, teacher, corpus, tmp_path, caplog):
    content = json.loads((epath.Path(teacher) / 'tokenizer.json').read_text())
    old = len(content['model']['vocab'])
    content['model']['vocab'] |= {'zebra': old, '##bra': old + 1}
    (tmp_path / 'tokenizer.json').write_text(json.dumps(content))
    options = PrepareOptions(source=f'text:{corpus}', tokenizer=str(tmp_path), validation=0.2, test=0.2, split_seed=0)
    larger = prepare(options, tmp_path / 'store')
    config = quick(larger)
    config.init_from = teacher
    with caplog.at_level('INFO', 'bertx'):
        _, found = begun(config, tmp_path)
    table = found['encoder']['embeddings']['token']['embedding']
    np.testing.assert_array_equal(
        table[:old], Pretrained.load(teacher).params['encoder']['embeddings']['token']['embedding']
    )
    assert table.shape[0] == old + 2
    assert 0.01 < table[old:].std() < 1.0
    assert found['heads_mlm']['bias'].shape == (old + 2,)
    assert '2 new rows' in caplog.text


def test_a_frozen_encoder_stays_as_it_is(store, teacher, tmp_path):
    config = quick(store)
    config.init_from = teacher
    config.train.freeze_encoder = True
    ([planned], failed) = run(config, arm('frozen', objectives={'mlm': {}}), tmp_path)
    assert not failed
    source, ended = Pretrained.load(teacher), Pretrained.load(str(planned.folder.path))
    jax.tree.map(np.testing.assert_array_equal, ended.params['encoder'], source.params['encoder'])
    moved = jax.tree.map(lambda a, b: float(abs(a - b).max()), ended.params['heads_mlm'], source.params['heads_mlm'])
    assert min(jax.tree.leaves(moved)) > 0


def test_evaluate_gives_what_the_run_measured(store, teacher, tmp_path):
    config = quick(store)
    config.init_from = teacher
    found = {(m.task, m.head, m.metric): m.value for m in evaluate.measure(config, epath.Path(tmp_path))}
    values = json.loads((epath.Path(teacher) / 'result.json').read_text())['values']
    measured = {(v['task'], v['head'], v['metric']): v['value'] for v in values}
    assert found == pytest.approx(measured)
    assert ('mlm', 'own', 'loss') in found
    assert ('nsp', 'refit', 'accuracy') in found


def test_the_command_evaluates_a_hugging_face_folder(store, teacher, tmp_path, monkeypatch):
    model = Pretrained.load(teacher)
    hf.write(tmp_path / 'hf', model.encoder, model.params, model.tokenizer)
    arguments = [
        f'--from={tmp_path / "hf"}', '--config=configs/base.py:tiny', f'--workdir={tmp_path / "work"}',
        f'--config.data.store={store.path}', '--config.rows.length=16', "--config.evaluation.tasks=('mlm',)",
        '--config.evaluation.test_rows=8', '--config.evaluation.refit.tasks=()',
    ]  # fmt: skip
    done = call('evaluate', *arguments)
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / 'work' / 'evaluation.json').read_text())
    assert written['from'] == str(tmp_path / 'hf')
    values = {(v['head'], v['metric']): v['value'] for v in written['values'] if v['task'] == 'mlm'}
    shown = {tuple(line.split('│')[2:4]): line.split('│')[4] for line in done.stderr.splitlines() if '│ mlm' in line}
    shown = {tuple(x.strip() for x in key): float(value) for key, value in shown.items()}
    assert shown['own', 'loss'] == pytest.approx(values['own', 'loss'], abs=1e-4)
    assert shown['own', 'perplexity'] == pytest.approx(np.exp(values['own', 'loss']), rel=1e-3)
    mine = {'encoder': model.params['encoder'], 'heads_sbo': {'token': model.params['heads_mlm']}}
    monkeypatch.setattr(evaluate.Pretrained, 'load', lambda _: dataclasses.replace(model, params=mine))
    config = quick(store)
    config.init_from = teacher
    found = evaluate.measure(config, epath.Path(tmp_path / 'sbo'))  # SpanBERT's head predicts masked tokens too
    assert ('mlm', 'own') in {(m.task, m.head) for m in found}
    done = call('evaluate', '--from=README.md', *arguments[1:])
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith('error: README.md holds no weights; a run')


def test_a_single_document_is_measured_as_a_whole(store, teacher, tmp_path):
    (tmp_path / 'one.txt').write_text('The w3 of w4 is w5. The w4 of w3 is w9. ' * 20)
    config = quick(store)
    config.init_from, config.data.store, config.data.source = teacher, '', f'text:{tmp_path / "one.txt"}'
    found = {(m.task, m.head, m.metric): m for m in evaluate.measure(config, epath.Path(tmp_path / 'work'), whole=True)}
    assert found.keys() == {('mlm', 'own', 'loss'), ('mlm', 'own', 'accuracy'), ('mlm', 'unigram', 'accuracy')}
    assert found['mlm', 'own', 'loss'].weight_N.sum() > 10


def test_a_store_with_a_test_split_is_not_measured_as_a_whole(store, teacher, tmp_path):
    config = quick(store)
    config.init_from = teacher
    with pytest.raises(BadInput, match='is split .*test.*; give config.data.source'):
        evaluate.measure(config, epath.Path(tmp_path), whole=True)


def test_a_part_of_a_head_starts_where_it_is_all_there_is():
    rng = np.random.default_rng(0)
    make = lambda rows: {
        'encoder': {'embeddings': {'token': {'embedding': rng.normal(size=(rows, 4))}}},
        'heads_electra': {'head': {'out': rng.normal(size=(4, 1))}, 'generator': {'deep': rng.normal(size=(3, 4))}},
    }
    theirs, mine = make(10), make(12)
    source = lambda **heads: Pretrained('there', EncoderConfig(vocab_size=10), theirs | {'heads_electra': heads}, None)
    begun = start_from(source(head=theirs['heads_electra']['head']), mine)
    np.testing.assert_array_equal(begun['heads_electra']['head']['out'], theirs['heads_electra']['head']['out'])
    own = mine['heads_electra']['generator']['deep']
    np.testing.assert_array_equal(begun['heads_electra']['generator']['deep'], own)
    shallow = theirs['heads_electra'] | {'generator': {'deep': rng.normal(size=(2, 4))}}
    begun = start_from(source(**shallow), mine)  # not a part of it in the place of all
    np.testing.assert_array_equal(begun['heads_electra']['head']['out'], mine['heads_electra']['head']['out'])


def test_the_head_of_spanbert_is_one_of_masked_tokens(caplog):
    rng = np.random.default_rng(0)
    tree = lambda **heads: {'encoder': {'embeddings': {'token': {'embedding': rng.normal(size=(10, 4))}}}} | heads
    token, fresh = {'bias': rng.normal(size=10)}, lambda: {'bias': rng.normal(size=10)}
    source = lambda **heads: Pretrained('there', EncoderConfig(vocab_size=10), tree(**heads), None)
    spans = {'token': token, 'span': fresh()}
    with caplog.at_level('INFO', 'bertx'):
        begun = start_from(source(heads_sbo=spans, pooler=fresh()), tree(heads_mlm=fresh()))
    np.testing.assert_array_equal(begun['heads_mlm']['bias'], token['bias'])
    assert 'encoder, heads_mlm; new: nothing; 0 new rows of the vocabulary; not used: pooler' in caplog.text
    begun = start_from(source(heads_mlm=token), tree(heads_sbo={'token': fresh(), 'span': spans['span']}))
    np.testing.assert_array_equal(begun['heads_sbo']['token']['bias'], token['bias'])
    np.testing.assert_array_equal(begun['heads_sbo']['span']['bias'], spans['span']['bias'])


def test_what_cannot_start_is_refused(store, teacher, corpus, tmp_path):
    def refused(message, **settings):
        config = quick(store)
        config.update_from_flattened_dict({'init_from': teacher} | settings)
        with pytest.raises(BadInput, match=message):
            begun(config, tmp_path)

    refused('holds no weights', init_from=str(tmp_path))
    causal = pathlib.Path(shutil.copytree(teacher, tmp_path / 'causal'))
    about = json.loads((causal / 'encoder.json').read_text())
    (causal / 'encoder.json').write_text(json.dumps(about | {'causal': True}))
    refused('is a causal encoder, and mlm asks for both sides', init_from=str(causal))
    refused('config.encoder.layers is 3, and 1 in config.init_from', **{'encoder.layers': 3})
    other = prepare(
        PrepareOptions(source=f'text:{corpus}', vocab_size=90, validation=0.2, test=0.2), tmp_path / 'other'
    )
    refused('config.data.tokenizer=', **{'data.store': str(other.path)})
    electra = {'electra': {'embeddings': 'gdes'}}
    config = quick(store)
    config.init_from = teacher
    with pytest.raises(BadInput, match="'untied' would do"):
        begun(config, tmp_path, **electra)
