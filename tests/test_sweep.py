"""Runs and sweeps on a small store: exact resume, one compilation for a graph, failures that stay alone."""

import contextlib
import dataclasses
import functools
import json
import linecache
import subprocess
import sys

import as_users
import jax
import numpy as np
import pytest
import sweep_cost
from etils import epath

from bertx import checkpoint, parallel, sweep, train
from bertx.errors import BadInput
from bertx.scheduling import engine
from bertx.sweep import arm, chain, overlay, prod, seeds, zip_
from configs import base

ARMS = chain(
    arm('none', objectives={'mlm': {}}),
    arm('nsp', objectives={'mlm': {}, 'nsp': {}}),
    arm('sop', objectives={'mlm': {}, 'sop': {}}),
)


def small(store):
    config = base.get_config('tiny')
    config.data.store = str(store.path)
    config.rows.length = 32
    config.encoder.update(layers=1, width=16, heads=2, max_positions=32)
    config.train.update(batch=8, steps=12, log_every=3, validate_every=6, checkpoint_every=4, max_skipped=2, devices=1)
    config.evaluation.update(batch=16, validation_rows=16, test_rows=24)
    config.evaluation.refit.update(rows=32, steps=5, batch=8)
    return config


@contextlib.contextmanager
def silent(*_):
    yield lambda *_: None


class Killed(BaseException):
    """Stands for a kill: nothing catches it."""


def killer(at: int):
    @contextlib.contextmanager
    def progress(*_):
        def advance(step, _):
            if step == at:
                raise Killed

        yield advance

    return progress


def run(config, points, workdir, progress=silent):
    planned = sweep.plan(config, points, epath.Path(workdir))
    return planned, engine.Engine(progress)(planned)


@pytest.mark.parametrize('dropout', [0.0, 0.2])
def test_a_killed_run_goes_on_bit_for_bit(store, tmp_path, dropout):
    config = small(store)
    config.train.update(dropout=dropout, attention_dropout=dropout)
    points = arm('nsp', objectives={'mlm': {}, 'nsp': {}})
    ([whole], _) = run(config, points, tmp_path / 'whole')
    for at in (6, 11):  # between two checkpoints, and once more
        with pytest.raises(Killed):
            run(config, points, tmp_path / 'killed', killer(at))
    ([killed], _) = run(config, points, tmp_path / 'killed')
    texts = [(p.folder.path / 'metrics.jsonl').read_text() for p in (whole, killed)]
    assert texts[0] == texts[1]
    assert [json.loads(line)['step'] for line in texts[0].splitlines()] == [3, 6, 6, 9, 12, 12]
    a, b = (values(p) for p in (whole, killed))
    assert a == b
    mesh = parallel.data_mesh(1)
    states = []
    for p in (whole, killed):
        rows = train.Rows(p.store, 'train', p.run.rows, p.run.seed)
        like = train.start(p.run, rows, train.vocabulary(p.store), mesh)
        step, state = checkpoint.Checkpoints(p.folder.checkpoints).restore(like)
        assert step == 12
        states.append(state)
    jax.tree.map(np.testing.assert_array_equal, *states)
    assert int(states[0].step) == 12


def values(planned):
    return {(v['task'], v['head'], v['metric']): v['value'] for v in planned.folder.result['values']}


def test_a_sweep_compiles_each_graph_once_and_skips_what_is_done(store, tmp_path):
    config, before = small(store), train.compilations()
    rates = [{'optimizer.learning_rate': rate, 'optimizer.warmup': 3.0} for rate in (1e-3, 2e-3)]
    config.train.update(batch=16, steps=6, checkpoint_every=6)  # another shape than the other tests'
    planned, failed = run(config, prod(ARMS, rates, seeds(2)), tmp_path)
    assert not failed
    assert len(planned) == 12
    assert train.compilations() - before == 3
    results = {p.id: p.folder.path.joinpath('result.json').stat() for p in planned}

    def never(*_):
        raise AssertionError('a finished run was started again')

    again, _ = run(config, prod(ARMS, rates, seeds(2)), tmp_path, never)
    assert {p.id: p.folder.path.joinpath('result.json').stat() for p in again} == results
    found = values(planned[0])
    assert {key[:2] for key in found} == {('mlm', 'own'), ('mlm', 'unigram'), ('nsp', 'refit'), ('sop', 'refit')}
    assert ('nsp', 'own', 'accuracy') in values(planned[4])
    by_arm = [p for p in planned if p.run.seed == 0 and p.run.config['optimizer']['learning_rate'] == 1e-3]
    unigram = {values(p)[('mlm', 'unigram', 'accuracy')] for p in by_arm}
    assert len(unigram) == 1


