"""Are masks drawn once or anew? RoBERTa's Table 1 (Liu et al. 2019).

    python -m experiments.sweep --config=configs/sweeps/roberta_table1.py:tiny --workdir=runs/roberta_table1

Static masks are one of ten for each row, as BERT's, and the paper's 40 epochs saw each mask four times. The tiny scale
sees its only mask four times: a tenth of the text, four epochs. One learning rate for both arms, as in the paper.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, steps=400, paper=papers.roberta)
    if scale == 'tiny':
        config.data.validation = 0.75
        config.rows.dupe_factor = 1
    return config


def sweep() -> Sweep:
    return papers.runs(arm('static', objectives={'mlm': {'static': True}}), arm('dynamic', objectives={'mlm': {}}))


def published() -> list[Published]:
    rows = {'static': (78.3, 84.3, 92.5), 'dynamic': (78.7, 84.0, 92.9)}
    return of_table(('SQuAD 2.0', 'MNLI-m', 'SST-2'), 'static', rows, papers.ERA)
