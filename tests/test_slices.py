"""Sweeps on TPU slices, of which a cluster on this machine pretends to have two, each of two hosts."""

import json
import os
import subprocess

import pytest

from bertx.errors import BadInput
from bertx.scheduling import slices
from tests.test_many import check, command

KIND = 'v5litepod-16'


@pytest.fixture(scope='module')
def address():
    """Of the cluster. Its nodes have the environment of TPU hosts, which Ray names their resources by."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('TPU_ACCELERATOR_TYPE', KIND)
        found = Cluster()
        try:
            for name in 'ab':
                for number in '01':
                    patch.setenv('TPU_NAME', name)
                    patch.setenv('TPU_WORKER_ID', number)
                    found.add_node(num_cpus=2, resources={'TPU': 8})
            yield found.address
        finally:
            found.shutdown()


def test_a_function_runs_on_every_host_of_every_slice(address, tmp_path):
    assert slices.run('tests.by_ray:record', [str(tmp_path)], 2, KIND, address) == [1, 1]
    said = {file.name: dict(flag[2:].split('=') for flag in file.read_text().split()) for file in tmp_path.iterdir()}
    assert sorted(said) == ['a-0', 'a-1', 'b-0', 'b-1']
    for name, flags in said.items():
        assert (flags['process'], flags['processes']) == (name[-1], '2')
    assert said['a-0']['coordinator'] == said['a-1']['coordinator'] != said['b-0']['coordinator']


def test_a_slice_that_loses_a_host_begins_anew(address, tmp_path, caplog):
    assert slices.run('tests.by_ray:one_host_dies', [str(tmp_path)], 1, KIND, address, deaths=1) == [0]
    assert 'a worker is lost' in caplog.text


def test_chips_of_a_slice():
    assert [slices.chips(kind) for kind in ('v5litepod-16', 'v6e-8', 'v4-16', 'v5p-8')] == [16, 8, 8, 4]
    for name in ('v5litepod', 'tpu-8', 'v4-2x2'):
        with pytest.raises(BadInput, match=f'--slice={name}: Ray names them like'):
            slices.chips(name)


def test_hosts_that_jax_finds_by_itself(monkeypatch):
    monkeypatch.delenv('TPU_WORKER_ID', raising=False)
    seen = []
    monkeypatch.setattr(slices.cluster, 'call', lambda *arguments: seen.append(arguments) or 0)
    assert slices.one_host('module:work', ['--a=1'], os.getcwd(), 'first:80', 4) == 0
    assert seen == [('module:work', ['--a=1', '--distributed'], os.getcwd())]


@pytest.mark.slow
def test_a_sweep_on_two_slices(address, corpus, tmp_path):
    flags = ('--engine=ray', '--workers=2', f'--slice={KIND}', f'--address={address}', '--config.train.batch=16')
    assert subprocess.run(command(tmp_path, corpus, 2, *flags)).returncode == 0
    check(tmp_path / 'work', 4)
    for folder in (tmp_path / 'work' / 'runs').iterdir():
        about, config = (json.loads((folder / name).read_text()) for name in ('provenance.json', 'config.json'))
        assert len(about['devices']) == 2, 'the hosts are one program'
        assert config['train']['batch'] == 16, 'what the command line says reaches the hosts'
