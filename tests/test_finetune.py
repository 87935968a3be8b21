"""Fine-tuning: the peer's losses, the recipe's parts, and runs that are recorded, reproduced and skipped."""

import contextlib
import json
import logging
import pathlib
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from etils import epath
from weights import params, small, wordpieces

from bertx import hf
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from bertx.results import RunFolder
from bertx.tasks import downstream, finetune, heads
from bertx.tasks import job as jobs
from bertx.tasks.job import initial
from bertx.tasks.step import optimizer, trainer
from bertx.types import DropoutRates
from configs.finetune import base
from configs.finetune.base import task
from experiments import finetune as command

ROOT = pathlib.Path(__file__).parents[1]
KINDS = ('classify', 'regress', 'rank', 'tag', 'qa')


@pytest.fixture(scope='module')
def source(tmp_path_factory):
    """A Hugging Face folder: three layers with a pooler, letters for pieces."""
    folder, config = tmp_path_factory.mktemp('source') / 'bert', small('bert')
    hf.write(folder, config, params(config, 'pooler'), wordpieces())
    return str(folder)


def words(rng, n=5):
    return [''.join(rng.choice(list('abcdef'), rng.integers(1, 4))) for _ in range(rng.integers(1, n))]


@pytest.fixture(scope='module')
def tasks(tmp_path_factory):
    """A data set of each kind, in which the first word tells the label, tag or answer."""
    folder, rng, found = tmp_path_factory.mktemp('data'), np.random.default_rng(0), {}
    for split, n in (('train', 48), ('dev', 24), ('test', 24)):
        texts = [words(rng) for _ in range(n)]
        label = [int(text[0][0] in 'abc') for text in texts]
        lines = [f'{" ".join(t)}\t{" ".join(words(rng))}\t{y}\t{y + rng.random():.2f}\tq{i // 4}' for i, (t, y) in
                 enumerate(zip(texts, label, strict=True))]  # fmt: skip
        (folder / f'{split}.tsv').write_text('\n'.join(['text\tpair\tlabel\tscore\tquery', *lines]) + '\n')
        tags = [[f'B-{"x" if word[0] in "abc" else "y"}' if len(word) > 1 else 'O' for word in text] for text in texts]
        rows = [''.join(f'{w} {t}\n' for w, t in zip(*pair, strict=True)) for pair in zip(texts, tags, strict=True)]
        (folder / f'{split}.conll').write_text('\n'.join(rows))
        qas = [{'context': ' '.join(text + text), 'qas': [{'id': i, 'question': 'abc', 'answers': [
            {'text': text[0], 'answer_start': 0}]}]} for i, text in enumerate(texts)]  # fmt: skip
        (folder / f'{split}.json').write_text(json.dumps({'data': [{'paragraphs': qas}]}))
    at = lambda ending: [f'{folder}/{split}.{ending}' for split in ('train', 'dev', 'test')]
    both = {'text': 'text', 'pair': 'pair', 'label': 'label'}
    found['classify'] = task('classify', *at('tsv'), both)
    found['regress'] = task('regress', *at('tsv'), {'text': 'text', 'label': 'score'})
    found['rank'] = task('rank', *at('tsv'), both | {'query': 'query'})
    found['tag'] = task('tag', *at('conll'), {'words': 'words', 'tags': 'tags'})
    columns = {name: name for name in ('question', 'context', 'answers', 'id')}
    found['qa'] = task('qa', *at('json'), columns, doc_stride=4)
    return found


def settings(source, tasks, *names, **changes):
    config = base.get_config(**{name: tasks[name] for name in names})
    config.update(init_from=source, length=20, buckets=())
    config.encoder.unroll = 1
    config.optimizer.learning_rate = 3e-3
    config.train.update(batch=8, epochs=2, dropout=0.0, attention_dropout=0.0)
    for key, value in changes.items():
        section, _, name = key.rpartition('__')
        (config[section] if section else config)[name] = value
    return config


