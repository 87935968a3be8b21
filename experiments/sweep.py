"""A grid of runs, then its tables and figures.

    python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop

A second call skips what is done and goes on with what was interrupted. Exit code 3: some runs failed.
"""

import importlib.util
import pathlib

from absl import flags
from etils import epath
from ml_collections import config_flags

from bertx import sweep, train
from bertx.errors import BadInput
from experiments import cli


def points(path: str) -> sweep.Sweep:
    """What `sweep()` in the config file returns."""
    spec = importlib.util.spec_from_file_location('sweep_config', path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, 'sweep'):
        raise BadInput(f'{path} has no sweep(); for a single run use python -m experiments.pretrain')
    return module.sweep()


def main() -> int:
    path = config_flags.get_config_filename(flags.FLAGS['config'])
    workdir = epath.Path(cli.WORKDIR.value)
    grid = points(path)
    sweep.claim(workdir, pathlib.Path(path).stem, cli.CONFIG.value)
    planned = sweep.plan(cli.CONFIG.value, grid, workdir)

    def progress(p: sweep.Planned):
        return cli.bar(p.id, p.run.train['steps'], p.run.train['batch'] * p.run.rows.length)

    failed = sweep.run_all(planned, progress)
    cli.console.print(f'{len(planned)} runs, {train.compilations()} training steps compiled')
    return 3 if failed else 0


if __name__ == '__main__':
    cli.run(main)
