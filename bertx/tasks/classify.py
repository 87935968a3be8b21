"""Classification and regression of single texts and pairs, by BERT's head on [CLS]."""

import re
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from bertx.errors import BadInput
from bertx.tasks import metrics as m
from bertx.tasks.base import Inputs, Record, Scores, Task, number
from bertx.text.tokenizer import Tokenizer


def encode_texts(
    records: Sequence[Record], tokenizer: Tokenizer, length: int, counts: Counter
) -> list[dict[str, np.ndarray]]:
    """[CLS] text [SEP], or [CLS] text [SEP] pair [SEP]; what is too long loses the end of its longer part."""
    firsts = tokenizer.encode([record['text'] for record in records])
    seconds = tokenizer.encode([record.get('pair') or '' for record in records])
    rows = []
    for record, (a, _), (b, _) in zip(records, firsts, seconds, strict=True):
        paired = record.get('pair') is not None
        room = length - (3 if paired else 2)
        if len(a) + len(b) > room:
            counts['texts cut to config.length'] += 1
            # the longer one gives way until both are as long
            keep_a = min(len(a), max(room - len(b), (room + 1) // 2))
            a, b = a[:keep_a], b[: room - keep_a]
        sep = [tokenizer.sep_id]
        tokens = np.array([tokenizer.cls_id, *a, *sep, *(b if paired else ()), *(sep if paired else ())], np.int32)
        rows.append({'tokens': tokens, 'type_ids': (np.arange(len(tokens)) >= len(a) + 2).astype(np.int32)})
    return rows


class TextTask(Task):
    roles: ClassVar[tuple[str, ...]] = ('text', 'label')

    def record(self, values: Record, counts: Counter) -> Record:
        for role in ('text', 'pair'):
            if role in values:
                values[role] = '' if values[role] is None else str(values[role])
                counts['empty texts, kept'] += not values[role].strip()
        label = values['label']
        values['label'] = None if label is None or label == '' else str(label)
        counts['without a label'] += values['label'] is None
        return values

    def usable(self, record: Record) -> bool:
        return record['label'] is not None

    def target(self, record: Record) -> Any:
        raise NotImplementedError

    def encode(self, records: Sequence[Record], tokenizer: Tokenizer, length: int, split: str) -> Inputs:
        rows: Any = encode_texts(records, tokenizer, length, self.counts.setdefault(split, Counter()))
        for row, record in zip(rows, records, strict=True):
            row['label'] = self.target(record)
        return Inputs(rows, np.arange(len(rows)))


class Classify(TextTask):
    """Accuracy and settings['metric'] are reported, and F1 where settings['positive'] says of which label."""

    targets = {'label': (np.int32, 0)}
    metrics = ('accuracy', 'matthews', 'macro_f1', 'f1')

    def learn(self, train: Sequence[Record]) -> None:
        found = {record['label'] for record in train}
        whole = all(re.fullmatch(r'-?\d+', label) for label in found)
        self.labels = list(self.settings['labels']) or sorted(found, key=int if whole else str)
        self.positive = self.settings['positive'] or self.labels[-1]
        if self.positive not in self.labels or self.metric == 'f1' and len(self.labels) != 2:
            raise BadInput(f'{self.key}.positive: F1 is of one of two classes, and {self.positive!r} of {self.labels}')
        if odd := sorted(found - set(self.labels)):
            raise BadInput(
                f'{self.key}.labels has no {odd[0]!r}, which training examples have; add it or leave them out'
            )
        self.number = {label: i for i, label in enumerate(self.labels)}

    def labels_of(self, record: Record) -> Sequence[str]:
        return [record['label']]

    def target(self, record: Record) -> int:
        return self.number.get(record['label'], 0)  # dev and test: not used

    def predict(self, outputs, inputs, records):
        return [self.labels[int(np.argmax(logits_C))] for logits_C in outputs]

    def score(self, records, predictions, spread=True) -> Scores:
        names = {self.metric, 'accuracy', *(['f1'] if self.settings['positive'] else [])}
        return self.ordered({name: values(self.function(name), records, predictions, spread) for name in sorted(names)})

    def function(self, name: str) -> m.Metric:
        return m.f1_of(self.positive) if name == 'f1' else getattr(m, name)

    def baseline(self, train, records):
        most, _ = Counter(record['label'] for record in train).most_common(1)[0]
        return [most] * len(records)


class Scored(TextTask):
    """Labels and predictions are numbers."""

    def record(self, values: Record, counts: Counter) -> Record:
        values = super().record(values, counts)
        if values['label'] is not None:
            values['label'] = number(values['label'], f'{self.key}.columns.label')
        return values

    def says(self, prediction: float) -> float:
        return round(prediction, 3)


class Regress(Scored):
    """One output and squared error (STS-B, with its scores as they are)."""

    targets = {'label': (np.float32, 0.0)}
    metrics = ('pearson', 'spearman')
    classes = 1

    def target(self, record: Record) -> float:
        return record['label'] or 0.0

    def predict(self, outputs, inputs, records):
        return [float(x_C[0]) for x_C in outputs]

    def score(self, records, predictions, spread=True) -> Scores:
        return self.ordered({name: values(getattr(m, name), records, predictions, spread) for name in self.metrics})

    def baseline(self, train, records):
        return [float(np.mean([record['label'] for record in train]))] * len(records)


class Rank(Scored):
    """Passages (pair) of a query (text), each scored alone by a classifier of two (Nogueira & Cho 2019)."""

    roles = ('text', 'pair', 'label')
    targets = {'label': (np.int32, 0)}
    metrics = ('mrr', 'ndcg@10')
    labels_ = ('irrelevant', 'relevant')

    def learn(self, train: Sequence[Record]) -> None:
        self.labels = list(self.labels_)

    def record(self, values: Record, counts: Counter) -> Record:
        return {'query': values['text']} | super().record(values, counts)

    def group(self, record: Record) -> Hashable:
        return record['query']

    def labels_of(self, record: Record) -> Sequence[str]:
        return [self.labels_[self.target(record)]]

    def target(self, record: Record) -> int:
        return int((record['label'] or 0) > 0)

    def predict(self, outputs, inputs, records):
        return [float(x_C[1] - x_C[0]) for x_C in outputs]

    def score(self, records, predictions, spread=True) -> Scores:
        """Per query."""
        pairs = [(r, p) for r, p in zip(records, predictions, strict=True) if r['label'] is not None]
        gains = m.by_group([r['query'] for r, _ in pairs], [r['label'] for r, _ in pairs], [p for _, p in pairs])
        each = {'mrr': m.reciprocal_rank, 'ndcg@10': m.ndcg}
        return self.ordered({k: (np.array([f(g) for g in gains]), np.ones(len(gains))) for k, f in each.items()})

    def baseline(self, train, records):
        return [0.0] * len(records)


def values(metric: m.Metric, records: Sequence[Record], predictions: Sequence[Any], spread: bool):
    """(sums, weights) whose ratio is the metric over the examples that have a label."""
    pairs = [(r['label'], p) for r, p in zip(records, predictions, strict=True) if r['label'] is not None]
    if not pairs:
        return np.zeros(0), np.zeros(0)
    gold, said = map(list, zip(*pairs, strict=True))
    found = m.contributions(metric, gold, said) if spread else np.array([metric(gold, said)])
    return found, np.ones(len(found))
