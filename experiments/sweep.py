"""A grid of runs, then its tables and figures.

    python -m experiments.sweep --config=configs/sweeps/nsp_vs_sop.py --workdir=runs/nsp_vs_sop

A second call skips what is done and goes on with what was interrupted. The same command may run several times in one
workdir, on one machine or on several that see it: each run is done once. --dry_run says what there is to do.
--engine=ray starts such workers by itself, here or on a cluster (--address), each on all hosts of a TPU slice with
--slice=v5litepod-16. Where the config has `get_downstream()` and `downstream()`, each finished run is fine-tuned on the
tasks that they name, and the table has a column for each. Exit code 3: some runs failed. Several hosts as one:
experiments/devices.py.
"""

import contextlib
import functools
import sys
import time

import jax
from absl import flags
from etils import epath
from ml_collections import ConfigDict

from bertx import benchmark, hosts, parallel, sweep, train, tune
from bertx.errors import BadInput
from bertx.report import published
from bertx.scheduling import cluster, engine, outcomes, slices
from bertx.tasks import downstream
from experiments import cli, devices, dry_run, live, report
from experiments.config_file import ConfigFile
from experiments.engines import ADDRESS, ENGINE, WORKERS

DRY_RUN = flags.DEFINE_bool('dry_run', False, 'List the runs, with what they will take, and end.')
FAIL_FAST = flags.DEFINE_bool('fail_fast', False, 'End at the first run that fails; the same command goes on.')
TOGETHER = flags.DEFINE_integer('vmap_runs', 1, 'Runs of one graph that are trained in one program.', lower_bound=1)
SLICE = flags.DEFINE_string(
    'slice', '', 'With --engine=ray: each worker is a TPU slice of this kind, v5litepod-16 say.'
)
RETRIES = {
    kind: flags.DEFINE_integer(
        f'retry_{kind.replace(" ", "_")}', count, f'How often a run that ended {kind} goes on.', lower_bound=0
    )
    for kind, count in outcomes.LIMITS.items()
}


def check_downstream(further: tuple[ConfigDict, sweep.Sweep] | None, planned: list[sweep.Planned]) -> None:
    """Raises BadInput for what could not be fine-tuned after hours of training."""
    if further:
        downstream.check(*further, {(p.store.tokenizer, p.run.encoder) for p in planned})


def work(arguments: list[str]) -> int:
    """In a process of a cluster: does what is not done, and leaves the tables to who has started it."""
    sys.argv[:] = arguments  # in which ml_collections looks for --config.KEY
    flags.FLAGS(arguments)
    flags.FLAGS['engine'].value = 'local'
    _, failed = run_all(live.quiet)
    jax.distributed.shutdown()  # of several hosts none ends before the others are through
    return cli.SOME_FAILED if failed else cli.DONE


def run_all(progress: engine.Progress, begun: float | None = None) -> tuple[list[sweep.Planned], dict[str, str]]:
    """All runs of the sweep, after those that choose a number for each arm; and why those failed that did, since the
    sweep was begun."""
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    devices.set_up(config, workdir)
    file = ConfigFile()
    grid, further = file.points(), file.downstream()
    sweep.check_workdir(workdir, file.name, config)
    mesh = parallel.mesh_of(config.train)
    speed = benchmark.Speeds(workdir, mesh)
    if config.tune.key:
        trials = sweep.plan(config, tune.trials(config, grid), workdir / 'tuning', speed)
        tune.check(config, trials)
        check_downstream(further, trials)
        if not DRY_RUN.value:
            cli.console.print(f'{len(trials)} runs that choose {config.tune.key}', highlight=False)
            tried = done_with(trials, progress, begun)
            if FAIL_FAST.value and tried.outcomes.failed:
                return [], tried.outcomes.failed  # nothing that a table could be made of
            grid = tune.choose(config, grid, trials, workdir)
        else:
            cli.console.print(f'first {len(trials)} runs choose {config.tune.key}:', highlight=False)
            cli.console.print(dry_run.table(trials))
    planned = sweep.plan(config, grid, workdir, speed)
    if len(planned) < len(grid):
        cli.console.print(f'{len(grid) - len(planned)} points are the same as others', highlight=False)
    check_downstream(further, planned)
    for line in sweep.describe(planned):
        cli.console.print(line, highlight=False)
    if DRY_RUN.value:
        return planned, {}
    workdir.mkdir(parents=True, exist_ok=True)
    sweep.record(workdir, file.name, config, planned, file.about)
    if 'published' in file:
        published.record(workdir, file.call('published'))
    worker = done_with(planned, progress, begun)
    if further and hosts.leads() and not (FAIL_FAST.value and worker.outcomes.failed):
        worker.afterwards(planned, lambda p: downstream.attach(p.folder, *further, cli.bar))
    return planned, worker.outcomes.failed


def done_with(planned: list[sweep.Planned], progress: engine.Progress, begun: float | None) -> engine.Engine:
    """The runs, by this process."""
    worker = engine.Engine(progress, {kind: flag.value for kind, flag in RETRIES.items()}, FAIL_FAST.value, begun)
    workdir = planned[0].folder.path.parent
    workdir.mkdir(parents=True, exist_ok=True)
    shown = live.view(planned) if progress is live.quiet and flags.FLAGS.engine == 'local' else contextlib.nullcontext()
    with shown, contextlib.suppress(outcomes.Ended):
        if TOGETHER.value > 1:
            worker.in_groups(planned, TOGETHER.value)
        worker(planned)
    return worker


def main() -> int:
    begun = time.time()
    if SLICE.value and ENGINE.value != 'ray':
        raise BadInput(f'--slice={SLICE.value} goes with --engine=ray')
    if ENGINE.value == 'ray' and not DRY_RUN.value:
        start = functools.partial(slices.run, kind=SLICE.value) if SLICE.value else cluster.run
        start(
            'experiments.sweep:work', sys.argv, WORKERS.value,
            address=ADDRESS.value, deaths=RETRIES[outcomes.PREEMPTED].value,
        )  # fmt: skip
    if SLICE.value:
        # What is left is to plan and to tell; and on a TPU host jax would wait for those of the other hosts.
        jax.config.update('jax_platforms', 'cpu')
        jax.config.update('jax_num_cpu_devices', slices.chips(SLICE.value))
    planned, failed = run_all(live.quiet, begun)
    if DRY_RUN.value:
        cli.console.print(dry_run.table(planned))
        return cli.DONE
    cli.console.print(f'{len(planned)} runs, {train.compilations()} training steps compiled', highlight=False)
    if planned and hosts.leads():
        report.write(epath.Path(cli.workdir()), [p.folder for p in planned])
    return cli.ended(failed)


if __name__ == '__main__':
    cli.run(main)
