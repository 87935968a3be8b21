"""What a probe is asked: examples over the words or sentences of a text, split into train, dev and test."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from analysis.probing.conllu import SPLITS, Sentence
from analysis.probing.features import Corpus
from bertx.errors import BadInput

DEV, TEST = 0.1, 0.2  # of the documents, where no splits are given


@dataclasses.dataclass(frozen=True)
class Task:
    """Examples of one question; numbers of words and sentences are those of `corpus`."""

    name: str
    kind: str  # 'surface', 'syntax' or 'semantics' (Conneau et al. 2018)
    unit: str  # 'words' or 'sentences': what `at` counts
    corpus: Corpus
    at: np.ndarray  # [n, slots] or [n, spans, width], -1 behind the end of a span
    label_N: np.ndarray  # -1: training has no such label; on dev it says nothing, on test it is missed
    classes: tuple[str, ...]
    split_N: np.ndarray  # numbers of SPLITS
    group_N: np.ndarray  # sentence, or document: what is sampled together
    type_N: np.ndarray  # the word type that the control task gives a random label to
    annotated: bool = True  # other tasks ask about words of the same text

    def check(self) -> 'Task':
        """Raises BadInput where there is nothing to learn or to measure."""
        for number, split in enumerate(SPLITS):
            if not (self.split_N == number).any():
                raise BadInput(f'task {self.name}: no examples for {split}; more text would do')
        labels = np.unique(self.label_N[self.split_N == 0])
        if len(labels) < 2:
            raise BadInput(f'task {self.name}: all training labels are {self.classes[labels[0]]!r}; two kinds would do')
        return self

    def majority(self) -> np.ndarray:
        """[N] hits of the most frequent training label."""
        return self.label_N == np.bincount(self.label_N[self.split_N == 0]).argmax()

    def control(self, seed: int = 0) -> np.ndarray:
        """[N]: Hewitt & Liang's (2019) control task. Each word type has a random label, drawn as often as the real ones
        come in training, so only memory helps: the word itself, the dependent of an arc, a sentence's first word."""
        share_K = np.bincount(self.label_N[self.split_N == 0], minlength=len(self.classes))
        types, inverse = np.unique(self.type_N, return_inverse=True)
        drawn = np.random.default_rng(seed).choice(len(self.classes), len(types), p=share_K / share_K.sum())
        return drawn[inverse]

    def take(self, index: np.ndarray) -> 'Task':
        """With these examples: their numbers, or [N] which of them."""
        fields = ('at', 'label_N', 'split_N', 'group_N', 'type_N')
        return dataclasses.replace(self, **{name: getattr(self, name)[index] for name in fields})

    def limited(self, train: int, rest: int) -> 'Task':
        """With at most so many training, and dev and test, examples: whole groups, drawn at random."""
        keep = np.zeros(len(self.label_N), bool)
        order = np.random.default_rng(0).permutation(self.group_N.max() + 1)[self.group_N]
        for number, most in enumerate((train, rest, rest)):
            mine = np.flatnonzero(self.split_N == number)
            keep[mine[np.argsort(order[mine], kind='stable')[:most]]] = True
        return self.take(keep)


@dataclasses.dataclass(frozen=True)
class Example:
    """One line of a task before it is numbered."""

    at: Any
    label: str
    group: int
    type: str


def build(
    name: str, kind: str, unit: str, corpus: Corpus, found: Sequence[Example], split_of: Callable[[int], int]
) -> Task:
    """split_of: group -> number of its split. Labels that training never has are -1."""
    if not found:
        raise BadInput(f'task {name}: the text holds no example of it')
    splits = np.array([split_of(x.group) for x in found], int)
    classes = sorted({x.label for x, split in zip(found, splits, strict=True) if split == 0})
    number = {label: i for i, label in enumerate(classes)}
    return Task(
        name, kind, unit, corpus, np.array([x.at for x in found], np.int32),
        np.array([number.get(x.label, -1) for x in found], np.int32), tuple(classes), splits,
        np.array([x.group for x in found]), np.array([zlib.crc32(x.type.encode()) for x in found]),
    ).check()  # fmt: skip


def split_of_document(name: str) -> int:
    """By a hash of the name: the same whatever else is in the corpus."""
    share = zlib.crc32(name.encode()) / 2**32
    return 2 if share < TEST else 1 if share < TEST + DEV else 0


def split_sentences(sentences: dict[str, list[Sentence]]) -> tuple[list[Sentence], np.ndarray]:
    """All sentences and their splits: the given ones, or by document (by sentence, where there are fewer than 10)."""
    flat = [s for part in sentences.values() for s in part]
    if 'train' in sentences:
        numbers = [SPLITS.index(split) for split, part in sentences.items() for _ in part]
        if 'dev' not in sentences:  # every tenth training sentence
            numbers = [1 if n == 0 and i % 10 == 0 else n for i, n in enumerate(numbers)]
        return flat, np.array(numbers)
    few = len({s.document for s in flat}) < 10
    return flat, np.array([split_of_document(f'{i}' if few else s.document) for i, s in enumerate(flat)])
