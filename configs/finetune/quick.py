"""The downstream column of sweeps of small runs on the State of the Union addresses: whose time is this paragraph of?

    python -m experiments.finetune --config=configs/finetune/quick.py --workdir=runs/era --init_from=FOLDER

The addresses are split as the sweep's own are (validation 0.1, test 0.15), so that no test paragraph was pretrained on.
A few seconds for each pretrained run.
"""

from configs.finetune import base
from configs.finetune.base import task


def get_config():
    at = lambda split: f'sotu:era?split={split}&test=0.15'
    columns = {'text': 'text', 'label': 'label', 'id': 'id'}
    config = base.get_config(era=task('classify', at('train'), at('validation'), at('test'), columns))
    config.length, config.buckets = 64, ()
    config.train.update(
        batch=32, steps=100, evaluate_every=100, examples=2000, dropout=0.0, attention_dropout=0.0, save_weights=False
    )
    config.evaluation.update(batch=128, examples=1000)
    config.optimizer.learning_rate = 5e-4
    return config