def run(config, folder, points=({'arm': 'run'},)):
    planned = downstream.plan(config, list(points), epath.Path(folder))
    failed = downstream.run_all(planned, lambda *_: silent())
    assert not failed, failed
    return planned


def silent():
    return contextlib.nullcontext(lambda *_: None)


def ours(job, some):
    """The losses of these batches."""
    (name,) = job.tasks
    trained = jax.tree.map(jax.numpy.array, initial(job))
    step = trainer(job.encoder, job.specs[name], job.name_of(name), job.options, 'paper')
    opt, found = optimizer(job.options, 'paper', job.hyper).init(trained), []
    for batch in some:
        weights_C = job.data.class_weights[name]
        trained, opt, loss = step(trained, {}, opt, job.hyper, weights_C, jax.random.key(0), batch)
        found.append(float(loss))
    return found


def twenty(job):
    return [batch for _, (_, batch) in zip(range(20), job.batches(), strict=False)]


@pytest.mark.parametrize('kind', KINDS)
def test_the_losses_of_twenty_steps_are_the_peers(source, tasks, kind):
    peer = pytest.importorskip('finetune_peer')
    job = jobs.prepare(settings(source, tasks, kind, train__steps=20, buckets=(12,) if kind == 'classify' else ()))
    some = twenty(job)
    some.append(some[0])
    expected = peer.losses(job, some)
    np.testing.assert_allclose(ours(job, some), expected, atol=1e-3)
    assert abs(expected[-1] - expected[0]) > 0.01  # the same batch: the updates are compared too


@pytest.mark.slow
@pytest.mark.parametrize('name', ['sst2', 'policyqa', 'wnut17_ner'])
def test_the_losses_are_the_peers_with_real_weights_on_real_data(name):
    """2 minutes each, most of them compilation."""
    peer = pytest.importorskip('finetune_peer')
    from configs.finetune import real

    root = epath.Path(__file__).parents[2] / 'shared' / 'data'
    if not peer.minilm() or not root.exists():
        pytest.skip('weights or data are not there')
    config = real.get_config(f'{name},{root}')
    config.update(init_from=peer.minilm(), length=128, buckets=(64,))
    config.train.update(batch=8, steps=20, examples=200, dropout=0.0, attention_dropout=0.0)
    config.evaluation.examples = 8
    job = jobs.prepare(config)
    some = twenty(job)
    np.testing.assert_allclose(ours(job, some), peer.losses(job, some), atol=1e-3)


def test_a_run_is_recorded_reproduced_and_skipped(source, tasks, tmp_path):
    config = settings(source, tasks, 'classify', random=True, train__epochs=15)
    config.encoder.std = 0.08
    [p], [again] = run(config, tmp_path / 'a'), run(config, tmp_path / 'b')
    result = p.folder.result
    assert [v['value'] for v in result['values']] == [v['value'] for v in again.folder.result['values']]
    values = {(v['head'], v['split'], v['metric']): v['value'] for v in result['values']}
    assert result['values'][0]['metric'] == 'accuracy'
    assert values['finetuned', 'test', 'accuracy'] > values['majority', 'test', 'accuracy'] + 0.1
    lines = [json.loads(line) for line in (p.folder.path / 'predictions' / 'classify-test.jsonl').open()]
    hits = np.mean([line['label'] == line['prediction'] for line in lines])
    assert len(lines) == 24 and hits == pytest.approx(values['finetuned', 'test', 'accuracy'])
    sums, weights = p.folder.predictions('classify', 'finetuned', 'test', 'accuracy')
    np.testing.assert_allclose(sums, [line['label'] == line['prediction'] for line in lines], atol=1e-9)
    assert not result['collapsed']
    before = (p.folder.path / 'result.json').read_bytes()
    run(config, tmp_path / 'a')
    assert (p.folder.path / 'result.json').read_bytes() == before
    # the run's folder is one to start from, and one to convert
    further = jobs.prepare(settings(str(p.folder.path), tasks, 'classify'))
    kept = initial(further)['heads_classify']['classifier']['kernel']
    assert np.abs(kept - initial(p.job)['heads_classify']['classifier']['kernel']).max() > 1e-3
    model, notes = hf.write(tmp_path / 'hf', further.encoder, jax.device_get(initial(further)), further.tokenizer)
    assert model == 'BertForSequenceClassification' and not notes
    assert Pretrained.load(str(p.folder.path)).about == p.job.about


