"""What is a row made of? RoBERTa's Table 2 (Liu et al. 2019): four input formats.

    python -m experiments.sweep --config=configs/sweeps/roberta_table2.py:tiny --workdir=runs/roberta_table2

The tokens of a batch are equal: as many inputs share a row as it has room for. Rows are not made short on purpose, in
no arm. MLM is measured on rows of segment pairs for all arms.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep

PACKING = 16  # inputs of a row at most: pairs of short sentences in 512 tokens


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=250, paper=papers.roberta)
    config.rows.short_probability = 0.0
    config.evaluation.format = 'segment_pair'
    config.evaluation.packing = 1
    return config


def sweep() -> Sweep:
    of = lambda name, packing=1: {'rows.format': name, 'rows.packing': packing}
    return papers.runs(
        arm('segment pair + nsp', set=of('segment_pair'), objectives={'mlm': {}, 'nsp': {}}),
        arm('sentence pair + nsp', set=of('sentence_pair', PACKING), objectives={'mlm': {}, 'nsp': {}}),
        arm('full sentences', set=of('full_sentences'), objectives={'mlm': {}}),
        arm('doc sentences', set=of('doc_sentences', PACKING), objectives={'mlm': {}}),
    )


def published() -> list[Published]:
    return of_table(('SQuAD 1.1', 'SQuAD 2.0', 'MNLI-m', 'SST-2', 'RACE'), 'segment pair + nsp', {
        'segment pair + nsp': (90.4, 78.7, 84.0, 92.9, 64.2),
        'sentence pair + nsp': (88.7, 76.2, 82.9, 92.1, 63.0),
        'full sentences': (90.4, 79.1, 84.7, 92.5, 64.8),
        'doc sentences': (90.6, 79.7, 84.7, 92.7, 65.6),
    }, papers.ERA)  # fmt: skip
