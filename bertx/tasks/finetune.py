"""One downstream run: trained, the best of it chosen on dev, measured on test, recorded like every run."""

import contextlib
import json
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bertx import checkpoint
from bertx.evaluate import Measurement
from bertx.results import RunFolder, write_atomically
from bertx.step import named
from bertx.tasks.base import Task
from bertx.tasks.batches import Batch, padded, plan
from bertx.tasks.job import Job, initial
from bertx.tasks.step import optimizer, reader, trainer
from bertx.watch import NotFinite

log = logging.getLogger(__name__)

SPLITS = {'dev': 'validation', 'test': 'test'}  # as results.csv calls them


def predictions(job: Job, params: Any, name: str, split: str) -> list[Any]:
    """One for each example of the split."""
    read = reader(job.encoder, job.specs[name])
    return predicted(job, name, split, lambda batch: read(params['encoder'], params[job.name_of(name)], batch))


def predicted(job: Job, name: str, split: str, read: Callable[[Batch], Any]) -> list[Any]:
    """By what is read of each batch."""
    data, task, size = job.data, job.tasks[name], job.config['evaluation']['batch']
    inputs = data.inputs[name, split]
    outputs: list[Any] = [None] * len(inputs.rows)
    for rows in plan(inputs.lengths, data.buckets, size, None):
        batch = padded(inputs, rows, task, data.buckets, size, job.tokenizer.pad_id)
        found = jax.device_get(read(batch))
        for b, i in enumerate(rows):
            outputs[i] = jax.tree.map(lambda x: x[b], found)  # noqa: B023 - called at once
    return task.predict(outputs, inputs, data.records[name, split])


def _value(score: Any) -> float:
    sums, weights = score
    return float(sums.sum() / weights.sum()) if weights.sum() else math.nan


class Best:
    """The parameters of the best evaluation on dev, by the mean of the tasks' main metrics, or of the last one; `value`
    is that of what is kept."""

    def __init__(self):
        self.value, self.peak, self.step, self.params, self.since = -math.inf, -math.inf, 0, None, 0
        self.tokens, self.flops, self.step_s = 0, 0.0, math.nan

    def see(self, value: float, step: int, params: Any, keep_last: bool) -> None:
        better = value > self.peak
        self.since, self.peak = (0, value) if better else (self.since + 1, self.peak)
        if better or keep_last or self.params is None:
            self.value, self.step = value, step
            self.params = jax.tree.map(jnp.copy, params)  # the step takes its argument's memory


def fit(job: Job, folder: RunFolder, advance: Callable[[int, dict[str, float]], None] = lambda *_: None) -> Best:
    """Trains, and returns what is to be kept. Raises NotFinite."""
    t, data = job.train, job.data
    params = initial(job)
    trained = {name: x for name, x in params.items() if name != 'encoder' or not job.config['features']}
    frozen = {name: x for name, x in params.items() if name not in trained}
    trained = jax.tree.map(jnp.array, trained)  # copies: the step gives their memory away
    rule = job.config['optimizer']['layer_rule']
    opt = optimizer(job.options, rule, job.hyper).init(trained)
    steps = {name: trainer(job.encoder, s, job.name_of(name), job.options, rule) for name, s in job.specs.items()}
    key, best = named(jax.random.key(job.config['seed']), 'dropout'), Best()
    losses: list[Any] = []
    every = t['evaluate_every'] or min(job.steps, data.batches)
    begun, pace, tokens, flops = time.perf_counter(), Pace(), 0, 0.0
    passes = 1 if job.config['features'] else 3  # a frozen encoder is not gone back through
    for number, (name, batch) in zip(range(1, job.steps + 1), job.batches(), strict=False):
        last, (rows, length) = number == job.steps, batch['tokens'].shape
        tokens, flops = tokens + rows * length, flops + passes * rows * length * job.encoder.flops_per_token(length)
        with pace.step(name, batch, losses):
            noise, weights_C = jax.random.fold_in(key, number), data.class_weights[name]
            trained, opt, loss = steps[name](trained, frozen, opt, job.hyper, weights_C, noise, batch)
            losses.append(loss)
            if number % t['log_every'] == 0 or number % every == 0 or last:
                mean, losses = float(np.mean(jax.device_get(losses))), []
                if not math.isfinite(mean):
                    raise NotFinite(f'the loss is {mean} at step {number}; try a lower config.optimizer.learning_rate')
                line = {'step': number, 'split': 'train', 'tokens': tokens, 'loss': mean}
                folder.append('metrics.jsonl', line)
                advance(number, {'loss': mean})
        if number % every == 0 or last:
            found = on_dev(job, frozen | trained)
            folder.append('metrics.jsonl', {'step': number, 'split': 'validation', 'tokens': tokens} | found)
            value = float(np.mean([found[f'{name}/{task.metric}'] for name, task in data.tasks.items()]))
            best.see(value, number, frozen | trained, t['keep'] == 'last')
            if t['patience'] and best.since >= t['patience']:
                log.info('no better one in %d evaluations: ended at step %d of %d', best.since, number, job.steps)
                break
    best.step_s, best.tokens, best.flops = pace.mean, tokens, flops
    folder.append('timing.jsonl', {'step': number, 'wall_s': time.perf_counter() - begun, 'step_s': best.step_s})
    log.info('kept step %d of %d, dev %.4f; %d shapes of batches', best.step, number, best.value, len(pace.shapes))
    return best