def test_the_hash_follows_the_numbers(source, tasks, tmp_path):
    plain = jobs.prepare(settings(source, tasks, 'classify')).hash
    moved = dict(tasks['classify'])
    for split in ('train', 'dev', 'test'):
        shutil.copy(tasks['classify'][split], tmp_path / f'{split}.tsv')
        moved[split] = str(tmp_path / f'{split}.tsv')
    assert jobs.prepare(settings(source, {'classify': moved}, 'classify', train__log_every=3)).hash == plain
    dev = tmp_path / 'dev.tsv'
    dev.write_text(dev.read_text().replace('\t1\t', '\t0\t', 1))
    jobs.load.__globals__['_load'].cache_clear()
    assert jobs.prepare(settings(source, {'classify': moved}, 'classify')).hash != plain
    for change in ({'seed': 1}, {'optimizer__learning_rate': 1e-3}, {'random': True}, {'features': 'last'}):
        assert jobs.prepare(settings(source, tasks, 'classify', **change)).hash != plain


def test_what_a_run_starts_from(source, tasks):
    theirs = hf.read(source)[1]
    plain = initial(jobs.prepare(settings(source, tasks, 'classify')))
    same = lambda a, b: all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    assert same(plain['encoder'], theirs['encoder']) and same(plain['heads_classify']['pooler'], theirs['pooler'])
    top = initial(jobs.prepare(settings(source, tasks, 'classify', train__reinit_layers=1)))
    assert not same(top['heads_classify']['pooler'], theirs['pooler'])  # as Zhang et al. 2021 have it
    kernel, old = top['encoder']['layers']['mlp_in']['kernel'], theirs['encoder']['layers']['mlp_in']['kernel']
    assert np.array_equal(kernel[:2], old[:2]) and not np.isclose(kernel[2], old[2]).any()
    random = initial(jobs.prepare(settings(source, tasks, 'classify', random=True)))
    assert not np.array_equal(random['encoder']['layers']['mlp_in']['kernel'], old)


def test_a_run_keeps_the_names_of_its_classes(source, tasks):
    about = lambda *names, **changes: jobs.prepare(settings(source, tasks, *names, **changes)).about
    told = lambda kind, **more: {'kind': kind, 'features': ''} | more
    assert about('regress') == {'classify': told('regress', problem_type='regression')}
    assert about('qa') == {'qa': told('qa')}
    tags = told('tag', labels=['B-x', 'B-y', 'O'])
    assert about('tag') == {'tag': tags} and about('tag', features='mix') == {'tag_mix': tags | {'features': 'mix'}}
    assert about('classify', 'tag') == {'classify': told('classify', labels=['0', '1']), 'tag': tags}


