"""Is a masked token a content word, a stop word, digits or punctuation?

    python -m experiments.pretrain --config=configs/token_type.py:tiny --workdir=runs/token_type

Yamaguchi et al. 2021 find five such objectives as good as MLM or better in GLUE and SQuAD (base); with the best one,
BERT-medium loses 1 % of GLUE.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'token_type': {}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'token_type')
    return config
