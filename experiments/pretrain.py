"""One pretraining run.

    python -m experiments.pretrain --config=configs/base.py:tiny --workdir=runs/base --config.train.steps=200

The same command goes on from the last checkpoint. --init_from=FOLDER starts from the weights of a run or of a Hugging
Face folder. Several hosts: experiments/devices.py.
"""

from absl import flags
from etils import epath

from bertx import sweep
from bertx.scheduling import engine
from experiments import cli, devices

INIT_FROM = flags.DEFINE_string('init_from', '', 'The same as --config.init_from.')


def main() -> int:
    workdir = epath.Path(cli.workdir())
    if INIT_FROM.value:
        cli.CONFIG.value.init_from = INIT_FROM.value
    devices.set_up(cli.CONFIG.value, workdir)
    planned = sweep.plan(cli.CONFIG.value, [{'arm': 'run'}], workdir)
    for line in sweep.describe(planned):
        cli.console.print(line, highlight=False)
    workdir.mkdir(parents=True, exist_ok=True)
    failed = engine.Engine(cli.bar)(planned)
    cli.console.print(f'{planned[0].folder.path}: {"".join(failed.values()) or "done"}', highlight=False)
    return cli.SOME_FAILED if failed else cli.DONE


if __name__ == '__main__':
    cli.run(main)
