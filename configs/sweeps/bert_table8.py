"""What is put in the place of a selected token? BERT's Table 8 (Devlin et al. 2019).

    python -m experiments.sweep --config=configs/sweeps/bert_table8.py:tiny --workdir=runs/bert_table8

One learning rate for all arms, as in the paper.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep

SHARES = {
    '80/10/10': (0.8, 0.1),
    '100/0/0': (1.0, 0.0),
    '80/0/20': (0.8, 0.2),
    '80/20/0': (0.8, 0.0),
    '0/20/80': (0.0, 0.8),
    '0/0/100': (0.0, 1.0),
}  # mask/keep/random -> mask, random; fmt: skip


def get_config(scale: str = 'tiny'):
    return papers.at(scale, steps=150)


def sweep() -> Sweep:
    of = lambda mask, random: {'mlm': {'replace_by': {'mask': mask, 'random': random}}}
    return papers.runs(*(arm(name.replace('/', '-'), objectives=of(*x)) for name, x in SHARES.items()))


def published() -> list[Published]:
    return of_table(('MNLI-m', 'NER'), '80-10-10', {
        '80-10-10': (84.2, 95.4),
        '100-0-0': (84.3, 94.9),
        '80-0-20': (84.1, 95.2),
        '80-20-0': (84.4, 95.2),
        '0-20-80': (83.7, 94.8),
        '0-0-100': (83.6, 94.9),
    }, papers.ERA)  # fmt: skip
