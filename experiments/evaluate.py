"""Any checkpoint on any text: masked tokens with its own head, pairs and whatever else is asked for with refitted ones.

    python -m experiments.evaluate --from=FOLDER --config=configs/base.py --workdir=runs/evaluate \
        --config.data.source=text:FILES

FOLDER is a run, or a Hugging Face folder. The text is cut and split by config.data and config.rows, with the folder's
own tokenizer; config.evaluation names the tasks. Rows and masks are the same for every checkpoint. Heads are refitted
on the training documents, and all figures are those of the test documents; with --whole, own heads are measured on all
documents.
"""

import dataclasses

import jax
from absl import flags
from etils import epath
from rich.table import Table

from bertx import locks, parallel, sweep, train
from bertx.config import Run, make_run
from bertx.errors import BadInput
from bertx.evaluate import Measurement, Suite
from bertx.pretrained import Pretrained, token_head
from bertx.results import write_json
from bertx.step import State
from experiments import cli

FROM = flags.DEFINE_string('from', None, 'A run, or a Hugging Face folder.')
WHOLE = flags.DEFINE_bool('whole', False, 'All documents, with own heads alone.')


def measure(config, workdir: epath.Path, whole: bool = False) -> list[Measurement]:
    source = Pretrained.load(config.init_from)
    if (token := token_head(source.params)) is not None:
        source = dataclasses.replace(source, params=source.params | {'heads_mlm': token})
    if whole:
        config.data.validation = config.data.test = 0.0
        config.evaluation.refit.tasks = ()
        config.evaluation.test_rows = 2**31 - 1
        config.evaluation.tasks = tuple(name for name in config.evaluation.tasks if name in source.heads)
    store = sweep.Stores(workdir)(config)
    if whole and (others := [split for split in store.meta['splits'] if split != 'train']):
        raise BadInput(f'--whole: {store.path} is split ({", ".join(others)}); give config.data.source in its place')
    tasks = [name for name in config.evaluation.tasks if name in source.heads]
    config.objectives = {name: {} for name in tasks or ['mlm']}
    run: Run = make_run(config, store)
    if not tasks:  # no head of its own that could be asked
        run = dataclasses.replace(run, objectives={})
    mesh = parallel.data_mesh(config.train.devices)
    suite = Suite(run.config, store, train.vocabulary(store), mesh)
    params = parallel.replicate(mesh, source.params)
    return suite.final(run, State(jax.numpy.int32(0), params, None, {}), 'train' if whole else 'test')


def main() -> int:
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    config.init_from = FROM.value
    workdir.mkdir(parents=True, exist_ok=True)
    with locks.alone_in(workdir):
        found = measure(config, workdir, WHOLE.value)
    if not found:
        raise BadInput('config.evaluation.tasks names nothing that this checkpoint can be asked')
    table = Table(
        'task', 'head', 'metric', 'value', 'rows', title=f'{FROM.value} on {config.data.store or config.data.source}'
    )
    for m in found:
        for name, value in m.shown.items():
            table.add_row(m.task, m.head, name, f'{value:.4f}', f'{len(m.sum_N):,}')
    cli.console.print(table)
    write_json(workdir / 'evaluation.json', {'from': FROM.value, 'values': [m.record() for m in found]})
    return cli.DONE


if __name__ == '__main__':
    cli.run(main, required=('from', 'config', 'workdir'))
