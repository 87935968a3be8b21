"""Killed again and again at random moments, a run ends with the numbers of one that was left alone."""

import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bertx.checkpoint import Trained
from bertx.results import RunFolder
from tests.weights import same

KILLS, STEPS = 20, 2000


def command(corpus, workdir) -> list[str]:
    settings = [
        f'data.source=text:{corpus}', 'data.vocab_size=120', 'data.validation=0.2', 'data.test=0.2', 'rows.length=32',
        f'train.steps={STEPS}', 'train.batch=8', 'train.log_every=1', 'train.validate_every=500',
        'train.checkpoint_every=20', 'encoder.width=32', 'encoder.heads=2', 'encoder.layers=1',
        'evaluation.tasks=("mlm",)', 'evaluation.refit.tasks=()', 'evaluation.test_rows=32',
        'evaluation.validation_rows=32',
    ]  # fmt: skip
    flags = [f'--config.{setting}' for setting in settings]
    return [
        sys.executable,
        '-m',
        'experiments.pretrain',
        '--config=configs/base.py:tiny',
        f'--workdir={workdir}',
    ] + flags


def folder_of(workdir) -> RunFolder | None:
    found = list(workdir.glob('runs/*'))
    return RunFolder(found[0]) if found else None


def step_of(workdir) -> int:
    folder = folder_of(workdir)
    return folder.metrics()[-1]['step'] if folder and folder.metrics() else 0


def in_a_checkpoint(workdir) -> bool:
    return any(workdir.glob('runs/*/checkpoints/*orbax-checkpoint-tmp*'))


@pytest.mark.slow
def test_twenty_kills_cost_no_number(corpus, tmp_path):
    """Most fall at a random step, every fourth one inside a checkpoint, every fifth one while the process starts."""
    alone, chaos = tmp_path / 'alone', tmp_path / 'chaos'
    subprocess.run(command(corpus, alone), check=True, capture_output=True)
    draw = random.Random(0)
    for kill in range(KILLS):
        process = subprocess.Popen(command(corpus, chaos), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before, wanted, begun = step_of(chaos), draw.randint(1, 60), time.monotonic()
        patience = draw.uniform(0.5, 6) if kill % 5 == 4 else 120.0
        while process.poll() is None and time.monotonic() - begun < patience:
            steps = step_of(chaos) - before
            if steps >= wanted and (kill % 4 < 3 or in_a_checkpoint(chaos) or steps > 100):
                break
            time.sleep(0.002)
        assert process.poll() is None, f'kill {kill}: the run ended by itself'
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGTERM]))
        process.wait()
    subprocess.run(command(corpus, chaos), check=True, capture_output=True)
    one, other = folder_of(alone), folder_of(chaos)
    assert one and other and one.path.name == other.path.name
    assert (one.path / 'metrics.jsonl').read_text() == (other.path / 'metrics.jsonl').read_text()
    same(Trained(one.checkpoints).params(), Trained(other.checkpoints).params())
    found = [folder.predictions('mlm', 'own', 'test', 'loss') for folder in (one, other)]
    np.testing.assert_array_equal(*found)
