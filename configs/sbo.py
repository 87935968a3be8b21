"""Masked language modelling on spans and the span boundary objective: SpanBERT.

    python -m experiments.pretrain --config=configs/sbo.py:tiny --workdir=runs/sbo

Joshi et al. 2020, Table 7, one sequence with SBO: SQuAD 2.0 86.8, NewsQA 74.1, TriviaQA 80.3, coreference 79.0,
MNLI-m 87.6, QNLI 93.9, GLUE 84.0 (large); without it configs/span.py.
"""

from configs import span


def get_config(size: str = 'tiny'):
    config = span.get_config(size)
    config.objectives = {'sbo': {}}
    return config
