"""NSP, SOP or neither: ALBERT's Table 5 on the State of the Union addresses.

python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.rows.length = 64
    config.encoder.std = 0.1
    config.optimizer.learning_rate = 3e-3
    config.optimizer.warmup = 0.1
    config.train.batch = 32
    config.train.steps = 750
    config.train.dropout = 0.0
    config.train.attention_dropout = 0.0
    config.train.log_every = 25
    config.train.validate_every = 250
    config.train.checkpoint_every = 250
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('none', objectives={'mlm': {}}),
        arm('nsp', objectives={'mlm': {}, 'nsp': {}}),
        arm('sop', objectives={'mlm': {}, 'sop': {}}),
    )
    return prod(arms, seeds(3))
