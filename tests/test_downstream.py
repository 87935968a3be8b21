"""Fine-tuning that hangs off a sweep: its column in the table, its statistics, its cache."""

import contextlib
import csv
import json
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from etils import epath

from bertx import results, sweep
from bertx.errors import BadInput
from bertx.evaluate import Measurement
from bertx.report import tables
from bertx.results import RunFolder
from bertx.scheduling import engine
from bertx.sweep import arm, chain, prod, seeds
from bertx.tasks import downstream
from configs import base
from configs.finetune import base as finetune
from experiments import report
from experiments import sweep as command

SWEEP = """
from bertx.sweep import arm, chain, prod, seeds
arms = chain(arm('none', objectives={'mlm': {}}), arm('nsp', objectives={'mlm': {}, 'nsp': {}}))
sweep = lambda: prod(arms, seeds(2))
"""


@contextlib.contextmanager
def silent(*_):
    yield lambda *_: None


def small(store):
    config = base.get_config('tiny')
    config.data.store = str(store.path)
    config.rows.length = 32
    config.encoder.update(layers=1, width=16, heads=2, max_positions=32)
    config.train.update(batch=8, steps=2, log_every=2, validate_every=2, checkpoint_every=2, devices=1)
    config.evaluation.update(batch=16, validation_rows=16, test_rows=24, tasks=('mlm',))
    config.evaluation.refit.tasks = ()
    return config


def grid(folder):
    """Texts of two topics."""
    for split, n in (('train', 40), ('dev', 20), ('test', 30)):
        lines = [f'The w{i % 7} of w{i} is w{i % 2 + 50}.\tt{i % 2}' for i in range(n)]
        (folder / f'{split}.tsv').write_text('\n'.join(['text\tlabel', *lines]) + '\n')
    at = [str(folder / f'{split}.tsv') for split in ('train', 'dev', 'test')]
    (folder / 'hidden.tsv').write_text('text\tlabel\nThe w1 of w2 is w3.\t\n')  # as GLUE's test labels are
    columns = {'text': 'text', 'label': 'label'}
    topic = finetune.task('classify', *at, columns)
    hidden = finetune.task('classify', *at[:2], str(folder / 'hidden.tsv'), columns)
    config = finetune.get_config(topic=topic, again=topic, hidden=hidden)
    config.update(length=16, buckets=())
    config.train.update(batch=8, steps=6, dropout=0.0, attention_dropout=0.0, save_weights=False)
    rates = [{'optimizer.learning_rate': rate} for rate in (1e-3, 1e-2)]
    few = prod([{'use': ('topic',), 'train.examples': 16}], seeds(1))
    one = prod([{'use': ('hidden',)}], seeds(1))
    return config, chain(few, one, prod([{'use': ('topic',)}], rates, seeds(2)))


@pytest.fixture(scope='module')
def swept(store, tmp_path_factory):
    """Four pretrained runs, each with six fine-tuned ones."""
    workdir = tmp_path_factory.mktemp('swept')
    arms = chain(arm('none', objectives={'mlm': {}}), arm('nsp', objectives={'mlm': {}, 'nsp': {}}))
    planned = sweep.plan(small(store), prod(arms, seeds(2)), epath.Path(workdir))
    assert not engine.Engine(silent)(planned)
    config, points = grid(workdir)
    for p in planned:
        assert not downstream.attach(p.folder, config, points, silent)
    return planned, config, points


def test_the_table_has_a_column_for_each_task_and_size(swept):
    planned, *_ = swept
    table = tables.make([p.folder for p in planned])
    dev = ('hidden', 'dev finetuned')
    assert table.columns[-3:] == [('topic n=16', 'finetuned'), ('topic', 'finetuned'), dev]
    assert table.cells['nsp', dev].score.examples == 20 and table.references[dev][1].value == 0.5
    cell = table.cells['nsp', ('topic', 'finetuned')]
    assert (cell.score.runs, cell.score.examples) == (2, 30)  # pretraining seeds: fine-tuning seeds are inside
    assert cell.difference and cell.difference.runs == 2
    assert table.references['topic', 'finetuned'][0] == 'majority'
    assert table.references['topic', 'finetuned'][1].value == 0.5
    text = table.markdown()
    assert 'topic finetuned' in text and 'fine-tuning seeds a run: 2; learning rate ' in text
    assert 'hidden dev finetuned: accuracy, fine-tuning seeds a run: 1' in text and '- dev: on the validation' in text
    assert 'say the same of every example, and are in the figures' in text


