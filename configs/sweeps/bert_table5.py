"""What do NSP and reading to both sides give? BERT's Table 5 (Devlin et al. 2019).

    python -m experiments.sweep --config=configs/sweeps/bert_table5.py:tiny --workdir=runs/bert_table5

One learning rate for all arms: the paper's own choice, and that of nsp_vs_sop.
"""

from bertx.report.published import Published, of_table
from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    return papers.at(scale, steps=300, refit=('mlm',))


def sweep() -> Sweep:
    return papers.runs(
        arm('mlm + nsp', objectives={'mlm': {}, 'nsp': {}}),
        arm('no nsp', objectives={'mlm': {}}),
        arm('ltr no nsp', objectives={'clm': {}}),
    )


def published() -> list[Published]:
    measures = ('MNLI-m', 'QNLI', 'MRPC', 'SST-2', 'SQuAD 1.1')
    return of_table(measures, 'no nsp', {
        'mlm + nsp': (84.4, 88.4, 86.7, 92.7, 88.5),
        'no nsp': (83.9, 84.9, 86.5, 92.6, 87.9),
        'ltr no nsp': (82.1, 84.3, 77.5, 92.1, 77.8),
    }, papers.ERA)  # fmt: skip