def test_arms_of_one_seed_read_the_same_chunks(store, tmp_path):
    planned = sweep.plan(small(store), prod(ARMS, seeds(2)), epath.Path(tmp_path))
    order = {}
    for p in planned:
        index = train.Rows(p.store, 'train', p.run.rows, p.run.seed).plan(0).index
        order.setdefault(p.run.seed, []).append(index)
    for same in order.values():
        n = min(map(len, same))
        for other in same[1:]:
            np.testing.assert_array_equal(same[0][:n], other[:n])
    assert (order[0][0][:20] != order[1][0][:20]).any()


def test_a_failing_run_is_named_and_stops_nobody(store, tmp_path):
    config = small(store)
    points = [{'arm': 'wild', 'encoder.std': 1e20}, {'arm': 'tame'}]
    planned, failed = run(config, points, tmp_path)
    wild, tame = planned
    assert list(failed) == [wild.id]
    assert 'learning_rate' in failed[wild.id]
    assert wild.folder.result['status'] == 'failed'
    assert wild.folder.result['step'] == 3  # where the first log line showed it
    assert wild.folder.result['tokens'] == 3 * 8 * 32
    assert tame.folder.done
    again, failed = run(config, points, tmp_path)  # a failed run is tried again, a finished one is not
    assert list(failed) == [wild.id]
    starts = [json.loads((p.folder.path / 'provenance.json').read_text()).get('resumed', []) for p in planned]
    assert list(map(len, starts)) == [1, 0]


def test_algebra():
    a, b = [{'x': 1}, {'x': 2}], [{'y': 3}, {'y': 4}]
    assert prod(a, b) == [{'x': 1, 'y': 3}, {'x': 1, 'y': 4}, {'x': 2, 'y': 3}, {'x': 2, 'y': 4}]
    assert zip_(a, b) == [{'x': 1, 'y': 3}, {'x': 2, 'y': 4}]
    assert chain(a, b) == a + b
    assert seeds(2) == [{'seed': 0}, {'seed': 1}]
    with pytest.raises(BadInput, match='sets x twice'):
        prod(a, a)
    with pytest.raises(BadInput, match='twice'):
        prod([{'objectives.mlm': {}}], arm('none', objectives={'mlm': {}}))


@pytest.mark.parametrize(
    ('point', 'message'),
    [
        ({'optimizer.learning_rat': 1.0}, "did you mean 'optimizer.learning_rate'"),
        ({'optimiser.learning_rate': 1.0}, "did you mean 'optimizer.learning_rate'"),
        ({'seeed': 1}, "did you mean 'seed'"),
        ({'train.batch': 'many'}, 'config.train.batch'),
        ({'optimizer': {'wramup': 3.0}}, "did you mean 'optimizer.warmup'"),
        ({'objectives': 'mlm'}, 'a dict would do'),
        ({'arm': 'none', 'objectives.nsp.weight': 0.5}, "sets objectives.nsp.weight for 'none', which has no nsp"),
    ],
)
def test_overlays_are_strict(point, message):
    with pytest.raises(BadInput, match=message):
        overlay(base.get_config(), point)


def test_a_section_in_a_point_changes_only_what_it_names():
    config = overlay(base.get_config(), {'optimizer': {'warmup': 3.0}})
    assert config.optimizer.warmup == 3.0
    assert config.optimizer.b1 == base.get_config().optimizer.b1


def test_arms_and_an_argument_of_their_objective(store, tmp_path):
    rates = [{'objectives.mlm.select.rate': rate} for rate in (0.15, 0.4)]
    planned = sweep.plan(small(store), prod(arm('none', objectives={'mlm': {}}), rates), epath.Path(tmp_path))
    assert [float(p.run.objectives['mlm'].select.rate) for p in planned] == [np.float32(0.15), np.float32(0.4)]


