"""Which tokens have been replaced by random ones? 15 % of them.

    python -m experiments.pretrain --config=configs/random_token.py:tiny --workdir=runs/random_token

Yamaguchi et al. 2021 find five such objectives as good as MLM or better in GLUE and SQuAD (base); with the best one,
BERT-medium loses 1 % of GLUE.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'random_token': {}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'random_token')
    return config
