"""Is it worth to start from published weights? MLM from them, from scratch, and on them as they are (frozen).

    python -m experiments.sweep --config=configs/sweeps/continued.py:FOLDER --workdir=runs/continued

FOLDER holds a BERT of 6 layers, 384 wide, with 12 heads, such as all-MiniLM-L6-v2. Three seeds of 0.12 M tokens each;
the MLM head is new in every arm. A head alone wants a higher rate: its training loss after one run was 6.95 at 5e-4,
6.55 at 2e-3 and 6.47 at 6e-3.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs import base


def get_config(folder: str = ''):
    config = base.get_config('base')
    config.init_from = config.data.tokenizer = folder
    config.encoder.update(layers=6, width=384, heads=12, mlp_width=1536)
    config.rows.length = 64
    config.optimizer.learning_rate = 5e-4
    config.optimizer.warmup = 0.1
    config.train.update(batch=16, steps=120, dropout=0.0, attention_dropout=0.0, validate_every=60)
    config.evaluation.update(tasks=('mlm',), test_rows=1024, validation_rows=256)
    config.evaluation.refit.tasks = ()
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('frozen', set={'train.freeze_encoder': True, 'optimizer.learning_rate': 6e-3}, objectives={'mlm': {}}),
        arm('scratch', set={'init_from': ''}, objectives={'mlm': {}}),
        arm('continued', objectives={'mlm': {}}),
    )
    return prod(arms, seeds(3))