def test_what_is_taken_is_logged(source, tasks, tmp_path, caplog):
    """A classifier of the same classes, not one of others; a pooler in any case; rows of new pieces are fresh."""
    theirs = small('bert')
    trained = params(theirs, 'classify')
    hf.write(tmp_path / 'named', theirs, trained, wordpieces(), {'classify': {'labels': ['0', '1']}})
    hf.write(tmp_path / 'other', theirs, trained, wordpieces(), {'classify': {'labels': ['1', '0']}})
    content = json.loads(wordpieces().text)
    content['model']['vocab'] |= {'##zz': 50, '##zzz': 51}
    (tmp_path / 'tokenizer.json').write_text(json.dumps(content))
    for folder, line in (
        (tmp_path / 'named', 'encoder, heads_classify; new: nothing; 0 new rows of the vocabulary; not used: nothing'),
        (tmp_path / 'other', 'encoder, heads_classify/pooler; new: heads_classify/classifier; 0 new rows'),
        (source, 'encoder, heads_classify/pooler; new: heads_classify/classifier; 2 new rows'),
    ):
        own = {'tokenizer': str(tmp_path / 'tokenizer.json')} if folder == source else {}
        job = jobs.prepare(settings(str(folder), tasks, 'classify', **own))
        with caplog.at_level('INFO', 'bertx'):
            found = initial(job)
        assert f'from {folder}: {line}' in caplog.text
    table, old = (x['encoder']['embeddings']['token']['embedding'] for x in (found, hf.read(source)[1]))
    assert len(table) == 52 and np.array_equal(table[:50], old) and 0.001 < table[50:].std() < 1.0
    jobs.prepare(settings(source, tasks, 'classify', tokenizer=str(tmp_path / 'tokenizer.json'), random=True))
    content['model']['vocab'] |= {'a': 6, 'b': 5}
    (tmp_path / 'tokenizer.json').write_text(json.dumps(content))
    with pytest.raises(BadInput, match="id 5 is 'b' in config and 'a' in .*; config.tokenizer="):
        jobs.prepare(settings(source, tasks, 'classify', tokenizer=str(tmp_path / 'tokenizer.json')))


@pytest.mark.parametrize('features', ['last', 'concat_last_4', 'mix'])
def test_frozen_features_train_the_head_alone(source, tasks, tmp_path, features):
    config = settings(source, tasks, 'tag', features=features, optimizer__learning_rate=2e-2)
    [p] = run(config, tmp_path)
    found = finetune.checkpoint.Trained(p.folder.checkpoints).params()
    jax.tree.map(np.testing.assert_array_equal, found['encoder'], hf.read(source)[1]['encoder'])
    head = 'heads_tag' if features == 'last' else f'heads_tag_{features}'
    start, end = initial(p.job)[head], found[head]
    assert all(np.abs(a - b).max() > 0 for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(end), strict=True))
    result = p.folder.result
    assert result['values'][0]['head'] == 'frozen'
    assert result['flops'] == result['tokens'] * p.job.encoder.flops_per_token(20)  # nothing goes back through it
    # a head on other states is no tagger of transformers, nor one to go on with on the last ones
    model, _ = hf.write(tmp_path / 'hf', p.job.encoder, found, p.job.tokenizer)
    assert (model == 'BertForTokenClassification') == (features == 'last')
    further = initial(jobs.prepare(settings(str(p.folder.path), tasks, 'tag')))['heads_tag']['classifier']['kernel']
    assert np.array_equal(further, end['classifier']['kernel']) == (features == 'last')


def test_the_second_to_last_layer_is_the_second_to_last():
    states = jax.numpy.arange(5.0).reshape(5, 1, 1, 1)
    chosen = lambda name: heads.chosen(name, states).ravel().tolist()
    assert chosen('second_to_last') == [3] and chosen('sum_last_4') == [10] and chosen('embeddings') == [0]
    assert chosen('concat_last_4') == [1, 2, 3, 4] and chosen('sum_all') == [10]


@pytest.mark.parametrize('kind', ['qa', 'tag'])
def test_the_head_of_answers_has_no_dropout(kind):
    config, x_BLD = small('bert'), np.ones((2, 3, small('bert').width), np.float32)
    head, half = heads.TaskHead(config, heads.HeadSpec(kind, 2)), np.float32(0.5)
    params, key = head.init(jax.random.key(0), x_BLD), {'dropout': jax.random.key(1)}
    found = head.apply(params, x_BLD, DropoutRates(half, half), rngs=key)
    assert np.array_equal(found, head.apply(params, x_BLD)) == (kind == 'qa')  # as run_squad.py has it