def on_dev(job: Job, params: Any) -> dict[str, float]:
    """`<task>/<metric>` of all tasks, which are tuned to it."""
    found: dict[str, float] = {}
    for name, task in job.tasks.items():
        records, said = job.data.records[name, 'dev'], predictions(job, params, name, 'dev')
        task.tune(records, said)
        found |= {f'{name}/{key}': _value(x) for key, x in task.score(records, said, spread=False).items()}
    return found


class Pace:
    """Seconds a step, without those that are compiled first."""

    def __init__(self):
        self.shapes, self.seconds, self.steps = set(), 0.0, 0

    @contextlib.contextmanager
    def step(self, name: str, batch: Any, pending: Any):
        shape = name, batch['tokens'].shape
        fresh = shape not in self.shapes
        if fresh:
            jax.block_until_ready(pending)
            self.shapes.add(shape)
        begun = time.perf_counter()
        yield
        if not fresh:
            self.seconds, self.steps = self.seconds + time.perf_counter() - begun, self.steps + 1

    @property
    def mean(self) -> float:
        return self.seconds / self.steps if self.steps else math.nan


def run(job: Job, folder: RunFolder, arm: str, advance: Callable[..., None] = lambda *_: None) -> dict[str, Any]:
    """Trains, measures and records one run; a finished one is not run again. Returns result.json's content."""
    if folder.done:
        return folder.result or {}
    folder.start(job, job.tokenizer)  # type: ignore[arg-type] # it asks for .config and .encoder
    for name in ('metrics.jsonl', 'timing.jsonl'):  # a killed run starts over
        (folder.path / name).unlink(missing_ok=True)
    folder.checkpoints.rmtree(missing_ok=True)
    with folder.logging():
        best = fit(job, folder, advance)
        found, collapsed = [], []
        for name, task in job.tasks.items():
            for split in [split for split in SPLITS if (name, split) in job.data.records]:
                records = job.data.records[name, split]
                said = predictions(job, best.params, name, split)
                if split == 'dev':
                    task.tune(records, said)
                    if task.collapsed(records, said):
                        collapsed.append(name)
                        log.warning('%s: the model says the same of every example: a failed run', name)
                found += _measured(name, job.head, split, task.score(records, said))
                found += _measured(name, 'majority', split, task.score(
                    records, task.baseline(job.data.records[name, 'train'], records)))  # fmt: skip
                _write_predictions(folder, task, split, records, said)
    if job.train['save_weights']:
        about = {'config': job.config, 'hash': job.hash, 'tokenizer': job.tokenizer.fingerprint}
        checkpoint.write_parameters(folder.checkpoints, best.params, about)
    done: dict[str, Any] = {
        'arm': arm, 'seed': job.config['seed'], 'step': best.step, 'tokens': best.tokens, 'flops': best.flops,
        'wall_s': round(folder.seconds(), 1), 'collapsed': collapsed, 'dev': best.value, 'step_s': best.step_s,
        'data': job.data.about(),
    }  # fmt: skip
    folder.finish(done, found)
    return folder.result or {}


def _measured(name: str, head: str, split: str, scores: dict[str, Any]) -> list[Measurement]:
    return [
        Measurement(name, head, SPLITS[split], metric, sums, weights)
        for metric, (sums, weights) in scores.items()
        if len(sums)
    ]


def _write_predictions(folder: RunFolder, task: Task, split: str, records: list[Any], said: list[Any]) -> None:
    """predictions/<task>-<split>.jsonl: each example with what is right and what the model says."""
    (folder.path / 'predictions').mkdir(exist_ok=True)
    lines = [
        json.dumps(record | {'prediction': task.says(x)}, ensure_ascii=False, default=str)
        for record, x in zip(records, said, strict=True)
    ]
    write_atomically(folder.path / 'predictions' / f'{task.name}-{SPLITS[split]}.jsonl', '\n'.join([*lines, '']))
