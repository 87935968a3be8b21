"""What flows between host, objectives, encoder and trainer.

Shape legend, used as name suffixes in the encoder, heads and objectives:
    B batch   L row length   D width   H heads   C width of a head   F feed-forward width   V vocabulary
    E width of the embedding tables   P positions that have an embedding
    K slots for predicted positions in a row   S pairs that a row may hold   N examples   R runs
"""

from typing import Any

import jax
from flax import struct

Array = Any  # jax.Array under a trace, numpy.ndarray on the host

FIRST_CHARS = 29  # a to z, punctuation, digit, other: classes of Vocabulary.first_char_V
TOKEN_TYPES = 4  # content word, stop word, digits, punctuation: classes of Vocabulary.type_V


@struct.dataclass
class Vocabulary:
    """What noise must know of the tokenizer and the corpus."""

    mask: Array  # [] the id of [MASK]
    ordinary_V: Array  # [V] bool: text, that is no special token; may be selected and may replace
    unigram_V: Array  # [V] float32: counts in the training split
    first_char_V: Array = None  # [V] int32: class of a piece's first character, of FIRST_CHARS (bertx/text/tables.py)
    type_V: Array = None  # [V] int32: content word, stop word, digits or punctuation, of TOKEN_TYPES


@struct.dataclass
class Example:
    """One row, made on the host and the same for every objective. A batch has a leading B on each field."""

    tokens: Array  # [L] int32
    segment_ids: Array  # [L] int32: 1, 2, ... for what is packed in a row, 0 for padding; no attention across
    positions: Array  # [L] int32, from 0 in each segment
    type_ids: Array  # [L] int32: 0 for [CLS] A [SEP], 1 for B [SEP]
    word_ids: Array  # [L] int32: equal for the pieces of a word; each special token is a word of its own
    unit_ids: Array  # [L] int32: equal for the pieces of a unit of config.rows.units; elsewhere units are words
    starts: Array  # [S] int32: where each packed pair's [CLS] stands
    labels: dict[str, Array]  # name -> [S] int32; -1: no such pair here
    epoch: Array  # [] uint32: with `index` the key of this row's noise
    index: Array  # [] uint32


@struct.dataclass
class View:
    """All that an encoder may see of a row."""

    tokens: Array
    segment_ids: Array
    positions: Array
    type_ids: Array


@struct.dataclass
class Tables:
    """Embedding tables that one network may give to another."""

    token_VE: Array
    position_PE: Array


@struct.dataclass
class Encoded:
    """What the encoder gives to the heads."""

    hidden_BLD: Array
    table_VE: Array  # the input embedding, for tied output layers
    view: View
    causal: bool = struct.field(pytree_node=False, default=False)
    decoded_BLD: Array | None = None  # for token heads, where the encoder has a mask decoder
    states_NBLD: Array | None = None  # with taps: after the embedding and after each of the N - 1 layers
    attention_NBHQK: Array | None = None  # with taps: of each of the N layers

    @property
    def for_tokens(self) -> Array:
        """What heads that predict tokens read."""
        return self.hidden_BLD if self.decoded_BLD is None else self.decoded_BLD


@struct.dataclass
class Term:
    """A loss or metric as sum and weight per example ([B] each), never a mean: the trainer divides once."""

    sum: Array
    weight: Array


@struct.dataclass
class Loss:
    """A term's coefficient in the total loss, and the term."""

    coefficient: Array
    term: Term


def view_of(example: Example) -> View:
    """The uncorrupted view of a row."""
    return View(example.tokens, example.segment_ids, example.positions, example.type_ids)


def total(term: Term) -> Term:
    """The sum over the examples of a batch: still sum and weight."""
    return jax.tree.map(lambda x: x.sum(), term)


@struct.dataclass
class DropoutRates:
    """Traced, so that a sweep over them compiles once. Where the whole is None, dropout is off in the graph."""

    hidden: Array
    attention: Array | None = None  # None: off in the graph, which leaves the fused attention usable
