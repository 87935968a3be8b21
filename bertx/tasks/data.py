"""The data of a fine-tuning run: read, cut to size, encoded; kept in memory for further runs on the same."""

import dataclasses
import functools
import hashlib
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


@functools.lru_cache(maxsize=8)
def _load(wanted: str, tokenizer_text: str) -> Data:
    config, tokenizer = json.loads(wanted), Tokenizer(tokenizer_text)
    for name in config['use']:
        one_of('config.use', name, config['tasks'])
    buckets = check_buckets(config['buckets'], config['length'])
    tasks, records, inputs, weights, batches = {}, {}, {}, {}, 0
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
            if split != 'train' and task.labels:
                seen, counts = set(task.labels), task.counts.setdefault(split, Counter())
                unseen = [label for item in items for label in task.labels_of(item) if label is not None]
                counts['labels that training has not, counted as errors'] += sum(x not in seen for x in unseen)
        batches += len(plan(inputs[name, 'train'].lengths, buckets, config['train.batch'], np.random.default_rng(0)))
    content = json.dumps([[*key, items] for key, items in records.items()], sort_keys=True, default=str)
    digest = hashlib.sha256(content.encode()).hexdigest()
    return Data(tasks, records, inputs, weights, buckets, batches, digest)


def _splits(task: Task, examples: int, most: int) -> dict[str, list[Record]]:
    """The examples of each split, cut to a fixed random subset."""
    found = {split: task.load(split) for split in SPLITS if task.settings[split]}
    if 'train' not in found:
        raise BadInput(f'{task.key}.train is empty; name the data to train on')
    train = found['train']
    if 'dev' not in found:  # the last tenth: neighbours, such as the questions on one text, stay together
        cut = len(train) - max(1, len(train) // 10)
        train, found['dev'] = train[:cut], train[cut:]
    if not train:
        raise BadInput(f'{task.key}.train has {len(found["train"])} examples; name a dev split, or give more')
    if examples > len(train):
        raise BadInput(f'config.train.examples is {examples}, and {task.key}.train has {len(train)}')
    return {split: _some(train if split == 'train' else items, examples if split == 'train' else most)
            for split, items in found.items()}  # fmt: skip


def _some(items: list[Record], most: int) -> list[Record]:
    """At most that many, drawn the same way for every run, in their order; 0: all."""
    if not 0 < most < len(items):
        return items
    return [items[i] for i in sorted(np.random.default_rng(0).permutation(len(items))[:most])]
