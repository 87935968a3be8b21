"""Every arm on every task: fixed rows and fixed noise, per-example values, own heads and refitted ones."""

import dataclasses
import functools
import math
from typing import Any

import jax
import numpy as np

from bertx import model, parallel, refit
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput
from bertx.model import Net
from bertx.objectives import base
from bertx.objectives.pair import PairObjective
from bertx.text.rows import Rows, options_for, padded
from bertx.text.segment_pair import kinds_for
from bertx.types import Example, Term, Vocabulary


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Metric of one task, head and split, per example."""

    task: str
    head: str  # 'own', 'refit', or 'unigram': the most frequent training token everywhere
    split: str
    metric: str
    sum_N: np.ndarray
    weight_N: np.ndarray

    @property
    def value(self) -> float:
        return float(self.sum_N.sum(dtype=np.float64) / self.weight_N.sum(dtype=np.float64))


@functools.lru_cache
def terms_function(config: EncoderConfig, structure):
    """Compiled for one objective: per-example losses and metrics."""
    net = model.make_net(config, jax.tree.unflatten(structure, [0.0] * structure.num_leaves))

    @jax.jit
    def terms(params, objectives, root, vocab: Vocabulary, batch: Example) -> dict[str, Term]:
        view, targets = model.corrupt(objectives, root, vocab, batch)
        found: Any = net.apply({'params': params}, objectives, view, targets)
        losses, metrics = found
        return {name: loss.term for name, loss in losses.items()} | metrics

    return terms


@functools.lru_cache
def features_function(config: EncoderConfig, structure):
    """Compiled for one pair objective: (encoder's parameters, ...) -> what its head reads, and the targets."""
    (name,) = jax.tree.unflatten(structure, [0.0] * structure.num_leaves)
    net = Net(config, {})

    @jax.jit
    def features(params, objectives, root, vocab: Vocabulary, batch: Example):
        view, targets = model.corrupt(objectives, root, vocab, batch)
        encoded = net.apply({'params': params}, view, method=Net.encode)
        return objectives[name].features(encoded, targets[name]), targets[name]

    return features


class Task:
    """An objective with its default arguments, on rows that are the same for every run."""

    def __init__(self, name: str, store, vocab: Vocabulary, settings: dict[str, Any], evaluation: dict[str, Any], mesh):
        try:
            self.objectives = base.make({name: {}}, settings['length'])
            self.options = options_for([o.needs for o in self.objectives.values()], **settings)
        except BadInput as error:
            raise BadInput(f'config.evaluation.tasks: {error}') from None
        self.name, self.store, self.vocab, self.mesh = name, store, vocab, mesh
        self.seed, self.size = evaluation['seed'], evaluation['batch']
        self.objective = self.objectives[name]
        self.objectives = jax.tree.map(np.float32, self.objectives)
        self.structure = jax.tree.structure(self.objectives)
        self.root = jax.random.key(self.seed)
        self.batches = functools.lru_cache(self._batches)

    @property
    def is_pair(self) -> bool:
        return isinstance(self.objective, PairObjective)

    def _batches(self, split: str, count: int) -> tuple[list[Example], int]:
        """`count` rows of the split in batches, the last one filled up; and how many are real. Labels are balanced."""
        # Epoch 0 of a constant seed. Never more rows than there are: a row twice would narrow the intervals.
        count = min(count, len(Rows(self.store, split, self.options, self.seed)))
        rows = Rows(self.store, split, self.options, self.seed, count - count % len(kinds_for(self.options.labels)))
        count = len(rows)
        numbers = np.array_split(np.arange(count), range(self.size, count, self.size))
        return [padded(rows.batch(n), self.size) for n in numbers], count

    def _map(self, function, params, split: str, count: int):
        """The function's results on all rows, joined and cut to the real ones."""
        batches, count = self.batches(split, count)
        put = functools.partial(parallel.split_batch, self.mesh)
        parts = [function(params, self.objectives, self.root, self.vocab, put(batch)) for batch in batches]
        return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:count], *parts)

    def features(self, config: EncoderConfig, params, split: str, count: int):
        return self._map(features_function(config, self.structure), {'encoder': params['encoder']}, split, count)

    def own(self, config: EncoderConfig, params, split: str, count: int) -> list[Measurement]:
        """All losses and metrics with the head that the run trained."""
        used = {key: params[key] for key in ('encoder', f'heads_{self.name}')}
        terms = self._map(terms_function(config, self.structure), used, split, count)
        return [
            Measurement(self.name, 'own', split, metric.split('/')[1], term.sum, term.weight)
            for metric, term in terms.items()
        ]

    def pair(self, config: EncoderConfig, params, split: str, count: int, options: refit.RefitOptions):
        """Accuracy of the run's own head, if it has one, and of a fresh head on the same frozen features."""
        cls: Any = type(self.objective)
        train, test = self.features(config, params, 'train', options.rows), self.features(config, params, split, count)
        scores = {'refit': refit.refit(config, cls, options, train, test)}
        if f'heads_{self.name}' in params:
            scores['own'] = jax.device_get(refit.score_function(config, cls)(params[f'heads_{self.name}'], *test))
        return [
            Measurement(self.name, head, split, 'accuracy', score.sum, score.weight) for head, score in scores.items()
        ]

    def unigram(self, split: str, count: int) -> Measurement:
        """Accuracy of predicting the training split's most frequent text token at every masked position."""
        guess = int(np.argmax(np.where(self.vocab.ordinary_V, self.vocab.unigram_V, -1.0)))
        batches, count = self.batches(split, count)
        parts = [
            jax.jit(model.corrupt)(self.objectives, self.root, self.vocab, batch)[1][self.name] for batch in batches
        ]
        label, weight = (np.concatenate([np.asarray(p[key]) for p in parts])[:count] for key in ('label', 'weight'))
        return Measurement(self.name, 'unigram', split, 'accuracy', ((label == guess) * weight).sum(-1), weight.sum(-1))


