"""Where does ELECTRA's gain come from? ELECTRA's Table 5 (Clark et al. 2020), at equal FLOPs.

    python -m experiments.sweep --config=configs/sweeps/electra_table5.py:tiny --workdir=runs/electra_table5

The generator counts. The paper gives all arms one learning rate and equal steps.
"""

from bertx.published import Published, of_table
from bertx.sweep import Sweep, arm, chain
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep

TASKS = ('mlm', 'random_token')


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, paper=papers.electra, tasks=TASKS, refit=TASKS)
    if scale == 'tiny':
        config.budget.update(of='flops', amount=1e12)
    return config


def sweep() -> Sweep:
    return papers.runs(
        chain(
            arm('mlm', objectives={'mlm': {}}),
            arm('electra', objectives={'electra': {}}),
            arm('electra 15 %', objectives={'electra': {'loss': 'masked'}}),
            arm('replace mlm', objectives={'replace_mlm': {}}),
            arm('all tokens mlm', objectives={'all_tokens_mlm': {}}),
        )
    )


def published() -> list[Published]:
    figures = {'mlm': 82.2, 'electra': 85.0, 'electra 15 %': 82.4, 'replace mlm': 82.4, 'all tokens mlm': 84.3}
    return of_table(('GLUE',), 'mlm', {name: (value,) for name, value in figures.items()}, papers.ERA)
