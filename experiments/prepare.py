"""A corpus to a token store: sentences, tokenizer, splits by document.

    python -m experiments.prepare --config=configs/base.py --workdir=data/sotu
    python -m experiments.prepare --config=configs/base.py --workdir=data/mine --config.data.source='text:my/*.txt'

Training then takes it with --config.data.store=data/mine. --engine=ray --workers=32 --address=HOST:6379 spreads the
documents over a cluster; this process alone reads the corpus and writes the store, which is the same to the byte.
"""

import functools

from bertx import config
from bertx.scheduling import cluster
from bertx.text.prepare import prepare
from experiments import cli
from experiments.engines import ADDRESS, ENGINE, WORKERS


def main() -> int:
    options = config.prepare_options(cli.CONFIG.value)
    if ENGINE.value == 'ray':
        with cluster.connected(ADDRESS.value, WORKERS.value):
            store = prepare(options, cli.workdir(), functools.partial(cluster.in_order, workers=WORKERS.value))
    else:
        store = prepare(options, cli.workdir())
    for name, split in store.meta['splits'].items():
        cli.console.print(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, {split["tokens"]:,} tokens',
            highlight=False,
        )
    return cli.DONE


if __name__ == '__main__':
    cli.run(main)
