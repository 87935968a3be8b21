"""A grid of runs, then its tables and figures.

    python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop

A second call skips what is done and goes on with what was interrupted. Where the config has `get_downstream()` and
`downstream()`, each finished run is fine-tuned on the tasks that they name, and the table has a column for each. Exit
code 3: some runs failed. Several hosts: experiments/devices.py.
"""

import pathlib
import runpy

from etils import epath
from ml_collections import ConfigDict

from bertx import downstream, hosts, locks, sweep, train
from bertx.errors import BadInput
from experiments import cli, devices, report


def points(path: str) -> sweep.Sweep:
    """What `sweep()` in the config file returns."""
    names = runpy.run_path(path)
    if 'sweep' not in names:
        raise BadInput(f'--config={path} has no sweep(); for a single run use python -m experiments.pretrain')
    grid = names['sweep']()
    if not grid:
        raise BadInput(f'--config={path}: its sweep() returns no points; arm, prod and seeds make some')
    return grid


def tuned(path: str) -> tuple[ConfigDict, sweep.Sweep] | None:
    """What each finished run is to be fine-tuned on, where the config file says so."""
    names = runpy.run_path(path)
    return (names['get_downstream'](), names['downstream']()) if 'downstream' in names else None


def main() -> int:
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    devices.set_up(config)
    path = cli.config_file()
    grid = points(path)
    name = pathlib.Path(path).stem
    sweep.check_workdir(workdir, name, config)
    planned = sweep.plan(config, grid, workdir)
    further = tuned(path)
    if further:
        for store in {p.store for p in planned}:
            downstream.check(*further, store.tokenizer)
    for line in sweep.describe(planned):
        cli.console.print(line, highlight=False)
    workdir.mkdir(parents=True, exist_ok=True)
    with locks.alone_in(workdir):
        sweep.record(workdir, name, config, planned)
        failed = sweep.run_all(planned, cli.bar)
    cli.console.print(f'{len(planned)} runs, {train.compilations()} training steps compiled', highlight=False)
    if hosts.leads() and further:
        for p in [p for p in planned if p.folder.done]:
            failed |= downstream.attach(p.folder, *further, cli.bar)
    if hosts.leads():
        report.write(workdir, [p.folder for p in planned])
    for name, reason in failed.items():
        cli.console.print(f'failed: {name}: {reason}', style='red', highlight=False)
    return cli.SOME_FAILED if failed else cli.DONE


if __name__ == '__main__':
    cli.run(main)
