"""Masked language modelling on whole words.

    python -m experiments.pretrain --config=configs/wwm.py:tiny --workdir=runs/wwm

README of google-research/bert (large, uncased): SQuAD 1.1 F1/EM 91.0/84.3 -> 92.8/86.7, MultiNLI 86.05 -> 87.07.
Joshi et al. 2020, Table 6, "Whole Words" beside "Subword": SQuAD 2.0 84.3 and 83.8, MNLI-m 86.3 and 86.7.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {'select': {'name': 'whole_words'}}}
    config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop')
    return config
