"""However devices and hosts share the work, and however they hold the state, a step is the same step."""

import functools
import json
import os
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest

from bertx import footprint, parallel, train
from bertx.checkpoint import Checkpoints
from bertx.encoder import count
from bertx.errors import BadInput
from bertx.text.pipeline import BatchSource
from tests.test_step import ADAM, HYPER, SGD, difference, setup, uneven

BATCH, STEPS = 16, 5
LAYOUTS = {'data': (1, 'jit'), 'fsdp': (4, 'jit'), 'all_fsdp': (8, 'jit'), 'pmap': (1, 'pmap')}  # fsdp, parallel
layouts = pytest.mark.parametrize('name', LAYOUTS)


@pytest.fixture(autouse=True)
def even_small_arrays_in_parts(monkeypatch):
    monkeypatch.setattr(parallel, 'SMALL', 1)


class Trainer:
    """A small run on devices."""

    def __init__(self, store, mesh, kind='jit', options=SGD):
        s = setup(store, ('mlm', 'sop'))
        self.mesh, self.rows = mesh, s.rows
        make, self.compiled = train.compiled(s.encoder, jax.tree.structure(s.objectives), options, 1, mesh, kind)
        self.objectives, self.rest = parallel.replicate(mesh, (s.objectives, (s.root, s.vocab)))
        self.start = lambda: make(s.objectives, HYPER, *self.rest, s.rows.batch(np.arange(mesh.size)))

    def arguments(self, step, rate):
        """All but the state."""
        source = BatchSource(self.rows, BATCH, STEPS, jax.process_index(), jax.process_count())
        hyper = parallel.replicate(self.mesh, HYPER | {'learning_rate': np.float32(rate)})
        return self.objectives, hyper, *self.rest, parallel.split_batch(self.mesh, uneven(source[step]))

    def steps(self, count, rate):
        """State, and the last step's terms."""
        state = self.start()
        for i in range(count):
            state, window = self.compiled(state, *self.arguments(i, rate))
        return state, window


def whole(mesh, tree):
    return jax.device_get(parallel.gathered(parallel.local(mesh), tree))


def five_steps(store, mesh, kind):
    """The first step's terms, the parameters minus its gradients, and the parameters after five steps."""
    trainer = Trainer(store, mesh, kind)
    first, window = trainer.steps(1, rate=1.0)
    last, _ = trainer.steps(STEPS, rate=0.1)
    return whole(mesh, window), whole(mesh, first.params), whole(mesh, last.params)


@pytest.fixture(scope='module')
def on_one_device(store):
    return five_steps(store, parallel.data_mesh(1), 'jit')


def check_same(found, expected):
    (window, first, last), (window_1, first_1, last_1) = found, expected
    for name, term in window.items():
        np.testing.assert_allclose(term.sum, window_1[name].sum, rtol=1e-6, err_msg=name)
        np.testing.assert_allclose(term.weight, window_1[name].weight, rtol=1e-6, err_msg=name)
    assert difference(first, first_1) < 1e-6
    assert difference(last, last_1) < 1e-6


@layouts
def test_eight_devices_equal_one(store, on_one_device, name):
    fsdp, kind = LAYOUTS[name]
    check_same(five_steps(store, parallel.data_mesh(8, fsdp), kind), on_one_device)


def environment(devices):
    return os.environ | {'JAX_NUM_CPU_DEVICES': str(devices)}


