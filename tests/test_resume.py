"""Losing the machine, or a part of what it has written, costs no number."""

import contextlib
import json
import os
import signal
from unittest import mock

import numpy as np
import pytest

from bertx import results
from bertx.checkpoint import Checkpoints, Damaged, Trained
from bertx.preemption import Stopped, asked_to_stop
from bertx.sweep import arm
from bertx.watch import Spikes
from tests.test_sweep import Killed, killer, run, small

MLM = arm('mlm', objectives={'mlm': {}})


@pytest.fixture(scope='module')
def undisturbed(store, tmp_path_factory):
    ([planned], _) = run(small(store), MLM, tmp_path_factory.mktemp('undisturbed'))
    return (planned.folder.path / 'metrics.jsonl').read_text()


@contextlib.contextmanager
def terminated(*_):
    """The machine's notice comes while step 7 runs."""

    def advance(step, _):
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    yield advance


def test_sigterm_leaves_a_checkpoint_at_the_next_step(store, undisturbed, tmp_path):
    handler = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped):
        run(small(store), MLM, tmp_path, terminated)
    assert signal.getsignal(signal.SIGTERM) is handler
    (folder,) = (tmp_path / 'runs').iterdir()
    assert Trained(folder / 'checkpoints').step == 8
    assert not (folder / 'result.json').exists()
    ([planned], failed) = run(small(store), MLM, tmp_path)
    assert not failed
    assert (planned.folder.path / 'metrics.jsonl').read_text() == undisturbed


def test_sigterm_is_not_forgotten_for_an_error_or_at_the_end():
    with pytest.raises(Stopped) as found, asked_to_stop() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked(1)
        raise OSError('the disk is full')
    assert isinstance(found.value.__cause__, OSError)
    with pytest.raises(Stopped), asked_to_stop():
        os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(OSError, match='full'), asked_to_stop():
        raise OSError('full')


def arrays(folder):
    """The files with the arrays' bytes: a few, and which of them is referred to where is up to the storage."""
    return [path for path in folder.rglob('d/*') if path.is_file()]


def flip(path):
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 101):  # a file may have places that nothing refers to any more
        content[at] ^= 4
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize('damage', [flip, cut, os.remove])
def test_a_damaged_checkpoint_is_reported_and_the_one_before_used(store, undisturbed, tmp_path, caplog, damage):
    with pytest.raises(Killed):
        run(small(store), MLM, tmp_path, killer(10))
    (folder,) = (tmp_path / 'runs').iterdir()
    assert sorted(path.name for path in (folder / 'checkpoints').iterdir() if path.is_dir()) == ['4', '8']
    for path in arrays(folder / 'checkpoints' / '8' / 'state'):
        damage(path)
    with caplog.at_level('INFO', 'bertx'):
        ([planned], failed) = run(small(store), MLM, tmp_path)
    assert not failed
    assert 'checkpoint 8 of' in caplog.text
    assert 'resumed at step 4' in caplog.text
    assert (planned.folder.path / 'metrics.jsonl').read_text() == undisturbed


def test_with_no_whole_checkpoint_left_nothing_is_deleted(tmp_path):
    state = {'params': np.arange(1000, dtype=np.float32)}
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state, {})
    checkpoints.close()
    for path in arrays(tmp_path / '1' / 'state'):
        flip(path)
    with pytest.raises(RuntimeError, match='delete it, and the run starts over'):
        Checkpoints(tmp_path).restore(state)
    assert (tmp_path / '1').exists()
    with pytest.raises((Damaged, ValueError)):  # what orbax itself sees is a ValueError
        Trained(tmp_path).params()


@pytest.mark.parametrize('error', [OSError(5, 'EIO'), MemoryError(), ValueError('UNAVAILABLE: 503')])
def test_storage_that_does_not_answer_condemns_no_checkpoint(tmp_path, monkeypatch, error):
    state = {'params': np.arange(10, dtype=np.float32)}
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state, {})
    checkpoints.close()
    monkeypatch.setattr(Checkpoints, '_restore', mock.Mock(side_effect=error))
    with pytest.raises(type(error)):
        Checkpoints(tmp_path).restore(state)
    assert (tmp_path / '2').exists()


def test_too_many_bad_steps_end_the_run_with_advice(store, tmp_path, caplog):
    config = small(store)
    config.optimizer.learning_rate = 1e30
    with caplog.at_level('WARNING', 'bertx'):
        ([planned], failed) = run(config, MLM, tmp_path)
    assert 'config.train.max_skipped' in failed[planned.id]
    assert 'skipped' in caplog.text
    lines = [json.loads(line) for line in (planned.folder.path / 'metrics.jsonl').read_text().splitlines()]
    assert lines[-1]['optimizer/skipped'] > 0
    assert all('loss' not in line for line in lines if line.get('optimizer/skipped') == 1)


def test_files_of_a_bucket_are_written_anew(monkeypatch):
    written = {}
    monkeypatch.setattr(results, 'write_atomically', lambda path, text: written.update({path: text}))
    file = mock.Mock(__str__=lambda _: 'gs://bucket/metrics.jsonl', exists=lambda: bool(written))
    file.read_text = lambda: written[file]
    results._append(file, 'a\n')
    results._append(file, 'b\n')
    assert written == {file: 'a\nb\n'} and not file.open.called


def test_spikes_are_told_from_noise():
    rng = np.random.default_rng(0)
    calm = list(3.0 + 0.02 * rng.normal(size=20))
    assert not any(Spikes(calm[:n])(9.0) for n in range(19))  # too few to know
    assert not Spikes(calm)(3.1)
    assert Spikes(calm)(3.5)
