r"""Which layer's features serve best, without fine-tuning? Devlin et al. 2019, Table 7, on entities.

    python -m experiments.finetune --config=configs/finetune/illustrated_bert.py:DATA --workdir=runs/features \
        --init_from=FOLDER

Alammar's The Illustrated BERT has the figure: F1 on CoNLL-2003's dev set 91.0 for the embeddings, 94.9 for the last
layer, 95.5 for the sum of all, 95.6 for the second-to-last, 95.9 for the sum and 96.1 for the concatenation of the last
four. DATA is a folder with wnut17_ner/; a linear classifier reads the features here, a BiLSTM did there.
"""

from bertx.sweep import Sweep, arm, chain
from bertx.tasks.heads import FEATURES
from configs.finetune import real


def get_config(root: str = ''):
    config = real.get_config(f'wnut17_ner,{root}')
    config.optimizer.learning_rate = 1e-3
    config.train.batch = 64
    return config


def sweep() -> Sweep:
    return chain(*(arm(name.replace('_', ' '), features=name) for name in FEATURES if name))
