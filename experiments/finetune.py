"""One downstream run, or a grid of them where the config has a `sweep()`, then the table of what came out.

    python -m experiments.finetune --config=configs/finetune/base.py --workdir=runs/era --init_from=FOLDER

FOLDER is a run, also one of a sweep or a fine-tuned one, or a Hugging Face folder. What is done is not run again. Each
run's folder has its predictions, example by example, in predictions/*.jsonl. Exit code 3: some runs failed.
"""

from absl import flags
from etils import epath

from bertx import locks
from bertx.errors import BadInput
from bertx.tasks import downstream
from experiments import cli, report
from experiments.config_file import ConfigFile

INIT_FROM = flags.DEFINE_string('init_from', '', 'The same as --config.init_from.')


def main() -> int:
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    file = ConfigFile()
    if 'tasks' not in config:
        raise BadInput(f'--config={file.path} names no tasks; configs/finetune/base.py, or one made from it, would do')
    if INIT_FROM.value:
        config.init_from = INIT_FROM.value
    grid = file.points() if 'sweep' in file else [{'arm': 'run'}]
    planned = downstream.plan(config, grid, workdir / 'runs')
    for line in dict.fromkeys(line for p in planned for line in p.job.data.about()):
        cli.console.print(line, highlight=False)
    workdir.mkdir(parents=True, exist_ok=True)
    with locks.alone_in(workdir):
        failed = downstream.run_all(planned, cli.bar)
    if any(p.folder.done for p in planned):
        report.write(workdir, [p.folder for p in planned])
    for p in planned:
        for name in (p.folder.result or {}).get('collapsed', ()):
            cli.console.print(f'failed run: {p.id} says the same of every example of {name}', style='red')
    return cli.ended(failed)


if __name__ == '__main__':
    cli.run(main)
