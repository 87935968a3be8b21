"""Replace MLM: as MLM, but with samples of a small masked language model in place of [MASK].

    python -m experiments.pretrain --config=configs/replace_mlm.py:tiny --workdir=runs/replace_mlm

Clark et al. 2020, Table 5, mean GLUE score (base): Replace MLM 82.4; BERT 82.2, ELECTRA 85.0: that fine-tuning sees no
[MASK] matters little.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.objectives = {'replace_mlm': {'weight': 1.0, 'width': 0.25}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'nsp', 'sop', 'random_token')
    return config
