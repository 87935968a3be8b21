r"""A student of half the layers taught by a finished run, beside masked language modelling: DistilBERT.

    python -m experiments.pretrain --config=configs/mlm.py:tiny --workdir=runs/mlm
    python -m experiments.pretrain --config=configs/distill.py:tiny --workdir=runs/distill \
        --config.objectives.distill.teacher=runs/mlm/runs/FOLDER

Sanh et al. 2019, Table 1: GLUE 77.0 with 6 layers, 79.5 for the teacher, BERT-base. There the student starts as every
other layer of the teacher; here it starts at random, which cost them 3.69 points (Table 4).
"""

from bertx.families import SIZES
from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.encoder.layers = SIZES[size][0] // 2
    config.objectives = {'mlm': {'weight': 2.0}, 'distill': {'teacher': ''}}
    config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop')
    return config
