"""BERT-mini at 64 x 128 with a vocabulary of 8,192, no dropout: the size at which speed is compared.

    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark

About 3 minutes on two CPU cores.
"""

from configs import base


def get_config():
    config = base.get_config('mini')
    config.data.vocab_size = 8192
    config.train.batch = 64
    config.train.dropout = 0.0
    config.train.attention_dropout = 0.0
    return config
