"""The contract of a task: from rows of data to what an encoder reads, and from a head's outputs to figures."""

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from bertx.errors import BadInput, one_of, unknown
from bertx.tasks import sources
from bertx.text.tokenizer import Tokenizer

Record = dict[str, Any]  # 'id' and the columns of the kind of task: text, pair, label; words, tags; ...
Scores = dict[str, tuple[np.ndarray, np.ndarray]]  # metric -> sums and weights per example, the main metric first


@dataclasses.dataclass
class Inputs:
    """Rows for the encoder, and which example each is of: long contexts have several."""

    rows: list[dict[str, Any]]  # tokens [n], type_ids [n], the targets, and what only the host needs
    example_N: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(row['tokens']) for row in self.rows], np.int64)


class Task:
    """One data set with its head. `counts` says what was odd in the data: nothing is dropped without a word there."""

    roles: ClassVar[tuple[str, ...]] = ()  # columns that must be there
    targets: ClassVar[dict[str, tuple[type, float]]] = {}  # name -> its type and what pads it
    metrics: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, settings: dict[str, Any]):
        self.name, self.settings, self.key = name, settings, f'config.tasks.{name}'
        self.metric = settings['metric'] or self.metrics[0]
        one_of(f'{self.key}.metric', self.metric, self.metrics)
        self.labels: list[str] = []
        self.counts: dict[str, Counter] = {}

    @property
    def classes(self) -> int:
        return len(self.labels)

    def load(self, split: str) -> list[Record]:
        """The examples of a split, with the names of columns that `settings['columns']` gives."""
        spec, key = self.settings[split], f'{self.key}.{split}'
        counts = self.counts.setdefault(split, Counter())
        rows = sources.rows(spec, key, self.settings['header'], counts)
        columns = {role: name for role, name in self.settings['columns'].items() if name}
        for role in self.roles:
            if role not in columns:
                raise BadInput(f'{self.key}.columns has no {role!r}; name the column that is to be read as such')
        found = []
        for i, row in enumerate(rows):
            values = {r: sources.column(row, name, f'{self.key}.columns.{r}', spec) for r, name in columns.items()}
            record = self.record({'id': f'{split}-{i}'} | values, counts)
            if split == 'train' and not self.usable(record):
                counts['without a label, not trained on'] += 1
            else:
                found.append(record)
        if not found:
            raise BadInput(f'{key}: {spec} has no example with a label; give labelled ones')
        return found

    def record(self, values: Record, counts: Counter) -> Record:
        """The values checked, and what is odd counted."""
        return values

    def usable(self, record: Record) -> bool:
        """Whether it can be trained on and scored."""
        return True

    def group(self, record: Record) -> Hashable:
        """What stays together where examples are drawn, or cut off for dev; None: nothing does."""
        return None

    def learn(self, train: Sequence[Record]) -> None:
        """The label set, from the training examples."""

    def weights(self, train: Sequence[Record]) -> np.ndarray:
        """[classes] float32 of the loss; 1 unless settings['class_weights'] is 'balanced'."""
        if self.settings['class_weights'] not in ('', 'balanced'):
            raise unknown(f'{self.key}.class_weights', self.settings['class_weights'], ('balanced',))
        count = Counter(label for record in train for label in self.labels_of(record))
        if not self.settings['class_weights'] or not count:
            return np.ones(self.classes, np.float32)
        total = sum(count.values())
        return np.array([total / (len(count) * max(count[label], 1)) for label in self.labels], np.float32)

    def labels_of(self, record: Record) -> Sequence[str]:
        return ()

    def encode(self, records: Sequence[Record], tokenizer: Tokenizer, length: int, split: str) -> Inputs:
        raise NotImplementedError

    def predict(self, outputs: Sequence[Any], inputs: Inputs, records: Sequence[Record]) -> list[Any]:
        """A prediction for each example from the head's outputs, a row each."""
        raise NotImplementedError

    def tune(self, records: Sequence[Record], predictions: Sequence[Any]) -> None:
        """What is chosen on dev beyond the weights: SQuAD 2.0's threshold."""

    def score(self, records: Sequence[Record], predictions: Sequence[Any], spread: bool = True) -> Scores:
        """spread: with each example's own contribution; else the values alone."""
        raise NotImplementedError

    def baseline(self, train: Sequence[Record], records: Sequence[Record]) -> list[Any]:
        """Predictions that need no model: the most frequent label, the mean, no entity, no answer."""
        raise NotImplementedError

    def says(self, prediction: Any) -> Any:
        """A prediction as it stands in the file of predictions and is compared to find runs that say one thing only."""
        return prediction

    def collapsed(self, records: Sequence[Record], predictions: Sequence[Any]) -> bool:
        """Whether the model says the same of every example, though they differ: a failed run (Mosbach et al. 2021)."""
        said = {str(self.says(prediction)) for prediction in predictions}
        return len(said) == 1 and len({str(self.gold(record)) for record in records}) > 1

    def gold(self, record: Record) -> Any:
        return record['label']

    def ordered(self, scores: Scores) -> Scores:
        return {self.metric: scores[self.metric]} | scores


def number(text: Any, key: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise BadInput(f'{key}: {text!r} is not a finite number; the column of the scores would do')
    return value
