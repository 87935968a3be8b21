"""Who does which run, how often, and what it dies of."""

import collections
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from unittest import mock

import numpy as np
import pytest
from etils import epath

from bertx import sweep, train
from bertx.budget import electra_flops
from bertx.errors import BadInput
from bertx.preemption import Stopped
from bertx.scheduling import engine, leases, outcomes
from bertx.sweep import arm, chain, prod, seeds, subsample, when, zip_
from bertx.watch import NotFinite
from experiments import dry_run
from tests.test_sweep import ARMS, silent, small, values

MLM = arm('mlm', objectives={'mlm': {}})


@pytest.fixture
def planned(store, tmp_path):
    return sweep.plan(small(store), prod(MLM, seeds(4)), epath.Path(tmp_path))


def finish(p, *_, **more):
    p.folder.path.mkdir(parents=True, exist_ok=True)
    p.folder.finish(outcomes.about(p, 1) | more, [])


def test_a_clock_that_is_ahead_takes_no_live_run(tmp_path, monkeypatch):
    with leases.lease(tmp_path):
        monkeypatch.setattr(leases, '_machine', lambda: {'host': 'another'})
        monkeypatch.setattr(time, 'time', lambda: 1e10)
        assert leases.take(tmp_path) is None


def test_a_full_disk_hides_no_holder(tmp_path, monkeypatch):
    with leases.lease(tmp_path):
        monkeypatch.setattr(leases, '_machine', lambda: {'host': 'another'})
        monkeypatch.setattr(leases.tempfile, 'NamedTemporaryFile', mock.Mock(side_effect=OSError(28, 'ENOSPC')))
        assert leases.held(tmp_path)


