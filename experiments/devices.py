"""Flags that say how a command uses devices and hosts.

Several hosts run the same command, with --distributed where jax finds them by itself (a TPU pod, Slurm, Open MPI), else

    --coordinator=HOST:PORT --processes=N --process=I        (I from 0; HOST is that of process 0)
"""

from typing import Any

import jax
from absl import flags

from bertx import hosts
from bertx.errors import BadInput
from bertx.parallel import KINDS
from experiments import cli

CACHE = flags.DEFINE_string('compiled', '', "Folder for compiled programs; '': WORKDIR/compiled, 'off': none is kept.")
PARALLEL = flags.DEFINE_enum('parallel', None, KINDS, 'The same as --config.train.parallel.')
DISTRIBUTED = flags.DEFINE_bool('distributed', False, 'One of several hosts, which jax finds.')
COORDINATOR = flags.DEFINE_string('coordinator', None, 'HOST:PORT of process 0.')
PROCESSES = flags.DEFINE_integer('processes', None, 'With --coordinator: how many there are.', lower_bound=1)
PROCESS = flags.DEFINE_integer('process', None, 'With --coordinator: the number of this one.', lower_bound=0)


def set_up(config, workdir) -> None:
    """Before anything asks jax for its devices."""
    if CACHE.value != 'off':  # so that what is resumed, or run once more, starts at once
        jax.config.update('jax_compilation_cache_dir', str(CACHE.value or workdir / 'compiled'))
    if PARALLEL.value:
        config.train.parallel = PARALLEL.value
    by_hand: Any = {'coordinator': COORDINATOR.value, 'processes': PROCESSES.value, 'process': PROCESS.value}
    missing = [name for name, value in by_hand.items() if value is None]
    if 0 < len(missing) < len(by_hand):
        raise BadInput(f'--{missing[0]} is missing; --coordinator, --processes and --process go together')
    if not missing and by_hand['process'] >= by_hand['processes']:
        raise BadInput(f'--process={PROCESS.value}; the {PROCESSES.value} processes are numbered from 0')
    if DISTRIBUTED.value or not missing:
        try:
            jax.distributed.initialize(*by_hand.values())
        except (ValueError, RuntimeError) as error:
            raise BadInput(
                f'--distributed: {str(error).rstrip(".")}; --coordinator, --processes and --process say it by hand'
            ) from None
        cli.console.quiet = not hosts.leads()
