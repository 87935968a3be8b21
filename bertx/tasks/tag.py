"""Tags of words, predicted at the first piece of each (Devlin et al. 2019, section 5.3)."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bertx.errors import BadInput
from bertx.tasks import metrics
from bertx.tasks.base import Inputs, Record, Scores, Task
from bertx.text.tokenizer import Tokenizer

OUTSIDE = 'O'


class Tag(Task):
    """Entities (BIO, IO or IOBES), or with metric 'accuracy' any tags. What the model cannot see is tagged 'O'."""

    roles = ('words', 'tags')
    targets = {'label': (np.int32, -1)}
    metrics = ('entity_f1', 'accuracy')

    def record(self, values: Record, counts: Counter) -> Record:
        for role in self.roles:
            if isinstance(values[role], str):
                values[role] = values[role].split()
            if not isinstance(values[role], list | tuple):
                raise BadInput(
                    f'{self.key}: example {values["id"]} has {values[role]!r} as its {role}; a list would do'
                )
        values['words'] = [str(word) for word in values['words']]
        values['tags'] = [OUTSIDE if tag is None else str(tag) for tag in values['tags']]
        if len(values['words']) != len(values['tags']):
            raise BadInput(
                f'{self.key}: example {values["id"]} has {len(values["words"])} words and {len(values["tags"])} tags'
            )
        counts['sentences without words, kept'] += not values['words']
        return values

    def learn(self, train: Sequence[Record]) -> None:
        self.labels = sorted({tag for record in train for tag in record['tags']} | {OUTSIDE})
        self.number = {label: i for i, label in enumerate(self.labels)}
        untyped = not any(metrics.entities([tag]) for tag in self.labels)
        if self.metric == 'entity_f1' and untyped and self.labels != [OUTSIDE]:
            raise BadInput(f"{self.key}.metric: no tag begins with B- or I-; metric='accuracy' would do")

    def labels_of(self, record: Record) -> Sequence[str]:
        return record['tags']

    def gold(self, record: Record):
        return record['tags']

    def encode(self, records: Sequence[Record], tokenizer: Tokenizer, length: int, split: str) -> Inputs:
        rows, counts = [], self.counts.setdefault(split, Counter())
        for record, (ids, spans_N2) in zip(
            records, tokenizer.spans([' '.join(record['words']) for record in records]), strict=True
        ):
            ends = np.cumsum([len(word) + 1 for word in record['words']])  # of each word and the blank behind it
            word_N = np.searchsorted(ends, spans_N2[:, 1] - 1, side='right')  # of its last letter: 'Ġword' has a blank
            starts = np.flatnonzero(np.diff(word_N, prepend=-1)) if len(word_N) else np.zeros(0, int)
            starts = starts[starts < length - 2]
            first = dict(zip(word_N[starts].tolist(), (starts + 1).tolist(), strict=True))  # behind [CLS]
            counts['words cut off or without a piece, tagged O'] += len(record['words']) - len(first)
            tokens = np.array([tokenizer.cls_id, *ids[: length - 2], tokenizer.sep_id], np.int32)
            label = np.full(len(tokens), -1, np.int32)
            for word, at in first.items():
                label[at] = self.number.get(record['tags'][word], 0)  # dev and test: not used
            rows.append({'tokens': tokens, 'type_ids': np.zeros(len(tokens), np.int32), 'label': label, 'first': first})
        return Inputs(rows, np.arange(len(rows)))

    def predict(self, outputs, inputs, records):
        found = []
        for tag_L, row, record in zip(outputs, inputs.rows, records, strict=True):
            tags = [OUTSIDE] * len(record['words'])
            for word, at in row['first'].items():
                tags[word] = self.labels[int(tag_L[at])]
            found.append(tags)
        return found

    def score(self, records, predictions, spread=True) -> Scores:
        golds = [record['tags'] for record in records]
        pairs = list(zip(golds, predictions, strict=True))
        counts = np.array([metrics.entity_counts(a, b) for a, b in pairs]).reshape(-1, 3)
        f1 = metrics.count_contributions(counts) if spread else np.array([metrics.f1_of_counts(counts)])
        hits = np.array([sum(x == y for x, y in zip(a, b, strict=True)) for a, b in pairs], float)
        words = np.array([len(a) for a in golds], float)
        return self.ordered({'entity_f1': (f1, np.ones(len(f1))), 'accuracy': (hits, words)})

    def collapsed(self, records, predictions) -> bool:
        said = {tag for tags in predictions for tag in tags}
        return len(said) == 1 and len({tag for record in records for tag in record['tags']}) > 1

    def baseline(self, train, records):
        """No entity; for 'accuracy' the most frequent tag."""
        count = Counter(tag for record in train for tag in record['tags'])
        tag = OUTSIDE if self.metric == 'entity_f1' or not count else count.most_common(1)[0][0]
        return [[tag] * len(record['words']) for record in records]
