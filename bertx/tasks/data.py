"""The data of a fine-tuning run: read, cut to size, encoded; kept in memory for further runs on the same."""

import dataclasses
import functools
import hashlib
import itertools
import json
import logging
from collections import Counter
from typing import Any

import numpy as np

from bertx.errors import BadInput, one_of
from bertx.tasks.base import Inputs, Record, Task
from bertx.tasks.batches import check_buckets, plan
from bertx.tasks.classify import Classify, Rank, Regress
from bertx.tasks.qa import QA
from bertx.tasks.tag import Tag
from bertx.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

KINDS: dict[str, type[Task]] = {'classify': Classify, 'regress': Regress, 'qa': QA, 'tag': Tag, 'rank': Rank}
SPLITS = ('train', 'dev', 'test')
KEYS = ('tasks', 'use', 'length', 'buckets', 'train.batch', 'train.examples', 'evaluation.examples')


@dataclasses.dataclass(frozen=True, eq=False)
class Data:
    tasks: dict[str, Task]
    records: dict[tuple[str, str], list[Record]]  # task and split
    inputs: dict[tuple[str, str], Inputs]
    class_weights: dict[str, np.ndarray]
    buckets: tuple[int, ...]
    batches: int  # of an epoch, all tasks together
    tokens: int  # of these, padding included
    digest: str  # of all records

    def about(self) -> list[str]:
        """Lines for a person: how many examples, and what is odd about them."""
        lines = []
        for name, task in self.tasks.items():
            for split in SPLITS:
                if (name, split) not in self.records:
                    continue
                lengths = self.inputs[name, split].lengths
                odd = ''.join(f'; {what}: {n:,}' for what, n in task.counts.get(split, Counter()).items() if n)
                lines.append(
                    f'{name} {split}: {len(self.records[name, split]):,} examples, {len(lengths):,} rows of '
                    f'{int(np.median(lengths))} tokens (median), {int(lengths.max())} (longest){odd}'
                )
        return lines


def load(config: dict[str, Any], tokenizer: Tokenizer) -> Data:
    """Raises BadInput, naming the key, for data that cannot be read or used."""
    wanted = {key: functools.reduce(dict.__getitem__, key.split('.'), config) for key in KEYS}
    return _load(json.dumps(wanted), tokenizer.text)


@functools.cache  # all: the jobs of a grid hold them at the same time anyway
def _load(wanted: str, tokenizer_text: str) -> Data:
    config, tokenizer = json.loads(wanted), Tokenizer(tokenizer_text)
    for name in config['use']:
        one_of('config.use', name, config['tasks'])
    buckets = check_buckets(config['buckets'], config['length'])
    tasks, records, inputs, weights, size = {}, {}, {}, {}, config['train.batch']
    longest: list[int] = []  # bucket of each batch
    for name in config['use'] or config['tasks']:
        settings = config['tasks'][name]
        if not name or '/' in name:
            raise BadInput(f'config.tasks: the name {name!r} is to be that of files; one without / would do')
        one_of(f'config.tasks.{name}.kind', settings['kind'], KINDS)
        task = tasks[name] = KINDS[settings['kind']](name, settings)
        found = _splits(task, config['train.examples'], config['evaluation.examples'])
        task.learn(found['train'])
        weights[name] = task.weights(found['train'])
        for split, items in found.items():
            records[name, split] = items
            inputs[name, split] = task.encode(items, tokenizer, config['length'], split)
            if split == 'dev' and not any(map(task.usable, items)):
                raise BadInput(
                    f"config.tasks.{name}.dev: no example has a label to choose by; dev='' takes a part of train"
                )
            said, counts = [x for item in items if task.usable(item) for x in task.labels_of(item)], task.counts[split]
            counts['classes: a single one, so there is nothing to tell apart'] += len(set(said)) == 1
            if split != 'train':
                counts['labels that training has not, counted as errors'] += sum(x not in task.labels for x in said)
        lengths = inputs[name, 'train'].lengths
        of = [lengths[rows].max() for rows in plan(lengths, buckets, size, np.random.default_rng(0))]
        longest += [buckets[i] for i in np.searchsorted(buckets, of)]
    content = json.dumps([[*key, items] for key, items in records.items()], sort_keys=True, default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Data(tasks, records, inputs, weights, buckets, len(longest), size * sum(longest), digest)


def _splits(task: Task, examples: int, most: int) -> dict[str, list[Record]]:
    """The examples of each split, cut to a fixed random subset."""
    found = {split: task.load(split) for split in SPLITS if task.settings[split]}
    if 'train' not in found:
        raise BadInput(f'{task.key}.train is empty; name the data to train on')
    train = found['train']
    if 'dev' not in found:  # the last tenth
        groups, cut = _groups(task, train), len(train) - max(1, len(train) // 10)
        ends = np.cumsum([len(group) for group in groups])
        first = int(np.sum(ends <= cut))
        train, found['dev'] = _flat(groups[:first]), _flat(groups[first:])
    if not train:
        raise BadInput(f'{task.key}.train has {len(found["train"])} examples; name a dev split, or give more')
    if examples > len(train):
        raise BadInput(f'config.train.examples is {examples}, and {task.key}.train has {len(train)}')
    drawn = {split: _some(_groups(task, items), most) for split, items in found.items() if split != 'train'}
    return {'train': _some([[record] for record in train], examples)} | drawn


def _groups(task: Task, items: list[Record]) -> list[list[Record]]:
    """What is to stay together: the passages of a query, the questions on a context."""
    found: dict[Any, list[Record]] = {}
    for i, record in enumerate(items):
        group = task.group(record)
        found.setdefault((i,) if group is None else group, []).append(record)
    return list(found.values())


def _some(groups: list[list[Record]], most: int) -> list[Record]:
    """Of at most that many examples, but of one group at least, drawn the same way for every run; 0: all."""
    order = np.random.default_rng(0).permutation(len(groups))
    count = np.sum(np.cumsum([len(groups[i]) for i in order]) <= (most or np.inf))
    return _flat([groups[i] for i in sorted(order[: max(1, count)])])


def _flat(groups: list[list[Record]]) -> list[Record]:
    return list(itertools.chain.from_iterable(groups))
