"""Where does ELECTRA's gain come from? ELECTRA's Table 5 (Clark et al. 2020).

    python -m experiments.sweep --config=configs/sweeps/electra_table5.py:tiny --workdir=runs/electra_table5

At the tiny scale at equal FLOPs, the generator counted; at the others at equal steps, as in the paper, which gives all
arms one learning rate.

At the tiny scale's 1e12 FLOPs a run, a quarter of a million tokens, MLM is ahead of all that learn from a generator:
the generator itself still writes unigrams, and its fakes teach little. In the paper ELECTRA-Small (1.4e18 FLOPs) passes
what BERT-Small ends with, GLUE 75.1, between 6 % (74.1) and 12 % (76.0) of them; :small has 1.2e17 FLOPs.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, paper=papers.electra, refit=('mlm',))
    if scale == 'tiny':
        config.budget.update(of='flops', amount=1e12)
    return config


def sweep() -> Sweep:
    return papers.runs(
        arm('mlm', objectives={'mlm': {}}),
        arm('electra', objectives={'electra': {}}),
        arm('electra 15 %', objectives={'electra': {'loss': 'masked'}}),
        arm('replace mlm', objectives={'replace_mlm': {}}),
        arm('all tokens mlm', objectives={'all_tokens_mlm': {}}),
    )


def published() -> list[Published]:
    figures = {'mlm': 82.2, 'electra': 85.0, 'electra 15 %': 82.4, 'replace mlm': 82.4, 'all tokens mlm': 84.3}
    return of_table(('GLUE',), 'mlm', {name: (value,) for name, value in figures.items()}, papers.ERA)
