"""Causal language modelling, left to right, in the same encoder.

    python -m experiments.pretrain --config=configs/clm.py:tiny --workdir=runs/clm

Devlin et al. 2019, Table 5, "LTR & No NSP": MNLI-m 82.1, QNLI 84.3, MRPC 77.5, SST-2 92.1, SQuAD F1 77.8; the
bidirectional "No NSP": 83.9, 84.9, 86.5, 92.6, 87.9.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'clm': {}}
    config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop')
    return config
