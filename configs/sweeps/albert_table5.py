"""NSP, SOP or neither: ALBERT's Table 5 (Lan et al. 2020).

    python -m experiments.sweep --config=configs/sweeps/albert_table5.py:tiny --workdir=runs/albert_table5

The tiny scale is BERT-tiny and a shorter nsp_vs_sop; one learning rate for all arms, as in the paper.

Too short to see the paper's contrast: NSP leaves chance after 1 to 1.5 M tokens (nsp_vs_sop has 2 M), and SOP did not
in 8 M tokens of rows of 64, whose words tell the order of 0.50 to 0.525 of held-out pairs without an encoder (0.54 in
rows of 512). :small, with rows of 128 and 1.6 G tokens, is where it is to be looked for.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep

PAIRS = ('nsp', 'sop')


def get_config(scale: str = 'tiny'):
    return papers.at(scale, steps=400, paper=papers.albert, tasks=('mlm', *PAIRS), refit=PAIRS, family='bert')


def sweep() -> Sweep:
    return papers.runs(
        arm('none', objectives={'mlm': {}}),
        arm('nsp', objectives={'mlm': {}, 'nsp': {}}),
        arm('sop', objectives={'mlm': {}, 'sop': {}}),
    )


def published() -> list[Published]:
    intrinsic = {name.upper(): (name, 'refit') for name in PAIRS} | {'MLM': ('mlm', 'own')}
    measures = ('MLM', 'NSP', 'SOP', 'SQuAD 2.0', 'MNLI-m', 'SST-2', 'RACE')
    return of_table(measures, 'none', {
        'none': (54.9, 52.4, 53.3, 78.1, 81.5, 89.9, 61.7),
        'nsp': (54.5, 90.5, 52.0, 77.2, 81.6, 91.1, 62.3),
        'sop': (54.0, 78.9, 86.5, 80.0, 82.0, 90.3, 64.0),
    }, dict.fromkeys(measures, papers.ERA) | intrinsic)  # fmt: skip
