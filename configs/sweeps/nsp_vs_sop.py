"""NSP, SOP or neither: ALBERT's Table 5 (Lan et al. 2020) on the State of the Union addresses.

    python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop

Nine runs of 1.0 M tokens each. The size and the rates were tuned on validation documents, with seed 0.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.rows.length = 64
    config.encoder.std = 0.1  # as high for width 128 as was found to train well
    # With BERT's gains [CLS] hardly differs from row to row at this width (its deviation was 0.1 to 0.2 of that of the
    # tokens), and pair objectives stay at chance.
    config.encoder.place_gain = 0.2
    config.encoder.value_gain = 1.7
    config.optimizer.learning_rate = 1e-3  # at 3e-3 label noise saturates the pooler: most units beyond 0.95
    config.optimizer.b2 = 0.98
    config.optimizer.warmup = 0.1
    config.train.batch = 32
    config.train.steps = 500
    config.train.dropout = 0.0
    config.train.attention_dropout = 0.0
    config.train.log_every = 25
    config.train.validate_every = 125
    config.train.checkpoint_every = 250
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('none', objectives={'mlm': {}}),
        arm('nsp', objectives={'mlm': {}, 'nsp': {}}),
        arm('sop', objectives={'mlm': {}, 'sop': {}}),
    )
    return prod(arms, seeds(3))
