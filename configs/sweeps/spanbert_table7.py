"""One segment or two, and the span boundary objective: SpanBERT's Table 7 (Joshi et al. 2020).

    python -m experiments.sweep --config=configs/sweeps/spanbert_table7.py:tiny --workdir=runs/spanbert_table7

MLM is measured on rows of one segment for all arms.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep

SPANS = {'select': {'name': 'spans'}}


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=300, paper=papers.spanbert)
    config.rows.short_probability = 0.0  # as one segment is made in the paper
    config.evaluation.format = 'full_sentences'
    return config


def sweep() -> Sweep:
    one = {'rows.format': 'full_sentences'}
    return papers.runs(
        arm('two segments nsp', objectives={'mlm': SPANS, 'nsp': {}}),
        arm('one segment', set=one, objectives={'mlm': SPANS}),
        arm('one segment sbo', set=one, objectives={'sbo': {}}),
    )


def published() -> list[Published]:
    return of_table(('SQuAD 2.0', 'MNLI-m', 'QNLI', 'GLUE'), 'two segments nsp', {
        'two segments nsp': (85.4, 87.0, 93.3, 83.4),
        'one segment': (86.7, 87.3, 93.8, 83.8),
        'one segment sbo': (86.8, 87.6, 93.9, 84.0),
    }, papers.ERA)  # fmt: skip
