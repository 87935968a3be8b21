"""Masked language modelling on spans of geometric length, 80/10/10 drawn once for a span; rows of one document.

    python -m experiments.pretrain --config=configs/span.py:tiny --workdir=runs/span

Joshi et al. 2020 (SpanBERT), Table 7, one sequence without SBO: SQuAD 2.0 86.7, NewsQA 73.4, TriviaQA 80.0,
coreference 76.3, MNLI-m 87.3, QNLI 93.8, GLUE 83.8 (large).
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.rows.format = 'doc_sentences'
    config.rows.short_probability = 0.0
    config.objectives = {'mlm': {'select': {'name': 'spans'}, 'replace_by': {'name': 'split', 'per': 'unit'}}}
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm',)
    return config
