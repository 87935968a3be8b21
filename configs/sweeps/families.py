"""Families of encoders at equal FLOPs (:tiny; the other scales: equal steps). Which learns most from the same?

    python -m experiments.sweep --config=configs/sweeps/families.py:tiny --workdir=runs/families

ELECTRA with its own objective, whose generator counts, the others with MLM. DeBERTa is v3 with its mask decoder.
"""

from bertx.sweep import Sweep, arm
from configs import papers
from configs.papers import downstream, get_downstream  # noqa: F401 - read by experiments.sweep


def get_config(scale: str = 'tiny'):
    config = papers.at(scale, refit=('mlm',))
    if scale == 'tiny':
        config.budget.update(of='flops', amount=8e11)
    return config


def sweep() -> Sweep:
    of = lambda family, **more: {'encoder.family': family} | more
    return papers.runs(
        arm('bert', set=of('bert'), objectives={'mlm': {}}),
        arm('albert', set=of('albert'), objectives={'mlm': {}}),
        arm('electra', set=of('electra'), objectives={'electra': {}}),
        arm('deberta', set=of('deberta_v3', **{'encoder.mask_decoder': True}), objectives={'mlm': {}}),
        arm('distilbert', set=of('distilbert'), objectives={'mlm': {}}),
        arm('modernbert', set=of('modernbert'), objectives={'mlm': {}}),
    )