@pytest.mark.parametrize('features', ['', 'mix'])
def test_a_causal_encoder_is_read_at_its_last_token(features):
    config, spec = small('bert', causal=True), heads.HeadSpec('classify', 2, features)
    encoder, x_BLD = params(config)['encoder'], np.zeros((1, 1, config.width), np.float32)
    states = np.broadcast_to(x_BLD, (config.layers + 1, *x_BLD.shape)) if features else x_BLD
    head = heads.TaskHead(config, spec).init(jax.random.key(0), states)['params']

    def logits(tokens, length):
        batch = {name: np.zeros((1, length), np.int32) for name in ('tokens', 'segment_ids', 'type_ids')}
        batch['tokens'][0, : len(tokens)], batch['segment_ids'][0, : len(tokens)] = tokens, 1
        return heads.logits(config, spec, encoder, head, batch | {'positions': np.arange(length)[None]})

    np.testing.assert_allclose(logits([0, 7, 8, 1], 4), logits([0, 7, 8, 1], 6), rtol=2e-5)
    for other in ([0, 7, 9, 1], [0, 7, 8, 2]):  # a [CLS] that sees nothing behind it would not tell
        assert not np.allclose(logits([0, 7, 8, 1], 4), logits(other, 4), rtol=2e-4, atol=0)


def test_several_tasks_share_an_encoder_in_the_given_shares(source, tasks, tmp_path):
    config = settings(source, tasks, 'classify', 'tag', 'qa', train__steps=40)
    config.mix.shares = (50, 30, 20)
    [p] = run(config, tmp_path)
    assert {v['task'] for v in p.folder.result['values']} == {'classify', 'tag', 'qa'}
    drawn = [name for _, (name, _) in zip(range(2000), p.job.batches(), strict=False)]
    shares = [drawn.count(name) / 2000 for name in ('classify', 'tag', 'qa')]
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)


def test_a_run_that_says_one_thing_only_is_reported(source, tasks, tmp_path):
    config = settings(source, tasks, 'classify', optimizer__learning_rate=1e-9, train__steps=1)
    [p] = run(config, tmp_path)
    assert p.folder.result['collapsed'] == ['classify']


def test_a_killed_run_starts_over(source, tasks, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, 'bertx')
    config = settings(source, tasks, 'classify', buckets=(12,), train__save_weights=False)
    [whole] = run(config, tmp_path / 'a')
    config.train.save_weights = True
    [p] = downstream.plan(config, [{'arm': 'run'}], epath.Path(tmp_path / 'b'))

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunFolder, 'finish', killed)  # the weights are written, the result is not
    with pytest.raises(KeyboardInterrupt):
        downstream.run_all([p], lambda *_: silent())
    monkeypatch.undo()
    weights = lambda: finetune.checkpoint.Trained(p.folder.checkpoints).params()['encoder']
    old = weights()
    p.folder.checkpoints.rmtree()
    finetune.checkpoint.write_parameters(p.folder.checkpoints, jax.tree.map(np.zeros_like, {'encoder': old}), {})
    run(config, tmp_path / 'b')
    jax.tree.map(np.testing.assert_array_equal, weights(), old)
    assert p.folder.metrics() == whole.folder.metrics()
    assert p.folder.result['values'] == whole.folder.result['values']
    assert p.folder.result['tokens'] == p.folder.metrics()[-1]['tokens'] < p.job.steps * 8 * 20  # of short batches
    assert 'without its weights' not in caplog.text
    run(config, tmp_path / 'a')
    assert 'is done, without its weights: delete its folder to train it again' in caplog.text


COMMAND = """
from configs.finetune import base
def get_config():
    config = base.get_config(topic={task})
    config.update(length=20, buckets=())
    config.train.update(batch=8, epochs=1)
    return config
sweep = lambda: [{{'arm': str(rate), 'optimizer.learning_rate': rate}} for rate in {rates}]
"""


