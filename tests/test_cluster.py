"""Items and their results by way of Ray: what comes back, and what is done again where a process is lost."""

import functools
import hashlib
import os
import subprocess
import sys

import pytest

from bertx.errors import BadInput
from bertx.scheduling import cluster
from bertx.text import prepare as module
from bertx.text import writer
from bertx.text.prepare import PrepareOptions, prepare
from tests.by_ray import failing, fatal, noted
from tests.conftest import write_corpus


@pytest.fixture(scope='module')
def two_workers():
    with cluster.connected(workers=2):
        yield


def test_results_come_in_order_and_items_when_they_are_wanted(two_workers):
    taken = []
    items = (taken.append(i) or i for i in range(30))
    results = cluster.in_order(functools.partial(pow, 3), items, 2)
    assert next(results) == 1 and len(taken) <= 6
    assert list(results) == [3**i for i in range(1, 30)]
    assert list(cluster.in_order(abs, [], 2)) == []


def test_a_lost_process_costs_its_item(two_workers, tmp_path):
    (tmp_path / 'calls').mkdir()
    work = functools.partial(noted, tmp_path / 'calls', functools.partial(fatal, tmp_path, abs))
    assert list(cluster.in_order(work, range(-12, 0), 2)) == list(range(12, 0, -1))
    assert (tmp_path / 'killed').exists()
    assert len(list((tmp_path / 'calls').iterdir())) == 13


def test_what_goes_wrong_is_said_in_a_line(two_workers, monkeypatch):
    with pytest.raises(BadInput, match='^x is no number$'):
        list(cluster.in_order(failing, 'x', 2))
    monkeypatch.setattr(cluster, 'AGAIN', 1)
    with pytest.raises(BadInput, match='2 processes ended at the same item'):
        list(cluster.in_order(os._exit, [1], 2))


def contents(store):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in store.path.iterdir()}


def test_the_store_is_the_same_whoever_prepares_it(two_workers, tmp_path, monkeypatch):
    monkeypatch.setattr(module, '_BATCH', 3000)
    monkeypatch.setattr(writer, 'SHARD_TOKENS', 2000)
    options = PrepareOptions(source=f'text:{write_corpus(tmp_path / "corpus")}', vocab_size=120)
    alone = prepare(options, tmp_path / 'alone')
    monkeypatch.setattr(module, '_WORTH', 10_000)
    monkeypatch.setattr(os, 'cpu_count', lambda: 2)
    local = prepare(options, tmp_path / 'local')
    spread = lambda function, items: cluster.in_order(functools.partial(fatal, tmp_path, function), items, 2)
    by_ray = prepare(options, tmp_path / 'ray', spread)
    assert (tmp_path / 'killed').exists()
    assert len(alone.meta['splits']['train']['shards']) > 3
    assert contents(by_ray) == contents(local) == contents(alone)


def test_paths_lead_from_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = tmp_path / 'here'
    here.mkdir()
    assert cluster.call('os:listdir', '.', str(here)) == []
    assert cluster.call('os:listdir', '.', str(tmp_path / 'not here')) == []


COMMAND = [sys.executable, '-m', 'experiments.prepare', '--config=configs/base.py']


def test_without_ray_one_line_says_so(tmp_path):
    (tmp_path / 'ray.py').write_text('raise ImportError')
    environment = os.environ | {'PYTHONPATH': str(tmp_path)}
    command = [*COMMAND, f'--workdir={tmp_path / "store"}', '--engine=ray']
    done = subprocess.run(command, cwd=cluster.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == 'error: --engine=ray: there is no ray; pip install -r requirements-ray.txt\n'


@pytest.mark.slow
def test_the_command_prepares_by_ray(tmp_path):
    subprocess.run([*COMMAND, f'--workdir={tmp_path / "ray"}', '--engine=ray'], cwd=cluster.ROOT, check=True)
    made = prepare(PrepareOptions(), tmp_path / 'alone')
    assert contents(type(made)(tmp_path / 'ray')) == contents(made)