def together(command, devices=4, timeout=600):
    """Runs the command as processes 0 and 1, with words of its own for each: command(port, process)."""
    with socket.socket() as free:
        free.bind(('localhost', 0))
        port = free.getsockname()[1]
    start = functools.partial(
        subprocess.Popen, env=environment(devices), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    both = [start([sys.executable, *command(port, i)]) for i in (0, 1)]
    try:
        said = [process.communicate(timeout=timeout)[0] for process in both]
    finally:
        for process in both:
            process.kill()
    assert [process.returncode for process in both] == [0, 0], '\n'.join(said)
    return said


@pytest.mark.parametrize(
    'names', [('data', 'fsdp'), pytest.param(('all_fsdp', 'pmap'), marks=pytest.mark.slow)], ids='-'.join
)
def test_two_hosts_equal_one_device(store, on_one_device, tmp_path, names):
    together(lambda port, i: ['-m', 'tests.two_hosts', str(port), str(i), str(store.path), str(tmp_path), *names])
    structure = jax.tree.structure(on_one_device)
    for name in names:
        with np.load(tmp_path / f'{name}.npz') as arrays:
            check_same(jax.tree.unflatten(structure, list(arrays.values())), on_one_device)


def test_devices_send_gradients_and_nothing_else(store):
    trainer = Trainer(store, parallel.data_mesh(8))
    state = trainer.start()
    found = footprint.collectives(trainer.compiled.lower(state, *trainer.arguments(0, 0.1)).compile().as_text())
    assert set(found) == {'all-reduce'}
    assert 0 <= found['all-reduce'][1] - 4 * count(state.params) < 200  # those of the tied table once


@pytest.mark.parametrize('fsdp', [2, 8])
def test_fsdp_holds_a_part_on_each_device(store, fsdp):
    after, _ = Trainer(store, parallel.data_mesh(8, fsdp), options=ADAM).steps(1, rate=0.1)
    for held in (after.params, after.opt):
        whole, part = (sum(size(x) for x in jax.tree.leaves(held)) for size in (whole_bytes, part_bytes))
        assert whole / fsdp <= part < 1.05 * whole / fsdp


whole_bytes = lambda x: x.nbytes
part_bytes = lambda x: max(shard.data.nbytes for shard in x.addressable_shards)


@pytest.mark.parametrize('there_and_back', [(8, 1), (1, 8), (2, 4)])
def test_a_checkpoint_of_another_layout(store, tmp_path, there_and_back):
    saved, like = (Trainer(store, parallel.data_mesh(8, n), options=ADAM).start() for n in there_and_back)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(3, saved, {})
    checkpoints.close()
    step, found = Checkpoints(tmp_path).restore(like)
    assert step == 3
    jax.tree.map(np.testing.assert_array_equal, found, saved)
    assert all(a.sharding == b.sharding for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(like), strict=True))


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        ({'parallel': 'pmap', 'fsdp': 2}, 'data parallel only'),
        ({'parallel': 'xmap'}, "config.train.parallel 'xmap'"),
        ({'fsdp': 3}, 'config.train.fsdp is 3; it has to divide the 8 devices'),
        ({'devices': 9}, 'config.train.devices is 9'),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(BadInput, match=message):
        parallel.mesh_of({'devices': 0, 'fsdp': 1, 'parallel': 'jit'} | settings)


@pytest.mark.slow
def test_a_run_on_two_hosts(store, tmp_path):
    """The command itself: one clean folder, and the numbers of one host."""
    settings = [
        '--config=configs/base.py:tiny', f'--config.data.source={store.meta["options"]["source"]}',
        '--config.data.vocab_size=120', '--config.data.validation=0.2', '--config.data.test=0.2',
        '--config.data.split_seed=0', '--config.rows.length=32', '--config.encoder.width=64',
        '--config.encoder.layers=1', '--config.encoder.max_positions=32', '--config.train.batch=16',
        '--config.train.steps=6', '--config.train.log_every=2', '--config.train.validate_every=3',
        '--config.train.checkpoint_every=3', '--config.evaluation.batch=16', '--config.evaluation.validation_rows=16',
        '--config.evaluation.test_rows=24', '--config.evaluation.refit.rows=32', '--config.evaluation.refit.steps=5',
        '--config.train.fsdp=8',
    ]  # fmt: skip
    hosts = lambda port, i: ['--coordinator', f'localhost:{port}', '--processes=2', f'--process={i}']
    command = ['-m', 'experiments.pretrain', *settings]
    said = together(lambda port, i: [*command, f'--workdir={tmp_path}/two', *hosts(port, i)], devices=4)
    assert 'done' in said[0]
    alone = subprocess.run(
        [sys.executable, *command, f'--workdir={tmp_path}/one'], env=environment(8), capture_output=True, text=True
    )
    assert not alone.returncode, alone.stderr
    one, two = (next((tmp_path / name / 'runs').iterdir()) for name in ('one', 'two'))
    names = lambda folder: sorted(str(path.relative_to(folder)) for path in folder.rglob('*') if path.is_file())
    of_run = lambda folder: [name for name in names(folder) if not name.startswith('checkpoints')]
    assert one.name == two.name
    assert of_run(one) == of_run(two)
    assert not [name for name in names(tmp_path / 'two') if 'partial' in name]
    lines = [[json.loads(line) for line in (f / 'metrics.jsonl').read_text().splitlines()] for f in (one, two)]
    assert [line['step'] for line in lines[1]] == [2, 3, 4, 6, 6]
    for a, b in zip(*lines, strict=True):
        assert a.pop('split') == b.pop('split')
        assert a == pytest.approx(b, rel=1e-5, abs=1e-6)
    values = [json.loads((f / 'result.json').read_text())['values'] for f in (one, two)]
    assert [v['value'] for v in values[0]] == pytest.approx([v['value'] for v in values[1]], rel=1e-4)
