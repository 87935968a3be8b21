"""Masked language modelling alone.

    python -m experiments.pretrain --config=configs/mlm.py:tiny --workdir=runs/mlm

Devlin et al. 2019, Table 5, "No NSP" (base): MNLI-m 83.9, QNLI 84.9, MRPC 86.5, SST-2 92.6, SQuAD F1 87.9.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {}}
    config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop')
    return config
