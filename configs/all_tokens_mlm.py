"""All-Tokens MLM: as Replace MLM, but every token is predicted, and may be copied.

    python -m experiments.pretrain --config=configs/all_tokens_mlm.py:tiny --workdir=runs/all_tokens_mlm

Clark et al. 2020, Table 5, mean GLUE score (base): All-Tokens MLM 84.3; Replace MLM 82.4, BERT 82.2, ELECTRA 85.0.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'all_tokens_mlm': {'weight': 1.0, 'width': 0.25}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'random_token')
    return config
