"""Masked language modelling and next sentence prediction: BERT.

    python -m experiments.pretrain --config=configs/nsp.py:tiny --workdir=runs/nsp

Devlin et al. 2019, Table 5, "BASE": MNLI-m 84.4, QNLI 88.4, MRPC 86.7, SST-2 92.7, SQuAD F1 88.5. Lan et al. 2020,
Table 5, "NSP": accuracy 54.5 in MLM, 90.5 in NSP, 52.0 in SOP.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {}, 'nsp': {}}
    return config
