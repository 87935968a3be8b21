"""Every arm on every task: fixed rows and fixed noise, per-example values, own heads and refitted ones."""

import dataclasses
import functools
import logging
import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from bertx import model, parallel
from bertx.config import Run
from bertx.encoder_config import EncoderConfig
from bertx.errors import BadInput, at_least
from bertx.model import Net
from bertx.objectives import base
from bertx.objectives.base import Objective
from bertx.refit import Features, RefitOptions, refit
from bertx.step import State
from bertx.text.pairs import kinds_for
from bertx.text.rows import Rows, options_for, padded
from bertx.types import Example, Loss, Term, Vocabulary

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Metric of one task, head and split, per example."""

    task: str
    head: str  # 'own', 'refit', or 'unigram': the most frequent training token everywhere
    split: str
    metric: str
    sum_N: np.ndarray
    weight_N: np.ndarray
    of_tokens: bool = False  # a mean negative log-likelihood of tokens, in nats
    coefficient: float | None = None  # of a loss: its factor in what the run is trained on

    @property
    def value(self) -> float:
        weight = self.weight_N.sum(dtype=np.float64)
        return float(self.sum_N.sum(dtype=np.float64) / weight) if weight else math.nan  # no fakes, so no precision

    @property
    def perplexity(self) -> float | None:
        """Of a loss of tokens."""
        return float(np.exp(self.value)) if self.of_tokens else None

    @property
    def shown(self) -> dict[str, float]:
        """By name: the metric, and its perplexity where it has one."""
        name = 'perplexity' if self.metric == 'loss' else f'{self.metric} perplexity'
        return {self.metric: self.value} | ({} if self.perplexity is None else {name: self.perplexity})

    def record(self) -> dict[str, Any]:
        """For JSON, without the examples."""
        names = {name: getattr(self, name) for name in ('task', 'head', 'split', 'metric', 'value')}
        names['n_examples'] = len(self.sum_N)
        return names if self.perplexity is None else names | {'perplexity': self.perplexity}


@functools.lru_cache
def terms_function(config: EncoderConfig, structure):
    """Compiled for one objective: per-example losses and metrics."""
    net = model.make_net(config, model.rebuilt(structure))

    @jax.jit
    def terms(variables, objectives, root, vocab: Vocabulary, batch: Example) -> dict[str, Term | Loss]:
        view, targets = model.corrupt(objectives, root, vocab, batch)
        found: Any = net.apply(variables, objectives, view, targets)
        losses, metrics = found
        return {name.split('/')[1]: term for name, term in (losses | metrics).items()}

    return terms


@functools.lru_cache
def features_function(config: EncoderConfig, structure):
    """Compiled for one objective: (encoder's parameters, ...) -> what its head reads, and the targets."""
    (name,) = model.rebuilt(structure)
    net = Net(config, {})

    @jax.jit
    def features(params, objectives, root, vocab: Vocabulary, batch: Example):
        view, targets = model.corrupt(objectives, root, vocab, batch)
        encoded = net.apply({'params': {'encoder': params}}, view, method=Net.encode)
        return objectives[name].features(encoded, targets[name]), targets[name]

    return features


class Task:
    """An objective on rows and with noise that are the same for every run."""

    def __init__(
        self,
        name: str,
        objective: Objective,
        store,
        vocab: Vocabulary,
        settings: dict[str, Any],
        evaluation: dict[str, Any],
        mesh,
    ):
        self.options = options_for({name: objective.needs}, **settings)
        self.name, self.store, self.vocab, self.mesh = name, store, vocab, mesh
        self.seed, self.size = evaluation['seed'], evaluation['batch']
        self.objectives = jax.tree.map(np.float32, {name: objective})
        self.structure = jax.tree.structure(self.objectives)
        self.root = jax.random.key(self.seed)
        self.batches = functools.lru_cache(self._batches)

    @property
    def head(self) -> str:
        return f'heads_{self.name}'

    def _batches(self, split: str, count: int) -> tuple[list[Example], int]:
        """`count` rows of the split in batches, the last one filled up; and how many are real. Labels are balanced."""
        # Epoch 0 of a constant seed. Never more rows than there are: a row twice would narrow the intervals.
        count = min(count, len(Rows(self.store, split, self.options, self.seed)))
        count -= count % len(kinds_for(self.options.labels))
        if not count:
            raise BadInput(f'{self.store.path}: {split} has too few rows for {self.name}; more documents would do')
        rows = Rows(self.store, split, self.options, self.seed, count)
        count = min(count, len(rows))  # the released codes' pairs are always all that there are
        numbers = np.array_split(np.arange(count), range(self.size, count, self.size))
        return [padded(rows.batch(n), self.size) for n in numbers], count

    def _map(self, function, params, split: str, count: int, objectives: model.Objectives | None = None):
        """The function's results on all rows, joined and cut to the real ones."""
        batches, count = self.batches(split, count)
        put = functools.partial(parallel.split_batch, self.mesh)
        objectives = objectives or self.objectives
        parts = [function(params, objectives, self.root, self.vocab, put(batch)) for batch in batches]
        return jax.tree.map(lambda *x: np.concatenate([np.atleast_1d(y) for y in x])[:count], *parts)

    def own(self, run: Run, state: State, split: str, count: int) -> list[Measurement]:
        """All losses and metrics with the head that the run trained."""
        (objective,) = self.objectives.values()
        trained = run.objectives.get(self.name)
        weights = {k: x for k, x in vars(trained).items() if k.endswith('weight') and x is not None} if trained else {}
        objective = dataclasses.replace(objective, **weights)  # as the run adds its losses up
        used = {key: state.params[key] for key in ('encoder', self.head)}
        # Where another objective gives tables to the encoder, this one is measured without it.
        if not objective.adapt(dataclasses.replace(run.encoder, delta_embeddings=False)).delta_embeddings:
            used['encoder'] = model.encoder_params(run.encoder, run.objectives, state.params)
        frozen = {key: value for key, value in state.frozen.items() if key == self.head}
        function = terms_function(run.encoder, jax.tree.structure({self.name: objective}))
        terms = self._map(function, {'params': used, 'frozen': frozen}, split, count, {self.name: objective})
        return self._measured('own', split, terms)

    def refit(self, run: Run, params, split: str, count: int, options: RefitOptions) -> list[Measurement]:
        """With a fresh head on the frozen encoder, whose parameters these are."""
        function = features_function(run.encoder, self.structure)
        table = params['embeddings']['token']['embedding']

        def features(which: str, rows: int) -> Features:
            x_NKD, targets = self._map(function, params, which, rows)
            return Features(x_NKD, targets, table)

        fit, test = features('train', options.rows), features(split, count)
        (single,) = (jax.tree.structure(objective) for objective in self.objectives.values())
        return self._measured('refit', split, refit(run.encoder, single, options, fit, test))

    def _measured(self, head: str, split: str, terms: Mapping[str, Term | Loss]) -> list[Measurement]:
        of_tokens, found = self.objectives[self.name].token_losses, []
        for metric, term in terms.items():
            coefficient = float(np.ravel(term.coefficient)[0]) if isinstance(term, Loss) else None
            t = term.term if isinstance(term, Loss) else term
            found.append(Measurement(self.name, head, split, metric, t.sum, t.weight, metric in of_tokens, coefficient))
        return found

    @functools.cached_property
    def losses(self) -> set[str]:
        """The names of those that training wants to be low."""
        (batch, *_), _ = self.batches('train', self.size)
        objective = self.objectives[self.name]
        targets = lambda *arrays: model.corrupt(self.objectives, self.root, *arrays)[1][self.name]
        return set(jax.eval_shape(lambda *arrays: objective.weights(targets(*arrays)), self.vocab, batch))

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
        self.evaluation, self.mesh = config['evaluation'], parallel.local(mesh)
        for key in ('batch', 'validation_rows', 'test_rows'):
            at_least(2, f'config.evaluation.{key}', self.evaluation[key])  # a pair label has two classes
        # Whole rows on each device. Each host evaluates on its own devices: all of them the same.
        devices = self.mesh.size
        evaluation = dict(self.evaluation) | {'batch': math.ceil(self.evaluation['batch'] / devices) * devices}
        own = {key: value for key in ('format', 'packing') if (value := evaluation.get(key))}
        make = functools.partial(Task, store=store, vocab=vocab, evaluation=evaluation, mesh=self.mesh)
        self.make = functools.partial(make, settings=config['rows'] | own)

        @functools.lru_cache(maxsize=8)  # they hold their rows
        def made(name: str, objective: Objective) -> Task:
            formats = objective.needs.formats
            fits = not formats or (config['rows'] | own)['format'] in formats  # NSP has no use for full sentences
            return self.make(name, objective) if fits else make(name, objective, settings=config['rows'])

        self.made = made
        self.tasks = {name: self._task(name, config['rows']['length']) for name in self.evaluation['tasks']}
        settings = dict(self.evaluation['refit'])
        self.refitted = settings.pop('tasks')
        for name in self.refitted:
            if name not in self.tasks:
                raise BadInput(
                    f'config.evaluation.refit.tasks names {name}, which is not in config.evaluation.tasks '
                    f'({", ".join(self.tasks)}); add it there or leave it out here'
                )
            if base.find(name).terms is not Objective.terms:
                raise BadInput(f'config.evaluation.refit.tasks names {name}, whose head reads more than its features')
        self.options = RefitOptions(**settings)
        for key in ('rows', 'steps', 'batch'):
            at_least(2, f'config.evaluation.refit.{key}', getattr(self.options, key))
        if not self.options.learning_rate > 0 or not self.options.weight_decay >= 0:
            raise BadInput('config.evaluation.refit wants a learning_rate above 0 and a weight_decay of 0 or more')
        splits = ('validation', 'test')
        self.splits = [split for split in splits if split in store.meta['splits']]
        for split in splits:
            if split not in self.splits:
                log.warning('%s has no %s split: nothing is measured on it', store.path, split)
        # Built now, so that a split that cannot be evaluated stops the sweep before it trains.
        for split in self.splits:
            for task in self.tasks.values():
                task.batches(split, self.evaluation[f'{split}_rows'])

    def _task(self, name: str, length: int) -> Task:
        try:
            return self.make(name, base.make({name: {}}, length)[name].as_task())
        except BadInput as error:
            raise BadInput(f'config.evaluation.tasks: {error}') from None

    def own_tasks(self, run: Run) -> list[Task]:
        """The tasks that the run has heads for, and its other objectives with its own arguments."""
        return [self.tasks.get(name) or self.made(name, objective) for name, objective in run.objectives.items()]

    def _whole(self, state: State) -> State:
        params, frozen = parallel.gathered(self.mesh, (state.params, state.frozen))
        return dataclasses.replace(state, params=params, frozen=frozen, opt=None)

    def validate(self, run: Run, state: State) -> list[Measurement]:
        """During training: with the run's own heads. Empty if there is no such split."""
        if 'validation' not in self.splits:
            return []
        rows, state = self.evaluation['validation_rows'], self._whole(state)
        return [m for task in self.own_tasks(run) for m in task.own(run, state, 'validation', rows)]

    def final(self, run: Run, state: State, split: str = 'test') -> list[Measurement]:
        """At the end: own heads, heads refitted whatever the run was trained on, and the unigram baseline. Empty if
        there is no such split."""
        if split not in (*self.splits, 'train'):
            return []
        rows, state = self.evaluation['test_rows'], self._whole(state)
        found = [m for task in self.own_tasks(run) for m in task.own(run, state, split, rows)]
        params = model.encoder_params(run.encoder, run.objectives, state.params)
        for name in self.refitted:
            found += self.tasks[name].refit(run, params, split, rows, self.options)
        if 'mlm' in self.tasks:
            found.append(self.tasks['mlm'].unigram(split, rows))
        return found