def test_the_command(source, tasks, tmp_path):
    """Of a task without a test split, as GLUE's are: its figures are of dev, and the table says so."""
    untested = tasks['classify'] | {'test': '', 'metric': 'matthews'}
    (tmp_path / 'config.py').write_text(COMMAND.format(task=untested, rates=(1e-3, 1e-4)))
    words = [sys.executable, '-m', 'experiments.finetune', f'--config={tmp_path}/config.py']
    words += [f'--workdir={tmp_path}/work', f'--init_from={source}']
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'topic train: 48 examples' in done.stderr
    text = (tmp_path / 'work' / 'table.md').read_text()
    assert '- matthews on the validation split' in text and 'topic dev finetuned: matthews' in text
    assert '- dev: on the validation split' in text
    assert 'majority' in text and 'failed: 0 stopped' in text


@pytest.mark.parametrize(
    ('file', 'message'),
    [('config.py', r'sweep\(\) fails with ZeroDivisionError'), ('base.py', 'names no tasks; configs/finetune/base.py')],
)
def test_a_config_that_will_not_do_is_one_line(tasks, tmp_path, monkeypatch, file, message):
    (tmp_path / 'config.py').write_text(COMMAND.format(task=tasks['classify'], rates='[1 / 0]'))
    path = str(tmp_path / file if file == 'config.py' else ROOT / 'configs' / file)
    config = SimpleNamespace(value=runpy.run_path(path)['get_config']())
    for name, value in {'CONFIG': config, 'config_file': lambda: path, 'workdir': lambda: str(tmp_path)}.items():
        monkeypatch.setattr(command.cli, name, value)
    with pytest.raises(BadInput, match=message):
        command.main()


def test_early_stopping_keeps_the_best(source, tasks, tmp_path):
    config = settings(source, tasks, 'classify', train__steps=60, train__evaluate_every=2, train__patience=3)
    [p] = run(config, tmp_path)
    dev = [(line['step'], line['classify/accuracy']) for line in p.folder.metrics() if line['split'] == 'validation']
    assert len(dev) < 30
    best = max(dev, key=lambda x: (x[1], -x[0]))
    assert (p.folder.result['step'], p.folder.result['dev']) == best and dev[-1][0] == best[0] + 6
    keep_last = settings(source, tasks, 'classify', train__keep='last', train__steps=12, train__evaluate_every=2)
    [last] = run(keep_last, tmp_path)
    dev = [line['classify/accuracy'] for line in last.folder.metrics() if line['split'] == 'validation']
    assert (last.folder.result['step'], last.folder.result['dev']) == (12, dev[-1])


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'features': 'lst'}, "config.features 'lst'"),
        ({'train__keep': 'worst'}, 'config.train.keep'),
        ({'train__reinit_layers': 9}, 'config.train.reinit_layers is 9'),
        ({'train__examples': 99}, 'config.train.examples is 99'),
        ({'train__batch': 0}, 'config.train.batch is 0'),
        ({'optimizer__layer_rule': 'x'}, 'config.optimizer.layer_rule'),
        ({'optimizer__layer_decay': 0.0}, 'config.optimizer.layer_decay is 0'),
        ({'length': 64}, 'exceeds config.encoder.max_positions'),
        ({'buckets': (2,)}, 'config.buckets begins with 2'),
        ({'use': ('clasify',)}, "did you mean 'classify'"),
        ({'init_from': ''}, 'config.init_from is empty'),
        ({'mix__shares': (1, 2)}, 'config.mix.shares'),
    ],
)
def test_bad_settings_are_one_line_that_names_the_key(source, tasks, change, message):
    with pytest.raises(BadInput, match=message) as error:
        jobs.prepare(settings(source, tasks, 'classify', **change))
    assert '\n' not in str(error.value)
