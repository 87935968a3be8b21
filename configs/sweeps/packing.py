"""Are rows worth packing? Single sentences' pairs and whole documents' sentences, in rows of their own and packed.

    python -m experiments.benchmark --config=configs/sweeps/packing.py --workdir=runs/packing --arms

Real tokens a second, padding not counted: packed pairs of sentences about double, in two minutes.
"""

from bertx.sweep import Sweep, arm, chain
from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.rows.length = 128
    config.train.update(batch=32, steps=500, dropout=0.0, attention_dropout=0.0)
    config.evaluation.tasks = ('mlm',)
    config.evaluation.refit.tasks = ()
    return config


def sweep() -> Sweep:
    arms = [
        arm(f'{format} {name}', set={'rows.format': format, 'rows.packing': packing})
        for format in ('sentence_pair', 'doc_sentences')
        for name, packing in (('padded', 1), ('packed', 8))
    ]
    return chain(*arms)
