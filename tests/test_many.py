"""Sweeps by several processes at once, some of which die: each run is done once, and the table is whole."""

import collections
import csv
import random
import signal
import subprocess
import sys
import time

import pytest

from bertx.results import RunFolder

GRID = """
from bertx.sweep import arm, chain, prod, seeds
from configs import base

def get_config():
    config = base.get_config('tiny')
    config.data.update(source='text:{corpus}', vocab_size=120, validation=0.2, test=0.2)
    config.rows.length = 32
    config.encoder.update(layers=1, width=16, heads=2, max_positions=32)
    config.train.update(batch=8, steps=6, log_every=1, validate_every=6, checkpoint_every=2)
    config.evaluation.update(tasks=('mlm',), batch=16, validation_rows=16, test_rows=24)
    config.evaluation.refit.tasks = ()
    return config

def sweep():
    return prod(chain(arm('a', objectives={{'mlm': {{}}}}), arm('b', objectives={{'clm': {{}}}})), seeds({seeds}))
"""


def command(folder, corpus, seeds: int, *flags: str) -> list[str]:
    grid = folder / 'grid.py'
    grid.write_text(GRID.format(corpus=corpus, seeds=seeds))
    return [sys.executable, '-m', 'experiments.sweep', f'--config={grid}', f'--workdir={folder / "work"}', *flags]


def check(workdir, runs: int) -> None:
    folders = [RunFolder(path) for path in (workdir / 'runs').glob('*-s*')]
    assert len(folders) == runs
    for folder in folders:
        assert folder.done, folder.path
        steps = collections.Counter(line['step'] for line in folder.metrics() if line['split'] == 'train')
        assert steps == {step: 1 for step in range(1, 7)}
        assert not list(folder.path.glob('lease-*'))
    with open(workdir / 'table.csv') as file:
        seeds = {row['arm']: row['n_seeds'] for row in csv.DictReader(file) if row['head'] == 'own'}
    assert seeds == {'a': str(runs // 2), 'b': str(runs // 2), 'unigram': '1'}


@pytest.mark.slow
def test_a_hundred_runs_by_four_workers_that_are_killed(corpus, tmp_path):
    work, draw, killed = command(tmp_path, corpus, 50), random.Random(0), 0
    quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL}
    workers = [subprocess.Popen(work, **quiet) for _ in range(4)]
    while any(worker.poll() is None for worker in workers):
        time.sleep(draw.uniform(2, 12))
        victim = draw.randrange(4)
        if workers[victim].poll() is None and killed < 12:
            killed += 1
            workers[victim].send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
            workers[victim].wait()
            workers[victim] = subprocess.Popen(work, **quiet)
    assert killed >= 4
    assert workers[0].returncode == 0
    check(tmp_path / 'work', 100)


@pytest.mark.slow
def test_a_run_of_a_node_that_dies_finishes_on_another(corpus, tmp_path):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={'num_cpus': 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    try:
        flags = ('--engine=ray', '--workers=2', f'--address={cluster.address}')
        process = subprocess.Popen(command(tmp_path, corpus, 10, *flags))
        while not list((tmp_path / 'work').glob('runs/*/metrics.jsonl')):
            assert process.poll() is None
            time.sleep(0.1)
        cluster.remove_node(nodes[0], allow_graceful=False)
        assert process.wait() == 0
    finally:
        cluster.shutdown()
    check(tmp_path / 'work', 20)