def test_a_run_has_one_holder(tmp_path):
    with leases.lease(tmp_path) as mine:
        assert mine is not None
        with leases.lease(tmp_path) as other:
            assert other is None
        assert leases.held(tmp_path)
    assert not leases.held(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_run_of_a_dead_process_is_taken_over(tmp_path):
    path = f'leases.pathlib.Path({str(tmp_path)!r})'
    code = f'from bertx.scheduling import leases; import os; leases.take({path}); os._exit(1)'
    subprocess.run([sys.executable, '-c', code], check=False)
    assert list(tmp_path.iterdir())
    dead: list[str] = []
    with leases.lease(tmp_path, dead) as mine:
        assert mine is not None
    assert json.loads(dead[0])['pid'] != os.getpid()


def test_a_process_of_another_container_is_not_looked_for_here(tmp_path, monkeypatch):
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    holder = leases._machine() | {'pid': gone.pid}
    (tmp_path / 'lease-1').write_text(json.dumps(holder | {'processes': 'pid:[1]'}))
    assert leases.take(tmp_path) is None
    (tmp_path / 'lease-1').write_text(json.dumps(holder))
    assert leases.take(tmp_path)


def test_a_holder_on_another_machine_lives_as_long_as_it_beats(tmp_path):
    file = tmp_path / 'lease-3'
    file.write_text(json.dumps({'host': 'elsewhere', 'pid': 1}))
    assert leases.take(tmp_path) is None
    old = time.time() - leases.STALE - 1
    os.utime(file, (old, old))
    late = leases.Lease(file)  # it comes back after all
    os.utime(file, (old, old))
    found = leases.take(tmp_path)
    assert found and found.file.name == 'lease-4'
    with pytest.raises(leases.Lost):
        late.check()
    late.release()
    assert leases.held(tmp_path)
    found.release()
    with pytest.raises(leases.Lost):  # nor once the other one is done
        late.check()


def test_what_has_failed_elsewhere_is_not_tried_again(planned, monkeypatch):
    begun = time.time()
    planned[0].folder.fail(outcomes.about(planned[0], 3) | {'ended': begun + 1}, 'no luck')
    monkeypatch.setattr(engine, 'run_one', lambda p, *_: finish(p))
    assert engine.Engine(silent, begun=begun)(planned) == {planned[0].id: 'no luck'}
    assert engine.Engine(silent, begun=begun + 2)(planned) == {}


def test_several_engines_do_each_run_once(planned, monkeypatch):
    done = collections.Counter()

    def slowly(p, *_):
        time.sleep(0.05)
        done[p.id] += 1
        finish(p)

    monkeypatch.setattr(engine, 'run_one', slowly)
    monkeypatch.setattr(engine, 'POLL', 0.02)
    threads = [threading.Thread(target=engine.Engine(silent), args=(planned,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == {p.id: 1 for p in planned}


@pytest.mark.parametrize(
    ('error', 'kind'),
    [
        (ValueError('?'), outcomes.FAILED),
        (NotFinite('nan'), outcomes.NOT_FINITE),
        (MemoryError(), outcomes.MEMORY),
        (RuntimeError('RESOURCE_EXHAUSTED: Out of memory allocating'), outcomes.MEMORY),
        (BadInput('the training step does not fit: 22 of 15 GiB'), outcomes.MEMORY),
    ],
)
def test_failures_are_told_apart_and_tried_again_by_limits_of_their_own(planned, monkeypatch, error, kind):
    tries = collections.Counter()

    def fail(p, *_):
        tries[p.id] += 1
        raise error

    monkeypatch.setattr(engine, 'run_one', fail)
    worker = engine.Engine(silent, {kind: 2})
    failed = worker(planned[:2])
    assert set(tries.values()) == {3}
    assert set(failed) == set(tries)
    result = planned[0].folder.result
    assert (result['status'], result['kind'], result['attempts']) == ('failed', kind, {kind: 3})
    assert len(planned[0].folder.attempts()) == 3


def test_a_failure_elsewhere_is_not_tried_again_by_an_engine_that_was_there(planned, monkeypatch):
    worker = engine.Engine(silent)
    time.sleep(0.2)
    planned[0].folder.fail(outcomes.about(planned[0], 0) | {'ended': worker.outcomes.begun + 0.1}, 'no luck')
    monkeypatch.setattr(engine, 'run_one', finish)
    assert worker(planned) == {planned[0].id: 'no luck'}
    assert not engine.Engine(silent)(planned)


def test_fail_fast_begins_no_other(planned, monkeypatch):
    def fail(p, *_):
        raise ValueError('?')

    monkeypatch.setattr(engine, 'run_one', fail)
    worker = engine.Engine(silent, fail_fast=True)
    with pytest.raises(outcomes.Ended):
        worker(planned)
    assert list(worker.outcomes.failed) == [planned[0].id]
    assert planned[1].folder.result is None
    other = engine.Engine(silent, fail_fast=True, begun=worker.outcomes.begun)  # which was there when it failed
    with pytest.raises(outcomes.Ended):
        other(planned)
    assert planned[1].folder.result is None


def test_fail_fast_looks_at_the_others_before_each_run(planned, monkeypatch):
    def meanwhile(p, *_):
        planned[0].folder.path.mkdir(parents=True, exist_ok=True)
        planned[0].folder.fail(outcomes.about(planned[0], 0) | {'ended': time.time()}, 'no luck')
        finish(p)

    monkeypatch.setattr(engine, 'run_one', meanwhile)
    worker = engine.Engine(silent, fail_fast=True)
    with pytest.raises(outcomes.Ended), leases.lease(planned[0].folder.path):  # another process is at the first
        worker(planned)
    assert planned[1].folder.done and planned[2].folder.result is None


def test_who_is_asked_to_stop_is_preempted():
    assert outcomes.kind_of(Stopped()) == outcomes.PREEMPTED != outcomes.kind_of(KeyboardInterrupt())


def test_what_others_have_tried_counts(planned, monkeypatch):
    def fail(p, *_):
        raise ValueError('?')

    monkeypatch.setattr(engine, 'run_one', fail)
    worker = engine.Engine(silent, {outcomes.FAILED: 1})
    planned[0].folder.path.mkdir(parents=True)
    engine.Engine(silent).outcomes.record(planned[0], outcomes.FAILED, '?')
    assert list(worker(planned[:1])) == [planned[0].id]
    assert len(planned[0].folder.attempts()) == 2


def test_a_person_may_interrupt_as_often_as_they_like(planned, monkeypatch):
    def interrupt(p, *_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, 'run_one', interrupt)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            engine.Engine(silent, {outcomes.PREEMPTED: 0})(planned)
    monkeypatch.setattr(engine, 'run_one', finish)
    assert not engine.Engine(silent, {outcomes.PREEMPTED: 0})(planned)


def test_a_run_whose_workers_die_again_and_again_is_given_up(planned, monkeypatch):
    monkeypatch.setattr(engine, 'run_one', finish)
    planned[0].folder.path.mkdir(parents=True)
    for _ in range(3):
        engine.Engine(silent).outcomes.record(planned[0], outcomes.PREEMPTED, 'gone')
    failed = engine.Engine(silent, {outcomes.PREEMPTED: 2})(planned)
    assert list(failed) == [planned[0].id]
    assert planned[0].folder.result['kind'] == outcomes.PREEMPTED


def test_runs_together_are_what_they_are_alone(store, tmp_path):
    config = small(store)
    config.train.devices = 0
    config.train.dropout = 0.1
    rates = [{'optimizer.learning_rate': rate} for rate in (1e-3, 1e30, 3e-3)]
    points = prod(arm('nsp', objectives={'mlm': {}, 'nsp': {}}), rates)
    alone, together = (sweep.plan(config, points, epath.Path(tmp_path) / name) for name in ('alone', 'together'))
    engine.Engine(silent)(alone)
    before = train.compilations()
    worker = engine.Engine(silent)
    worker.in_groups(together, 4)
    assert train.compilations() == before + 1
    assert list(worker.outcomes.failed) == [together[1].id]
    assert together[1].folder.result['kind'] == outcomes.NOT_FINITE
    assert len(together) == 3
    for one, other in zip(alone, together, strict=True):
        if one.folder.done:
            lines = [[line['loss'] for line in p.folder.metrics() if line['split'] == 'train'] for p in (one, other)]
            np.testing.assert_allclose(*lines, rtol=1e-4)
            np.testing.assert_allclose(list(values(one).values()), list(values(other).values()), atol=0.05)
            assert other.folder.checkpoints.exists()
    assert worker(together) == worker.outcomes.failed  # nothing is left to do


def test_conditions_and_samples():
    points = prod([{'arm': 'a'}, {'arm': 'b'}], seeds(2))
    found = when(points, {'arm': 'b'}, [{'x': 1}, {'x': 2}])
    assert [point.get('x') for point in found] == [None, None, 1, 2, 1, 2]
    assert when(points, lambda point: point['seed'] == 1, [{'x': 1}])[1] == {'arm': 'a', 'seed': 1, 'x': 1}
    drawn = subsample(found, 3, seed=1)
    assert drawn == [point for point in found if point in drawn] and len(drawn) == 3
    assert drawn == subsample(found, 3, seed=1)
    with pytest.raises(BadInput, match='7 of 6'):
        subsample(found, 7)


@pytest.mark.parametrize(
    ('kind', 'cost'),
    [
        ('tokens', lambda run: run.tokens_per_step),
        ('flops', lambda run: run.flops_per_step),
        ('electra_flops', electra_flops),
        ('seconds', lambda run: 0.5),
    ],
)
def test_arms_get_the_same_budget(store, tmp_path, kind, cost):
    config = small(store)
    one = sweep.plan(config, ARMS[:1], epath.Path(tmp_path))[0].run
    config.budget.update(of=kind, amount=10.5 * cost(one))
    arms = prod([*ARMS[:1], *arm('electra', objectives={'electra': {}})])
    for p in sweep.plan(config, arms, epath.Path(tmp_path), lambda *_: 0.5):
        spent = p.run.train['steps'] * cost(p.run)
        assert spent <= config.budget.amount < spent + cost(p.run)
    config.optimizer.warmup = 11.0  # steps, of those of the budget
    config.budget.amount = 20 * cost(one)
    assert sweep.plan(config, ARMS[:1], epath.Path(tmp_path), lambda *_: 0.5)[0].run.train['steps'] == 20
    config.budget.amount = 0.5 * cost(one)
    with pytest.raises(BadInput, match=r'config.budget.amount is'):
        sweep.plan(config, ARMS[:1], epath.Path(tmp_path), lambda *_: 0.5)


def test_a_generator_looks_up_too_as_electra_counts(store, tmp_path):
    arms = [*arm('mlm', objectives={'mlm': {}}), *arm('electra', objectives={'electra': {'width': 0.5}})]
    mlm, electra = (p.run for p in sweep.plan(small(store), prod(arms), epath.Path(tmp_path)))
    e, length = mlm.encoder, mlm.rows.length
    rows = e.vocab_size + e.max_positions + e.type_vocab
    one, two = (
        electra_flops(run) / 2 / run.train['batch']
        - length * e.flops_per_token(length)
        - sum(o.flops(e, length) for o in run.objectives.values())
        for run in (mlm, electra)
    )
    assert one == pytest.approx(2 * length * rows * e.width)
    assert two == pytest.approx(2 * one)  # tied tables have the encoder's width


def test_a_dry_run_lists_what_there_is_to_do(planned, monkeypatch):
    monkeypatch.setattr(dry_run, 'rate', lambda: 1e9)
    finish(planned[0], wall_s=120.0)
    table = dry_run.table(planned)
    assert list(table.columns[1].cells) == [''] * 5
    assert list(table.columns[2].cells) == ['done', 'new', 'new', 'new', '']
    assert list(table.columns[6].cells) == ['2.0', '2.0', '2.0', '2.0', '6.0']


def test_a_dry_run_tells_runs_of_an_arm_apart(store, tmp_path):
    rates = [{'optimizer.learning_rate': rate} for rate in (1e-3, 2e-3)]
    arms = chain(
        prod(MLM, rates, seeds(2)), prod(arm('wide', objectives={'mlm': {}}, set={'encoder.width': 32}), seeds(2))
    )
    arms += prod(
        arm('both', objectives={'mlm': {}}), zip_(rates, [{'optimizer.weight_decay': rate} for rate in (0.01, 0.1)])
    )
    found = dry_run.settings(sweep.plan(small(store), arms, epath.Path(tmp_path)))
    low, high = 'optimizer.learning_rate=0.001', 'optimizer.learning_rate=0.002'
    assert found[:6] == [low, low, high, high, '', '']
    assert [set(line.split(', ')) for line in found[6:]] == [
        {low, 'optimizer.weight_decay=0.01'}, {high, 'optimizer.weight_decay=0.1'},
    ]  # fmt: skip


def test_the_view_reads_the_folders(planned):
    from experiments.live import View

    shown = View(planned)
    finish(planned[0])
    planned[1].folder.fail(outcomes.about(planned[1], 0), 'no luck')
    with contextlib.ExitStack() as stack:
        stack.enter_context(leases.lease(planned[2].folder.path))
        planned[2].folder.append('metrics.jsonl', {'step': 3, 'split': 'train', 'loss': 1.5})
        planned[2].folder.append('timing.jsonl', {'step': 3, 'tokens_per_s': 256.0})
        text, table = shown.__rich__().renderables
        assert str(text) == '4 runs: 1 done, 1 running, 1 waiting, 1 failed'
        assert [list(column.cells)[0] for column in table.columns][1:] == ['3/12', '1.500', '256', '9 s']
