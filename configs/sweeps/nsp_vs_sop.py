"""NSP, SOP or neither: ALBERT's Table 5 (Lan et al. 2020) on the State of the Union addresses.

    python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop

Nine runs of 2.0 M tokens each. The initial gains and the rates were chosen on validation documents, in a random search
of 60 points with two seeds each.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs import base
from configs.finetune import quick


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.data.test = 0.15  # of the documents: the intervals come from them
    config.rows.length = 64
    # With BERT's gains [CLS] hardly differs from row to row at this width (its deviation was 0.1 to 0.2 of that of the
    # tokens), and pair objectives stay at chance for twice as long.
    config.encoder.std = 0.04
    config.encoder.place_gain = 0.2
    config.encoder.value_gain = 2.5
    config.optimizer.learning_rate = 1.9e-3
    config.optimizer.warmup = 0.3  # of the steps
    config.train.batch = 32
    config.train.steps = 1000
    config.train.dropout = 0.0
    config.train.attention_dropout = 0.0
    config.train.log_every = 25
    config.train.validate_every = 250
    config.train.checkpoint_every = 500
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('none', objectives={'mlm': {}}),
        arm('nsp', objectives={'mlm': {}, 'nsp': {}}),
        arm('sop', objectives={'mlm': {}, 'sop': {}}),
    )
    return prod(arms, seeds(3))


def get_downstream():
    return quick.get_config()


def downstream() -> Sweep:
    return seeds(1)
