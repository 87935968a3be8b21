"""Folders of made-up runs, finished, failed and not, for the tests of tables and reports."""

import json
import re

import numpy as np

from bertx.evaluate import Measurement
from bertx.results import RunFolder

N = 200
WEIGHT = np.random.default_rng(1).integers(5, 11, N).astype(np.float32)
MLM, REFIT, OWN = ('mlm', 'own'), ('sop', 'refit'), ('sop', 'own')


def measured(column, rate, seed, weight=None, split='test', constant=False):
    """Hits around a rate; the same examples are hard for every seed."""
    weight = np.ones(N, np.float32) if weight is None else weight
    hard = np.random.default_rng(7).uniform(-0.2, 0.2, N)
    rate_N = np.full(N, rate) if constant else np.clip(rate + hard, 0, 1)
    rng = np.random.default_rng([seed, len(column[0])])
    hits = rate_N * weight if constant else rng.binomial(weight.astype(int), rate_N)
    return Measurement(*column, split, 'accuracy', hits.astype(np.float32), weight)


def run(tmp_path, arm, seed, measurements=None, reason=None, config=None, **provenance):
    """A run folder that is finished, failed (with a reason) or unfinished (measurements=None)."""
    number = len(list((tmp_path / 'runs').glob('*'))) if (tmp_path / 'runs').exists() else 0
    folder = RunFolder(tmp_path / 'runs' / f'{re.sub("[^a-z]", "", arm)}-s{seed}-{number:08x}')
    folder.path.mkdir(parents=True)
    (folder.path / 'config.json').write_text(json.dumps({'seed': seed} | (config or {})))
    record = {'time': f'2026-01-01T00:00:{number:02d}', 'git_commit': '0123456789abcdef'} | provenance
    (folder.path / 'provenance.json').write_text(json.dumps(record))
    about = {'arm': arm, 'seed': seed, 'step': 100, 'tokens': 6400, 'flops': 1.0, 'wall_s': 2.0}
    folder.append('metrics.jsonl', {'step': 100, 'split': 'train', 'tokens': 6400, 'mlm/loss': 5.0})
    if reason:
        folder.fail(about, reason)
    elif measurements is not None:
        folder.finish(about, measurements)
    return folder


def usual(arm, seed, gain=0.0, own=False):
    found = [measured(REFIT, 0.55 + gain, seed), measured(MLM, 0.4, seed, WEIGHT)]
    found.append(measured(('mlm', 'unigram'), 0.1, 99, WEIGHT))
    return found + ([measured(OWN, 0.6 + gain, seed + 50)] if own else [])


def stacked(folders, arm, seeds, column):
    by_seed = {f.result['seed']: f for f in folders if (f.result or {}).get('arm') == arm and f.done}
    read = [by_seed[seed].predictions(*column, 'test', 'accuracy') for seed in seeds]
    return np.stack([r[0] for r in read]).astype(float), read[0][1].astype(float)
