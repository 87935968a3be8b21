"""Rows of a split in one input format: any batch of row numbers, built in numpy without a loop over rows."""

import dataclasses
import functools

import jax
import numpy as np

from bertx.errors import BadInput, unknown
from bertx.objectives.base import Needs
from bertx.text import segment_pair, segment_pair_original
from bertx.text.plan import Plan
from bertx.types import Example

FORMATS = ('segment_pair',)


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """What a row looks like; the labels and variant come from what the objectives need."""

    format: str = 'segment_pair'
    length: int = 128
    short_probability: float = 0.1  # of a random, shorter target length (google-research/bert)
    labels: tuple[str, ...] = ()
    original: bool = False
    dupe_factor: int = 10  # original only: how many times the corpus is masked and paired (google-research/bert)


def options_for(needs: list[Needs], **settings) -> RowOptions:
    """The row options that serve all objectives of a run, or BadInput that says which one they cannot."""
    options = RowOptions(**settings)
    if options.format not in FORMATS:
        raise unknown('config.rows.format', options.format, FORMATS)
    for need in needs:
        if need.formats and options.format not in need.formats:
            raise BadInput(
                f'the objective with label {need.label!r} needs config.rows.format = {" or ".join(need.formats)}, '
                f'not {options.format}'
            )
    if options.dupe_factor < 1:
        raise BadInput(f'config.rows.dupe_factor is {options.dupe_factor}; 1 or more would do')
    least = segment_pair.SPECIALS + 2
    if options.length < least:
        raise BadInput(f'config.rows.length is {options.length}; two segments and their special tokens want {least}')
    labels = tuple(sorted({need.label for need in needs if need.label}))
    original = any(need.original for need in needs)
    if original and len(labels) > 1:
        raise BadInput(
            "variant 'original' builds rows for one pair label; use variant='clean' for " + ' and '.join(labels)
        )
    if len({need.original for need in needs}) > 1:
        raise BadInput("config.objectives mixes variant='original' and 'clean'; rows are built in one way")
    return dataclasses.replace(options, labels=labels, original=original)


class Rows:
    """An endless sequence of rows, numbered from 0: epoch after epoch, each in an order of its own.

    count: rows of an epoch; 0 for as many as the split gives.
    """

    def __init__(self, store, split: str, options: RowOptions, seed: int, count: int = 0):
        self.split, self.options, self.seed, self.count = store.split(split), options, seed, count
        self.tokenizer = store.tokenizer
        self.plan = functools.lru_cache(maxsize=max(2, options.dupe_factor if options.original else 2))(self._plan)
        if options.original and options.labels:
            sizes = [len(self.plan(epoch)) for epoch in range(options.dupe_factor)]
        else:
            sizes = [len(self.plan(0))]
            self.count = sizes[0]
        self.ends = np.cumsum(sizes)

    def __len__(self) -> int:
        """Rows of one epoch."""
        return int(self.ends[0])

    def _plan(self, epoch: int) -> Plan:
        o = self.options
        if o.original and o.labels:
            return segment_pair_original.plan(self.split, o.labels[0], o.length, o.short_probability, self.seed, epoch)
        return segment_pair.plan(self.split, o.labels, o.length, o.short_probability, self.seed, epoch, self.count)

    def batch(self, numbers: np.ndarray) -> Example:
        """The rows with these ascending numbers, [B, ...]."""
        cycle, within = np.divmod(np.asarray(numbers, np.int64), self.ends[-1])
        part = np.searchsorted(self.ends, within, side='right')
        epochs = cycle * len(self.ends) + part
        rows = within - np.concatenate([[0], self.ends[:-1]])[part]
        built = [self._build(int(epoch), rows[epochs == epoch]) for epoch in np.unique(epochs)]
        return built[0] if len(built) == 1 else _concatenate(built)

    def _build(self, epoch: int, rows: np.ndarray) -> Example:
        if self.options.original:
            epoch %= self.options.dupe_factor
        plan, length, t = self.plan(epoch), self.options.length, self.tokenizer
        a, b = plan.a[rows], plan.b[rows]
        a_end = 1 + a.length[:, None]  # where A's [SEP] stands
        b_end = a_end + 1 + b.length[:, None]
        at = np.arange(length)[None]
        in_a, in_b = (at > 0) & (at < a_end), (at > a_end) & (at < b_end)
        text = in_a | in_b
        source = np.where(in_a, a.start[:, None] + at - 1, b.start[:, None] + at - a_end - 1)
        source = np.where(text, source, 0)
        tokens = np.where(text, self.split.gather(source), t.pad_id)
        tokens[:, 0] = t.cls_id
        tokens = np.where((at == a_end) | (at == b_end), t.sep_id, tokens)
        # Specials are words of their own, and so is the piece of a word that truncation left at a segment's beginning.
        begins = ~text | (at == 1) | (at == a_end + 1) | (self.split.gather_word_starts(source) > 0)
        real = at <= b_end
        return Example(
            tokens=tokens.astype(np.int32),
            segment_ids=real.astype(np.int32),
            positions=np.where(real, at, 0).astype(np.int32),
            type_ids=((at > a_end) & real).astype(np.int32),
            word_ids=(np.cumsum(begins, axis=1) - 1).astype(np.int32),
            unit_ids=(np.cumsum(begins, axis=1) - 1).astype(np.int32),
            starts=np.zeros((len(rows), 1), np.int32),
            labels={name: values[rows][:, None].astype(np.int32) for name, values in plan.labels.items()},
            epoch=np.full(len(rows), epoch, np.uint32),
            index=plan.index[rows],
        )


def _concatenate(examples: list[Example]) -> Example:
    return jax.tree.map(lambda *x: np.concatenate(x), *examples)


def padded(example: Example, rows: int) -> Example:
    """Filled up to `rows` with empty rows: all padding, no labels, so weight zero in every Term."""
    missing = rows - len(example.index)
    filled = jax.tree.map(lambda x: np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]), example)
    labels = {
        name: np.concatenate([y, np.full((missing, y.shape[1]), -1, y.dtype)]) for name, y in example.labels.items()
    }
    return dataclasses.replace(filled, labels=labels)
