"""Masked language modelling on runs of one to three whole words, shorter ones more often.

    python -m experiments.pretrain --config=configs/ngram.py:tiny --workdir=runs/ngram

Lan et al. 2020 (ALBERT), section 4.1; the paper has no figure for it alone.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {'select': {'name': 'ngrams'}}}
    config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop')
    return config
