"""Which tokens have been permuted? 15 % of them.

    python -m experiments.pretrain --config=configs/shuffled_token.py:tiny --workdir=runs/shuffled_token

Yamaguchi et al. 2021 find five such objectives as good as MLM or better in GLUE and SQuAD (base); with the best one,
BERT-medium loses 1 % of GLUE.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'shuffled_token': {}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'shuffled_token')
    return config
