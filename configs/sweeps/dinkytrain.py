"""How much should be masked? The table of Wettig et al. 2023 (DinkyTrain's README): mask rates, 80/10/10 or not.

    python -m experiments.sweep --config=configs/sweeps/dinkytrain.py:tiny --workdir=runs/dinkytrain

MLM is measured with a mask of 15 % for all arms, with the arm's own head.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    return papers.at(scale, steps=250, paper=papers.dinkytrain)


def sweep() -> Sweep:
    masked = lambda rate: {
        'mlm': {'select': {'name': 'tokens', 'rate': rate}, 'replace_by': {'mask': 1.0, 'random': 0.0}}
    }
    arms = [arm(f'{rate:.0%} masked', objectives=masked(rate)) for rate in (0.15, 0.4, 0.8)]
    return papers.runs(*arms, arm('15% 80-10-10', objectives={'mlm': {}}))


def published() -> list[Published]:
    measures = ('MNLI-m', 'QNLI', 'QQP', 'SST-2')
    return of_table(measures, '15% masked', {
        '15% masked': (84.2, 90.9, 87.8, 93.3),
        '40% masked': (84.5, 91.6, 88.1, 92.8),
        '80% masked': (80.8, 87.9, 87.1, 90.5),
        '15% 80-10-10': (83.7, 90.4, 87.8, 93.2),
    }, papers.ERA)  # fmt: skip
