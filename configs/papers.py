"""What the presets of published tables share: three scales of one sweep, and a downstream column.

:tiny   2 layers, width 128, on the State of the Union addresses; three seeds on two CPU cores take minutes. With
        ModernBERT's rotary positions and norms: after 1.2 M tokens it has 0.22 of the masked tokens, with BERT's
        learned positions it has 0.08, hardly more than the most frequent token's 0.065, and all arms are alike.
:small  4 layers, width 512, on one GPU, on any text (config.data.source): not run until a table says so.
:paper  the published recipe, on Wikipedia by TensorFlow Datasets. `experiments.compile` says whether it fits.
"""

import os
import pathlib

from bertx.errors import one_of
from bertx.sweep import Sweep, chain, prod, seeds
from configs import base
from configs.finetune import quick, real
from configs.sweeps import nsp_vs_sop

SCALES = ('tiny', 'small', 'paper')
GLUE = ('sst2', 'mrpc')
ERA = ('era', 'finetuned')  # the column that stands in for a paper's downstream tasks: whose time is a paragraph of?


def at(scale: str, steps: int = 300, paper=None, tasks=('mlm',), refit=(), family: str = 'modernbert'):
    """steps, family: of the tiny runs. paper: changes the published BERT recipe into the paper's own.

    tasks: that the arms are measured on; refit: those of them that some arms have no head for, or not one alike.
    """
    one_of('the scale of a preset', scale, SCALES)
    if scale == 'tiny':
        config = nsp_vs_sop.get_config('tiny')
        config.encoder.family = family
        config.train.update(steps=steps, validate_every=steps)
        config.evaluation.update(test_rows=2048, validation_rows=256)
        config.evaluation.refit.update(rows=2048, steps=200)
    elif scale == 'small':
        config = base.get_config('small')
        config.rows.length = 128
        config.encoder.precision = 'bfloat16'
        config.optimizer.update(learning_rate=5e-4, warmup=0.06)
        config.train.update(batch=256, steps=50_000, dropout=0.0, attention_dropout=0.0)
    else:
        config = bert()
        if paper:
            paper(config)
    config.evaluation.tasks, config.evaluation.refit.tasks = tasks, refit
    return config


def bert():
    """Devlin et al. 2019: a million steps of 256 rows, nine tenths of them of 128 tokens, the rest of 512."""
    config = base.get_config('base')
    config.data.update(source='tfds:wikipedia/20230601.en', vocab_size=30522)
    config.rows.length = 128
    config.optimizer.update(learning_rate=1e-4, warmup=10_000.0, schedule='bert', bias_correction=False)
    config.train.update(batch=256, steps=1_000_000, checkpoint_every=10_000, validate_every=10_000, log_every=100)
    config.train.second.update(steps=100_000, length=512, batch=256)
    return config


def long_rows(config) -> None:
    """512 tokens from the first step on, as all after BERT have."""
    config.rows.length = 512
    config.train.second.steps = 0


def roberta(config) -> None:
    """Liu et al. 2019, sections 4.1 and 4.2: BERT's, with rows of 512 and Adam's b2 of 0.98."""
    long_rows(config)
    config.optimizer.update(b2=0.98, schedule='join')


def albert(config) -> None:
    """Lan et al. 2020, Table 5: ALBERT-base, LAMB, 125,000 steps of 4,096 rows."""
    long_rows(config)
    config.encoder.family = 'albert'
    config.optimizer.update(name='lamb', learning_rate=1.76e-3, warmup=3125.0)
    config.train.update(batch=4096, steps=125_000, micro_batches=4)


def spanbert(config) -> None:
    """Joshi et al. 2020: BERT-large, 1.2 M steps of 256 rows in the ablations."""
    long_rows(config)
    config.encoder.size = 'large'
    config.optimizer.update(eps=1e-8, schedule='join')
    config.train.steps = 1_200_000


def electra(config) -> None:
    """Clark et al. 2020: ELECTRA-base, 766,000 steps of 256 rows, ELECTRA's schedule."""
    long_rows(config)
    config.encoder.family = 'electra'
    config.optimizer.update(learning_rate=2e-4, schedule='electra')
    config.train.steps = 766_000


def dinkytrain(config) -> None:
    """Wettig et al. 2023: large, 23,000 steps of 4,096 rows of 128 tokens (ours is post-norm, theirs pre-norm)."""
    config.encoder.size = 'large'
    config.rows.length = 128
    config.train.second.steps = 0
    config.optimizer.update(learning_rate=2e-3, warmup=1380.0, b2=0.98, clip=0.0, schedule='join', bias_correction=True)
    config.train.update(batch=4096, steps=23_000, micro_batches=4)


def runs(*arms: Sweep) -> Sweep:
    """Every arm with three seeds."""
    return prod(chain(*arms), seeds(3))


def get_downstream():
    """Whose time, and of $BERTX_DATA those GLUE tasks that papers report and that it has a folder for."""
    config, root = quick.get_config(), os.environ.get('BERTX_DATA', '')
    if root:
        there = {name: pathlib.Path(root, name).is_dir() for name in GLUE}
        config.tasks.update({name: task for name, task in real.data_sets(root).items() if there.get(name)})
    return config


def downstream() -> Sweep:
    """Each task by itself."""
    return [{'use': (name,), 'arm': name} for name in get_downstream().tasks]