class Suite:
    """The tasks of `config.evaluation`, built once and shared by all runs on a store."""

    def __init__(self, config: dict[str, Any], store, vocab: Vocabulary, mesh):
        self.evaluation = config['evaluation']
        for key in ('batch', 'validation_rows', 'test_rows'):
            if self.evaluation[key] < 2:  # a pair label has two classes
                raise BadInput(f'config.evaluation.{key} is {self.evaluation[key]}; 2 or more would do')
        # Whole rows on each device.
        evaluation = dict(self.evaluation) | {'batch': math.ceil(self.evaluation['batch'] / mesh.size) * mesh.size}
        make = functools.partial(
            Task, store=store, vocab=vocab, settings=config['rows'], evaluation=evaluation, mesh=mesh
        )
        self.tasks = {name: make(name) for name in self.evaluation['tasks']}
        self.options = refit.RefitOptions(**self.evaluation['refit'])
        for key in ('rows', 'steps', 'batch'):
            if getattr(self.options, key) < 2:
                raise BadInput(f'config.evaluation.refit.{key} is {getattr(self.options, key)}; 2 or more would do')
        # Built now, so that a split that cannot be evaluated stops the sweep before it trains.
        for task in self.tasks.values():
            task.batches('validation', self.evaluation['validation_rows'])
            task.batches('test', self.evaluation['test_rows'])

    def validate(self, config: EncoderConfig, params) -> list[Measurement]:
        """During training: the tasks that the run has heads for."""
        rows = self.evaluation['validation_rows']
        mine = [task for task in self.tasks.values() if f'heads_{task.name}' in params]
        return [m for task in mine for m in task.own(config, params, 'validation', rows)]

    def final(self, config: EncoderConfig, params, split: str = 'test') -> list[Measurement]:
        """At the end: own heads, refitted pair heads whatever the run was trained on, and the unigram baseline."""
        rows, found = self.evaluation['test_rows'], []
        for task in self.tasks.values():
            if task.is_pair:
                found += task.pair(config, params, split, rows, self.options)
            elif f'heads_{task.name}' in params:
                found += task.own(config, params, split, rows)
            if task.name == 'mlm':
                found.append(task.unigram(split, rows))
        return found
