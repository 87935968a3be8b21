"""ELECTRA whose loss is at the 15 % of the tokens that were masked only.

    python -m experiments.pretrain --config=configs/electra_15.py:tiny --workdir=runs/electra_15

Clark et al. 2020, Table 5, mean GLUE score (base): ELECTRA 15% 82.4; ELECTRA 85.0, BERT 82.2: most of the gain is from
the loss at all tokens.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'electra': {'weight': 50.0, 'width': 0.25, 'embeddings': 'tied', 'loss': 'masked'}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'random_token')
    return config
