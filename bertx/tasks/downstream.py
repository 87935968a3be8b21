"""Fine-tuning in grids: alone, and hanging off the runs of a pretraining sweep as one more column of its table."""

import dataclasses
import itertools
import json
import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from etils import epath
from ml_collections import ConfigDict

from bertx.config import plain
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.pretrained import check_pieces
from bertx.results import RunFolder, write_atomically
from bertx.sweep import Sweep, overlay
from bertx.tasks import finetune
from bertx.tasks import job as jobs
from bertx.tasks.job import Job
from bertx.text.tokenizer import Tokenizer
from bertx.watch import NotFinite

log = logging.getLogger(__name__)

FILE = 'downstream.json'  # in a pretraining run's folder: what its fine-tuned runs came to
APART = 1000  # the first fine-tuning seeds of two pretraining seeds: adding some leaves the earlier ones as they are


@dataclasses.dataclass(frozen=True)
class Planned:
    """A fine-tuning run that has passed every check."""

    arm: str
    job: Job
    folder: RunFolder

    @property
    def id(self) -> str:
        return self.folder.path.name


def plan(config: ConfigDict, points: Sweep, folder: epath.Path) -> list[Planned]:
    """Every run of the grid, checked, with its place in the folder; identical points are one run."""
    planned = {}
    for point in points:
        job = jobs.prepare(overlay(config, point))
        name = point.get('arm', '-'.join(job.tasks))
        path = folder / f'{name}-s{job.config["seed"]}-{job.hash}'
        planned[path.name] = Planned(name, job, RunFolder(path))
    return list(planned.values())


def run_all(planned: Sequence[Planned], progress: Callable[..., Any]) -> dict[str, str]:
    """Runs what is not done; a failing run is recorded and does not stop the others. Returns id -> reason of those."""
    failed = {}
    for p in planned:
        if p.folder.done:
            lacks = p.job.train['save_weights'] and not p.folder.checkpoints.exists()
            log.info('%s is done%s', p.id, ', without its weights: delete its folder to train it again' * lacks)
            continue
        try:
            with progress(p.id, p.job.steps, p.job.data.tokens // p.job.data.batches) as advance:
                finetune.run(p.job, p.folder, p.arm, advance)
        except Exception as error:  # noqa: BLE001 - whatever a run dies of, the others go on
            reason = f'{type(error).__name__}: {error}'
            log.error('%s failed: %s', p.id, reason, exc_info=not isinstance(error, NotFinite | BadInput))
            failed[p.id] = reason
            about = {'arm': p.arm, 'seed': p.job.config['seed'], 'step': 0, 'tokens': 0, 'flops': 0, 'collapsed': []}
            p.folder.fail(about, reason)
    return failed


def plan_for(folder: RunFolder, config: ConfigDict, points: Sweep) -> list[Planned]:
    """The grid on one pretrained run. Its fine-tuning seeds are its own: equal ones would give two runs that begin with
    one frozen encoder the same result twice. Arms with the same seed, and settings, are still compared in pairs."""
    config = ConfigDict(config)
    config.init_from = str(folder.path)
    first = APART * (folder.result or {})['seed']
    points = [point | {'seed': (first + point.get('seed', config.seed)) % 2**32} for point in points]
    return plan(config, points, folder.path / 'downstream')


def check(config: ConfigDict, points: Sweep, encoders: Iterable[tuple[Tokenizer, EncoderConfig]]) -> None:
    """Raises BadInput where the grid will not do: before the hours of pretraining, not after them."""
    checked = []
    for (tokenizer, encoder), point in itertools.product(encoders, points):
        resolved = plain(overlay(config, point))
        if resolved['tokenizer']:
            check_pieces(tokenizer, own := Tokenizer.load(resolved['tokenizer']), 'the pretraining', 'config')
            tokenizer = own
        checked.append(jobs.checked(resolved, tokenizer, encoder))
    for line in dict.fromkeys(line for job in checked for line in job.data.about()):
        log.info(line)


def attach(folder: RunFolder, config: ConfigDict, points: Sweep, progress: Callable[..., Any]) -> dict[str, str]:
    """The grid on one pretrained run, and what came of it beside that run's own results. Returns id -> reason of the
    runs that failed.

    Points that differ in anything but the seed, the tasks and the number of training examples compete: of them the one
    with the highest mean on dev is reported, on test; one that lost a seed only where all did. Fine-tuning seeds are
    averaged example by example, so that the table's statistics see one value for each pretraining seed.
    """
    try:
        planned, failed = plan_for(folder, config, points), {}
    except BadInput as error:
        planned, failed = [], {folder.path.name: str(error)}
    failed |= run_all(planned, progress)
    columns: dict[tuple[str, ...], dict[str, list[Planned]]] = defaultdict(lambda: defaultdict(list))
    for p in planned:
        columns[*p.job.tasks, str(p.job.train['examples'])][_setting(p.job)].append(p)
    values: list[dict[str, Any]] = []
    for settings in columns.values():
        done = [[p for p in runs if p.folder.done] for runs in settings.values()]
        whole = [found for found, runs in zip(done, settings.values(), strict=True) if len(found) == len(runs)]
        if chosen := max(whole or done, key=_dev):
            for name in chosen[0].job.tasks:
                values += _averaged(folder, chosen, name)
    summary = {'values': values, 'runs': len(planned), 'failed': len(failed), 'reasons': failed}
    summary['collapsed'] = sum(bool((p.folder.result or {}).get('collapsed')) for p in planned)
    write_atomically(folder.path / FILE, json.dumps(summary, indent=1))
    return failed


def _dev(runs: Sequence[Planned]) -> float:
    return float(np.mean([(p.folder.result or {})['dev'] for p in runs])) if runs else -math.inf


def _setting(job: Job) -> str:
    """What competes on dev: all but the seed, the tasks and the number of training examples."""
    config = job.numbers()
    for key in ('seed', 'use'):
        config.pop(key)
    config['train'].pop('examples')
    return json.dumps(config, sort_keys=True)


def _averaged(folder: RunFolder, runs: Sequence[Planned], name: str) -> list[dict[str, Any]]:
    """The runs' values of one task, example by example, written where `Arm.predictions` looks for them."""
    job, found = runs[0].job, []
    size = job.train['examples']
    others = [other for other in job.tasks if other != name]
    title = ' with '.join([name, *others]) + (f' n={size}' if size else '')
    for value in (runs[0].folder.result or {})['values']:
        if value['task'] != name:
            continue
        head, split, metric = value['head'], value['split'], value['metric']
        read = [p.folder.predictions(name, head, split, metric) for p in runs]
        weight_N = read[0][1]
        sum_N = np.mean([sum_N for sum_N, _ in read], axis=0)
        folder.keep(title, head, split, metric, sum_N, weight_N)
        own = {'fine_tuning_seeds': len(runs), 'learning_rate': job.config['optimizer']['learning_rate']}
        found.append(value | {'task': title, 'value': float(sum_N.sum() / weight_N.sum())} | own)
    return found
