"""Masked language modelling and sentence order prediction: ALBERT's objectives.

    python -m experiments.pretrain --config=configs/sop.py:tiny --workdir=runs/sop

Lan et al. 2020, Table 5, "SOP" (ALBERT-base): accuracy 54.0 in MLM, 78.9 in NSP, 86.5 in SOP; average of the
downstream tasks 80.1, where NSP has 79.2 and neither 79.0.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {}, 'sop': {}}
    return config
