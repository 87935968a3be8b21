"""Token objectives across families of encoders: does what an objective teaches depend on the encoder?

    python -m experiments.sweep --config=configs/sweeps/families.py --workdir=runs/families

Two families of one size, trained by masked words and as ELECTRA; 12 runs of 1.0 M tokens.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs.sweeps import token_objectives

FAMILIES = ('bert', 'modernbert')


def get_config(size: str = 'tiny'):
    return token_objectives.get_config(size)


def sweep() -> Sweep:
    arms = [
        arm(f'{family} {name}', set={'encoder.family': family}, objectives={name: {}})
        for family in FAMILIES
        for name in ('mlm', 'electra')
    ]
    return prod(chain(*arms), seeds(3))
