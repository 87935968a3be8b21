"""Masked language modelling and sentence structure: does B follow A, precede it, or come from another document?

    python -m experiments.pretrain --config=configs/three_way.py:tiny --workdir=runs/three_way

Wang et al. 2020 (StructBERT): SQuAD 1.1 F1 93.0, SNLI 91.7 (large), together with an objective on the order of words
that is not here.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'mlm': {}, 'three_way': {}}
    config.evaluation.tasks = ('mlm', 'nsp', 'sop', 'three_way')
    config.evaluation.refit.tasks = ('nsp', 'sop', 'three_way')
    return config
