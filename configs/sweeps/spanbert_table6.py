"""Which tokens are masked together? SpanBERT's Table 6 (Joshi et al. 2020).

    python -m experiments.sweep --config=configs/sweeps/spanbert_table6.py:tiny --workdir=runs/spanbert_table6

Named entities and noun phrases want an annotation file (config.rows.units); mined collocations stand in for them.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=250, paper=papers.spanbert)
    config.rows.units = 'pmi'
    return config


def sweep() -> Sweep:
    kinds = {'subwords': 'tokens', 'whole words': 'whole_words', 'phrases': 'units', 'geometric spans': 'spans'}
    return papers.runs(*(arm(name, objectives={'mlm': {'select': {'name': kind}}}) for name, kind in kinds.items()))


def published() -> list[Published]:
    return of_table(('SQuAD 2.0', 'MNLI-m', 'QNLI', 'GLUE'), 'geometric spans', {
        'geometric spans': (85.4, 87.0, 93.3, 83.4),
        'subwords': (83.8, 86.7, 92.5, 83.2),
        'whole words': (84.3, 86.3, 92.8, 82.9),
        'phrases': (85.0, 86.5, 93.2, 83.5),
    }, papers.ERA)  # fmt: skip
