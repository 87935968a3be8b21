"""RoBERTa's DOC-SENTENCES (Liu et al. 2019, section 4.2): whole sentences of one document, [CLS] text [SEP]. The last
input of a document may be much shorter; config.rows.packing fills such rows up."""

from bertx.text import full_sentences
from bertx.text.plan import Plan, RowOptions


def plan(split, options: RowOptions, seed: int, epoch: int, rows: int = 0) -> Plan:
    """As full_sentences, but no input crosses the end of a document."""
    return full_sentences.plan(split, options, seed, epoch, rows, cross=False)