def test_seeds_are_averaged_and_the_rate_is_chosen_on_dev(swept):
    planned, *_ = swept
    folder = planned[0].folder
    runs = [RunFolder(path) for path in (folder.path / 'downstream').iterdir()]
    mine = [r for r in runs if r.read('config.json')['use'] == ['topic']]
    mine = [r for r in mine if r.read('config.json')['train']['examples'] == 0]
    by_rate: dict[float, list[RunFolder]] = {}
    for run in mine:
        by_rate.setdefault(run.read('config.json')['optimizer']['learning_rate'], []).append(run)
    assert {len(found) for found in by_rate.values()} == {2} and len(by_rate) == 2
    best = max(sorted(by_rate), key=lambda rate: np.mean([run.result['dev'] for run in by_rate[rate]]))
    sums = [run.predictions('topic', 'finetuned', 'test', 'accuracy')[0] for run in by_rate[best]]
    found, _ = folder.predictions('topic', 'finetuned', 'test', 'accuracy')
    np.testing.assert_array_equal(found, np.mean(sums, 0))
    wanted = ('topic', 'finetuned', 'test', 'accuracy')
    keys = ('task', 'head', 'split', 'metric')
    [value] = [v for v in folder.result['values'] if tuple(v[key] for key in keys) == wanted]
    assert value['learning_rate'] == best and value['value'] == pytest.approx(np.mean(sums))


def test_fine_tuning_seeds_are_nested_in_those_of_pretraining(swept):
    planned, config, points = swept
    by_seed = {p.run.config['seed']: downstream.plan_for(p.folder, config, points) for p in planned}
    found = {seed: {p.job.config['seed'] for p in jobs} for seed, jobs in by_seed.items()}
    assert found == {0: {0, 1}, 1: {1000, 1001}}
    folder = mock.Mock(path=planned[0].folder.path, result={'seed': 20240101})
    assert all(p.job.config['seed'] < 2**32 for p in downstream.plan_for(folder, config, points))


def test_another_tokenizer_is_compared_before_pretraining(swept, tmp_path):
    planned, config, points = swept
    encoders = {(p.store.tokenizer, p.run.encoder) for p in planned[:1]}
    config = config.copy_and_resolve_references()
    (tmp_path / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the']))
    for tokenizer, message in (('nope', 'no such file'), (str(tmp_path), 'in the pretraining')):
        config.tokenizer = tokenizer
        with pytest.raises(BadInput, match=message):
            downstream.check(config, points, encoders)


@pytest.fixture
def kept(swept):
    """The folder of a pretrained run, which comes out as it went in."""
    file = swept[0][1].folder.path / downstream.FILE
    text = file.read_text()
    yield swept[0][1].folder
    file.write_text(text)


def test_a_setting_that_lost_a_seed_is_not_chosen(swept, kept, monkeypatch):
    _, config, points = swept

    def made(job, folder, *_):
        rate, seed = job.config['optimizer']['learning_rate'], job.config['seed']
        if rate == 1e-2 and seed == 1001:
            raise ValueError('no luck')
        folder.start(job, job.tokenizer)
        about = {'arm': 'topic', 'seed': seed, 'step': 1, 'tokens': 1, 'flops': 1, 'wall_s': 1, 'collapsed': []}
        hits = Measurement('topic', 'finetuned', 'test', 'accuracy', np.ones(30), np.ones(30))
        folder.finish(about | {'dev': rate}, [hits])

    monkeypatch.setattr(downstream.finetune, 'run', made)
    config = config.copy_and_resolve_references()
    config.train.steps = 4
    rate_of = lambda some: {v['learning_rate'] for v in attached(kept, config, some)['values']}
    assert rate_of(points[-4:]) == {1e-3}
    assert rate_of(points[-2:]) == {1e-2}  # the only one: a seed is left


def attached(folder, config, points):
    downstream.attach(folder, config, points, silent)
    return json.loads((folder.path / downstream.FILE).read_text())


def test_an_encoder_that_will_not_do_is_refused_before_it_trains_and_else_noted(swept, kept):
    planned, config, points = swept
    config = config.copy_and_resolve_references()
    config.length = 64
    encoders = {(p.store.tokenizer, p.run.encoder) for p in planned}
    with pytest.raises(BadInput, match='exceeds config.encoder.max_positions 32'):
        downstream.check(config, points, encoders)
    summary = attached(kept, config, points)
    assert (summary['values'], summary['failed']) == ([], 1)
    text = tables.make([p.folder for p in planned[1:2]]).markdown()
    assert 'failed: 1 stopped' in text and 'exceeds config.encoder.max\\_positions 32' in text


def test_a_run_that_is_measured_on_nothing_has_a_table(tmp_path):
    folder = RunFolder(tmp_path / 'none-s0-0')  # of config.data.test=0
    folder.path.mkdir()
    folder.finish({'arm': 'none', 'seed': 0, 'step': 1, 'tokens': 1, 'flops': 1.0, 'wall_s': 1.0}, [])
    assert 'nothing was measured' in tables.make([folder]).markdown()


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'features': 'lst'}, 'config.features'),
        ({'optimizer.schedule': 'jion'}, 'config.optimizer.schedule'),
        ({'mix.shares': (1, 2, 3)}, 'config.mix.shares'),
    ],
)
def test_settings_are_checked_before_anything_trains(swept, change, message, caplog):
    planned, config, points = swept
    encoders = [(planned[0].store.tokenizer, planned[0].run.encoder)]
    caplog.set_level('INFO', 'bertx')
    downstream.check(config, points, encoders)
    assert caplog.text.count('topic test: 30 examples') == 1  # what is odd in the data is said there
    with pytest.raises(BadInput, match=message):
        downstream.check(config, [point | change for point in points], encoders)


