"""A corpus to a token store: sentences, tokenizer, splits by document.

    python -m experiments.prepare --config=configs/base.py --workdir=data/sotu
    python -m experiments.prepare --config=configs/base.py --workdir=data/mine --config.data.source='text:my/*.txt'

Training then takes it with --config.data.store=data/mine.
"""

from bertx import config
from bertx.text.prepare import prepare
from experiments import cli


def main() -> int:
    store = prepare(config.prepare_options(cli.CONFIG.value), cli.workdir())
    for name, split in store.meta['splits'].items():
        cli.console.print(
            f'{name}: {split["documents"]:,} documents, {split["sentences"]:,} sentences, {split["tokens"]:,} tokens',
            highlight=False,
        )
    return cli.DONE


if __name__ == '__main__':
    cli.run(main)
