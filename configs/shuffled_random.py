"""Which tokens have been permuted, which replaced by random ones? 10 % and 10 %.

    python -m experiments.pretrain --config=configs/shuffled_random.py:tiny --workdir=runs/shuffled_random

Yamaguchi et al. 2021 find five such objectives as good as MLM or better in GLUE and SQuAD (base); with the best one,
BERT-medium loses 1 % of GLUE.
Alajrami & Aletras 2022 find the linguistic probes of such objectives close to those of MLM.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'shuffled_random': {}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'shuffled_random')
    return config