def test_what_is_done_is_not_done_again(swept):
    planned, config, points = swept
    before = planned[0].folder.result
    never = lambda *_: (_ for _ in ()).throw(AssertionError('a finished run was started again'))
    assert not downstream.attach(planned[0].folder, config, points, never)
    assert planned[0].folder.result == before
    config = config.copy_and_resolve_references()
    config.train.steps = 7
    changed = downstream.plan_for(planned[0].folder, config, points)
    assert not any(p.folder.done for p in changed)


def test_the_command_makes_results_and_the_report(store, tmp_path, monkeypatch):
    config, points = grid(tmp_path)
    (tmp_path / 'grid.py').write_text(SWEEP)
    names = {'get_downstream': lambda: config, 'downstream': lambda: points[:2]}

    class File(command.ConfigFile):
        def __init__(self):
            super().__init__()
            arms = self.names['sweep']()[:3:2]
            self.names |= names | {'sweep': lambda: arms}

    monkeypatch.setattr(command, 'ConfigFile', File)
    monkeypatch.setattr(command.cli, 'config_file', lambda: str(tmp_path / 'grid.py'))
    monkeypatch.setattr(command.cli, 'CONFIG', SimpleNamespace(value=small(store)))
    monkeypatch.setattr(command.cli, 'workdir', lambda: str(tmp_path / 'work'))
    monkeypatch.setattr(command.cli, 'bar', silent)
    monkeypatch.setattr(report, '_page', lambda *_: None)
    assert command.main() == 0
    lines = list(csv.DictReader((tmp_path / 'work' / 'results.csv').open()))
    mine = [line for line in lines if line['head'] == 'finetuned' and line['split'] == 'test']
    assert {line['arm'] for line in mine} == {'none', 'nsp'} and {line['task'] for line in mine} == {'topic n=16'}
    assert 'hidden dev finetuned' in (tmp_path / 'work' / 'table.md').read_text()
    assert tuple(lines[0]) == results.COLUMNS
    bad = config.copy_and_resolve_references()
    bad.tasks.topic.columns.text = 'txt'
    names['get_downstream'] = lambda: bad
    with pytest.raises(BadInput, match="did you mean 'text'"):  # before anything is trained
        command.main()


def test_a_run_that_dies_is_recorded_and_counted(swept, kept, monkeypatch):
    planned, config, points = swept

    def dies(job, *_):
        if job.config['seed'] == 1001:
            raise ValueError('no luck')
        return made(job, *_)

    made = downstream.finetune.run
    monkeypatch.setattr(downstream.finetune, 'run', dies)
    config = config.copy_and_resolve_references()
    config.train.steps = 3
    summary = attached(kept, config, points[-2:])
    assert (summary['runs'], summary['failed']) == (2, 1)
    assert list(summary['reasons'].values()) == ['ValueError: no luck']
    runs = [p.folder for p in downstream.plan_for(kept, config, points[-2:])]
    assert 'failed: 1 stopped' in tables.make(runs).markdown()  # as experiments.finetune has them
