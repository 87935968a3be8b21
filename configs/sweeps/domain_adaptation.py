"""Does it pay to go on pretraining on the domain's text before fine-tuning (Gururangan et al. 2020)?

    python -m experiments.sweep --config=configs/sweeps/domain_adaptation.py:FOLDER --workdir=runs/domain_adaptation

FOLDER holds a BERT of 6 layers, 384 wide, with 12 heads, such as all-MiniLM-L6-v2. The domain is that of the State of
the Union addresses; the task is whose time a paragraph is of, with few and with many labels. 'as it is' trains no more
than an MLM head on the frozen encoder: its three seeds, of 0.12 M tokens each, differ in their fine-tuning alone.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs.finetune import quick
from configs.sweeps import continued


def get_config(folder: str = ''):
    config = continued.get_config(folder)
    config.data.test = 0.15  # as the task is split
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('as it is', set={'train.freeze_encoder': True}, objectives={'mlm': {}}),
        arm('adapted', objectives={'mlm': {}}),
    )
    return prod(arms, seeds(3))


def get_downstream():
    config = quick.get_config()
    config.train.batch = 16
    return config


def downstream() -> Sweep:
    sizes = [{'train.examples': n} for n in (200, 1000)]
    rates = [{'optimizer.learning_rate': rate} for rate in (5e-5, 2e-4)]
    return prod(sizes, rates, seeds(2))
