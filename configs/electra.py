"""ELECTRA: which tokens of a text are samples of a small masked language model that is trained beside?

    python -m experiments.pretrain --config=configs/electra.py:tiny --workdir=runs/electra

Clark et al. 2020, Table 5, mean GLUE score (base): ELECTRA 85.0, All-Tokens MLM 84.3, Replace MLM 82.4, ELECTRA 15%
82.4, BERT 82.2.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'electra': {'weight': 50.0, 'width': 0.25, 'embeddings': 'tied', 'variant': 'clean'}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'random_token')
    return config