def test_the_hash_follows_the_numbers_and_nothing_else(store, tmp_path):
    def hash_of(point):
        [p] = sweep.plan(small(store), [point], epath.Path(tmp_path))
        return p.run.hash

    plain = hash_of({})
    for same in ({'encoder.unroll': 1}, {'train.log_every': 5}, {'train.checkpoint_every': 7}):
        assert hash_of(same) == plain, same
    for other in ({'seed': 1}, {'optimizer.b2': 0.98}, {'rows.length': 24}, {'objectives': {'nsp': {}}}):
        assert hash_of(other) != plain, other
    [p] = sweep.plan(small(store), [{}], epath.Path(tmp_path))
    assert dataclasses.replace(p.run, fingerprint='other').hash != plain


def test_a_judge_from_outside_is_part_of_the_hash(store, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    config, found = small(store), []
    config.evaluation.tasks, config.evaluation.refit.tasks = ('mlm', 'judge:rare'), ()
    (tmp_path / 'judge').mkdir()
    for text in ('', '# other'):
        (tmp_path / 'judge' / 'rare.py').write_text(
            'from flax import struct\nfrom bertx.objectives.mlm import MLM\n\n'
            f'@struct.dataclass\nclass Rare(MLM):\n    pass {text}\n'
        )
        linecache.clearcache()
        [p] = sweep.plan(config, [{}], epath.Path(tmp_path))
        found.append(p.run.hash)
    assert found[0] != found[1]


def test_a_workdir_of_another_sweep_is_refused(tmp_path):
    config = base.get_config()
    sweep.check_workdir(epath.Path(tmp_path), 'mine', config)
    sweep.record(epath.Path(tmp_path), 'mine', config, [])
    sweep.check_workdir(epath.Path(tmp_path), 'mine', config)
    config.encoder.remat = True  # what a log line advises may be followed
    sweep.check_workdir(epath.Path(tmp_path), 'mine', config)
    config.train.steps += 1
    for refused in (sweep.check_workdir, functools.partial(sweep.record, planned=[])):
        with pytest.raises(BadInput, match=r'config.train.steps is 1000, this one has 1001'):
            refused(epath.Path(tmp_path), 'mine', config)


@pytest.mark.parametrize(
    ('point', 'message'),
    [
        ({'train.batch': 0}, 'config.train.batch is 0'),
        ({'rows.length': 4}, 'config.rows.length is 4'),
        ({'rows.length': 64}, 'exceeds config.encoder.max_positions 32'),
        ({'rows.format': 'sentence'}, 'config.rows.format'),
        ({'encoder.size': 'huge'}, "config.encoder.size 'huge'"),
        ({'encoder.heads': 3}, 'no multiple of heads 3'),
        ({'encoder.attention': 'flash'}, 'config.encoder.attention'),
        ({'optimizer.schedule': 'cosine'}, 'config.optimizer.schedule'),
        ({'optimizer.warmup': 13.0}, 'config.optimizer.warmup'),
        ({'optimizer.b2': 1.0}, 'config.optimizer.b2'),
        ({'train.dropout': 1.0}, 'config.train.dropout'),
        ({'train.micro_batches': 3}, 'multiple of 3'),
        ({'train.devices': 99}, 'config.train.devices is 99'),
        ({'evaluation.tasks': ('mlm', 'nspp')}, "did you mean 'nsp'"),
        ({'evaluation.refit.tasks': ('nsp', 'random_token')}, r'refit.tasks names random_token, .* \(mlm, nsp, sop\)'),
        ({'evaluation.test_rows': 0}, 'config.evaluation.test_rows'),
        ({'evaluation.refit.rows': 1}, 'config.evaluation.refit.rows'),
        ({'optimizer.clip': -1.0}, 'config.optimizer.clip is -1'),
        ({'optimizer.warmup': float('nan')}, 'config.optimizer.warmup is nan'),
        ({'evaluation.refit.learning_rate': -1.0}, 'config.evaluation.refit'),
        ({'seed': 2**32}, 'config.seed is 4294967296'),
        ({'encoder.layers': -1}, 'config.encoder.layers is -1'),
        ({'arm': '../up'}, 'without /'),
        ({'arm': 0.15}, 'arm 0.15: a name of'),
        ({'objectives': {'mlm': {'weight': -1.0}}}, 'config.objectives.mlm.weight is -1'),
        ({'objectives': {'mlm': {'weight': 'x'}}}, "config.objectives.mlm.weight is 'x'"),
        ({'objectives': {'mlm': {'select': {'rate': 'x'}}}}, "config.objectives.mlm.select.rate is 'x'"),
        ({'objectives': {'base': {}}}, "objective 'base' is unknown"),
        ({'seed': -1}, 'config.seed'),
        ({'rows.dupe_factor': 0}, 'config.rows.dupe_factor'),
        ({'objectives': {'mlm': 0.3}}, 'dict'),
        ({'objectives': {'mlm': {'k': -3}}}, 'k is -3'),
        ({'objectives': {'nsp': {}, 'mlm': {'variant': 'original'}}}, 'mixes'),
    ],
)
def test_bad_config_is_one_line_that_names_the_key(store, tmp_path, point, message):
    config = small(store)
    if 'train.devices' in point:
        config.train.devices, point = point['train.devices'], {}
    with pytest.raises(BadInput, match=message) as error:
        sweep.plan(config, [point], epath.Path(tmp_path))
    assert '\n' not in str(error.value)


def test_a_tokenizer_that_differs_from_the_stores_is_refused(store, tmp_path):
    config = small(store)
    (tmp_path / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the']))
    config.data.tokenizer = str(tmp_path / 'vocab.txt')
    with pytest.raises(BadInput, match='tokenizer'):
        sweep.plan(config, [{}], epath.Path(tmp_path))
    config.data.tokenizer = str(store.path)
    assert sweep.plan(config, [{}], epath.Path(tmp_path))


def test_arms_of_different_formats_are_judged_on_the_same_rows(store, tmp_path):
    config = small(store)
    config.evaluation.update(format='segment_pair', packing=1)
    arms = chain(
        arm('pairs', objectives={'mlm': {}}),
        arm('documents', objectives={'mlm': {}}, set={'rows.format': 'doc_sentences', 'rows.packing': 3}),
    )
    planned, failed = run(config, arms, tmp_path)
    assert not failed
    read = [p.folder.predictions('mlm', 'unigram', 'test', 'accuracy') for p in planned]
    np.testing.assert_array_equal(read[0], read[1])
    assert [p.run.rows.format for p in planned] == ['segment_pair', 'doc_sentences']


def test_units_without_their_source_are_refused(store, tmp_path):
    with pytest.raises(BadInput, match='config.rows.units'):
        run(small(store), arm('units', objectives={'mlm': {'select': {'name': 'units'}}}), tmp_path)


def test_a_full_disk_does_not_stop_the_other_runs(store, tmp_path, monkeypatch):
    config, done = small(store), []

    def full(p, *_):
        if p.id.startswith('none'):
            raise OSError(28, 'No space left on device')
        done.append(p.id)

    def no_room(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr(engine, 'run_one', full)
    monkeypatch.setattr(sweep.RunFolder, 'fail', no_room)
    planned, failed = run(config, ARMS, tmp_path)
    assert list(failed) == [planned[0].id]
    assert done == [p.id for p in planned[1:]]


def test_a_cut_result_is_named(store, tmp_path):
    [planned], _ = run(small(store), arm('none', objectives={'mlm': {}}), tmp_path)
    result = planned.folder.path / 'result.json'
    result.write_text(result.read_text()[:50])
    with pytest.raises(BadInput, match=r'result\.json is cut'):
        _ = planned.folder.done


def test_a_sweep_has_one_number_of_devices(store, tmp_path):
    with pytest.raises(BadInput, match='sets train.devices'):
        sweep.plan(small(store), [{'train.devices': 2}], epath.Path(tmp_path))


def test_an_own_pair_task_has_pairs_though_all_are_judged_on_other_rows(store, tmp_path):
    config = small(store)
    config.evaluation.update(tasks=('mlm',), format='full_sentences')
    config.evaluation.refit.tasks = ()
    config.train.update(steps=2, log_every=1, validate_every=2, checkpoint_every=2)
    ([planned], failed) = run(config, arm('both', objectives={'mlm': {}, 'nsp': {}}), tmp_path)
    assert not failed
    assert {('mlm', 'own'), ('nsp', 'own')} <= {(v['task'], v['head']) for v in planned.folder.result['values']}


@pytest.mark.slow
def test_sixteen_runs_cost_little_more_than_their_steps():
    """As compiled for real runs, so in a process of its own. Nine minutes on two cores that have nothing else to do."""
    command, clean = [sys.executable, sweep_cost.__file__], as_users.environment()
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
    print(done.stdout)
    assert '16 runs, 1 training steps compiled' in done.stdout
    assert float(done.stdout.split()[-1]) < 1.15
