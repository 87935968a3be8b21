"""Rows of a split in one input format: any batch of row numbers, built in numpy without a loop over rows."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from bertx.errors import BadInput, at_least, one_of
from bertx.objectives.base import Needs
from bertx.text import full_sentences, pairs, segment_pair, segment_pair_original, sentence_pair, units
from bertx.text.plan import Plan, RowOptions, ragged
from bertx.types import Example

FORMATS: dict[str, Callable[..., Plan]] = {
    'segment_pair': segment_pair.plan,
    'sentence_pair': sentence_pair.plan,
    'full_sentences': full_sentences.plan,
    'doc_sentences': functools.partial(full_sentences.plan, cross=False),
}


def options_for(needs: Mapping[str, Needs], **settings) -> RowOptions:
    """The row options that serve all objectives of a run, or BadInput that says which one they cannot.

    needs: by the objective's name. settings: config.rows.
    """
    options = RowOptions(**settings)
    one_of('config.rows.format', options.format, FORMATS)
    for name, need in needs.items():
        if need.formats and options.format not in need.formats:
            raise BadInput(
                f'objective {name} needs config.rows.format = {" or ".join(need.formats)}, not {options.format}'
            )
        if need.units and not options.units:
            raise BadInput(f"objective {name} selects units; config.rows.units='pmi', or a file of them, would do")
    for key in ('dupe_factor', 'packing'):
        at_least(1, f'config.rows.{key}', getattr(options, key))
    if not 0 <= options.short_probability <= 1:
        raise BadInput(f'config.rows.short_probability is {options.short_probability}; from 0 to 1 would do')
    least = pairs.SPECIALS + 2
    if options.length < least:
        raise BadInput(f'config.rows.length is {options.length}; two segments and their special tokens want {least}')
    labels = tuple(sorted({need.label for need in needs.values() if need.label}))
    builders = {need.original for need in needs.values()} - {None}
    original = True in builders
    if len(builders) > 1:
        raise BadInput("config.objectives mixes variant='original' and 'clean'; rows are built in one way")
    if original and len(labels) > 1:
        raise BadInput(
            "variant 'original' builds rows for one pair label; use variant='clean' for " + ' and '.join(labels)
        )
    if original and labels and options.format != 'segment_pair':
        raise BadInput(f"config.rows.format is {options.format}; the pairs of variant='original' want segment_pair")
    if original and 'three_way' in labels:
        raise BadInput("variant='original': there is no released code for three_way pairs; use variant='clean'")
    alone = [name for name, need in needs.items() if need.one_input or need.original]
    if alone and options.packing > 1:
        raise BadInput(
            f'config.rows.packing is {options.packing}; {alone[0]} is the variant of a released code (original), which '
            'wants 1, an input for each row'
        )
    static = original or any(need.static for need in needs.values())
    return dataclasses.replace(options, labels=labels, original=original, static=static)


class Rows:
    """An endless sequence of rows, numbered from 0: epoch after epoch, each in an order of its own.

    count: rows of an epoch; 0 for as many as the split gives.
    """

    def __init__(self, store, split: str, options: RowOptions, seed: int, count: int = 0):
        self.split, self.options, self.seed, self.count = store.split(split), options, seed, count
        self.tokenizer = store.tokenizer
        self.unit_starts = units.starts(store, split, options.units)
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
        make = segment_pair_original.plan if o.original and o.labels else FORMATS[o.format]
        return make(self.split, o, self.seed, epoch, self.count)

    def batch(self, numbers: np.ndarray) -> Example:
        """The rows with these ascending numbers, [B, ...]."""
        cycle, within = np.divmod(np.asarray(numbers, np.int64), self.ends[-1])
        part = np.searchsorted(self.ends, within, side='right')
        epochs = cycle * len(self.ends) + part
        rows = within - np.concatenate([[0], self.ends[:-1]])[part]
        built = [self._build(int(epoch), rows[epochs == epoch]) for epoch in np.unique(epochs)]
        return built[0] if len(built) == 1 else jax.tree.map(lambda *x: np.concatenate(x), *built)

    def _build(self, epoch: int, rows: np.ndarray) -> Example:
        o, t = self.options, self.tokenizer
        epoch = epoch % o.dupe_factor if o.static else epoch
        plan, shape = self.plan(epoch), (len(rows), o.length)
        inputs, row_I, slot_I = ragged(plan.row_starts, rows)  # the row of the batch that holds it, and its place there
        chosen, owner_P, side_P = ragged(plan.input_starts, inputs)
        piece, row_P, first_P = plan.pieces[chosen], row_I[owner_P], side_P == 0

        # All rows lie one after another. Each piece has its slots: [CLS] if it is its input's first, text, [SEP], and
        # the padding if it is the row's last.
        slots_P = piece.length + 1 + first_P
        before = np.cumsum(slots_P) - slots_P
        begin_P = before - before[np.searchsorted(row_P, np.arange(len(rows)))][row_P] + row_P * o.length
        widths = np.diff(begin_P, append=len(rows) * o.length)
        spread = lambda values_P: np.repeat(values_P, widths).reshape(shape)
        at = np.arange(len(rows) * o.length).reshape(shape)
        text_at = at - spread(begin_P + first_P)
        length = spread(piece.length)
        text, real = (text_at >= 0) & (text_at < length), text_at <= length
        source = np.where(text, spread(piece.start) + text_at, 0)
        special = np.where(text_at < 0, t.cls_id, np.where(real, t.sep_id, t.pad_id))
        cls_I = begin_P[first_P]
        # Specials are words of their own, and so is the piece of a word that truncation left at a piece's beginning.
        forced = ~text | (text_at == 0)
        begins = forced | (self.split.gather_word_starts(source) > 0)
        unit_begins = begins if self.unit_starts is None else forced | (self.unit_starts[source] > 0)

        def of_inputs(values_I, rest: int) -> np.ndarray:
            out = np.full((len(rows), o.packing), rest, np.int32)
            out[row_I, slot_I] = values_I
            return out

        return Example(
            tokens=np.where(text, self.split.gather(source), special).astype(np.int32),
            segment_ids=np.where(real, spread(slot_I[owner_P] + 1), 0).astype(np.int32),
            positions=np.where(real, at - spread(cls_I[owner_P]), 0).astype(np.int32),
            type_ids=np.where(real, spread(side_P * plan.paired), 0).astype(np.int32),
            word_ids=(np.cumsum(begins, axis=1) - 1).astype(np.int32),
            unit_ids=(np.cumsum(unit_begins, axis=1) - 1).astype(np.int32),
            starts=of_inputs(cls_I % o.length, 0),
            labels={name: of_inputs(values[inputs], -1) for name, values in plan.labels.items()},
            epoch=np.full(len(rows), epoch, np.uint32),
            index=plan.index[rows],
        )


def padded(example: Example, rows: int) -> Example:
    """Filled up to `rows` with empty rows: all padding, no labels, so weight zero in every Term."""
    missing = rows - len(example.index)
    filled = jax.tree.map(lambda x: np.concatenate([x, np.zeros((missing, *x.shape[1:]), x.dtype)]), example)
    labels = {
        name: np.concatenate([y, np.full((missing, y.shape[1]), -1, y.dtype)]) for name, y in example.labels.items()
    }
    return dataclasses.replace(filled, labels=labels)
