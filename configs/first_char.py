"""With which character does a masked token begin?

    python -m experiments.pretrain --config=configs/first_char.py:tiny --workdir=runs/first_char

Yamaguchi et al. 2021 find five such objectives as good as MLM or better in GLUE and SQuAD (base); with the best one,
BERT-medium loses 1 % of GLUE.
Alajrami & Aletras 2022 find the linguistic probes of such objectives close to those of MLM.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'first_char': {}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'first_char')
    return config
