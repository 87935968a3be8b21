"""Does a config's training step fit on a TPU slice? Asked of the compiler, on any machine.

    pip install "jax[tpu]"
    python -m experiments.compile --config=configs/base.py:base --topology=v5e:4x4
    python -m experiments.compile --config=configs/sweeps/electra_table5.py:paper --arm=electra --topology=v5e:4x4

A minute for BERT-base; with its layers unrolled (config.encoder.unroll=12), many. Prints memory, FLOPs and collectives
of a device; exit code 2 and one line if it does not fit. Topologies: v5e:2x4, v5e:4x4, v5e:16x16, v6e:2x4, v5p:2x2x1
and so on.
"""

import time

import jax
from absl import flags

from bertx import ahead, footprint, sweep
from bertx.config import Run
from bertx.errors import one_of
from experiments import cli
from experiments.config_file import ConfigFile

TOPOLOGY = flags.DEFINE_string('topology', None, 'Generation and shape of the slice, such as v5e:4x4.')
ARM = flags.DEFINE_string('arm', '', "Of the sweep in --config; '': its config as it stands.")


def main() -> int:
    jax.config.update('jax_platforms', 'cpu')  # the TPU plugin would look for a TPU of this machine
    config = arm(cli.CONFIG.value) if ARM.value else cli.CONFIG.value
    mesh = ahead.topology(str(TOPOLOGY.value), config.train.fsdp)
    for run, *_ in ahead.run_of(config).phases:
        show(run, mesh, config.data.vocab_size)
    return cli.DONE


def arm(config):
    found = {point.get('arm', 'run'): point for point in ConfigFile().points()}
    one_of('--arm', ARM.value, found)
    return sweep.overlay(config, found[ARM.value])


def show(run: Run, mesh, vocab_size: int) -> None:
    begun = time.perf_counter()
    state, step = ahead.compiled(run, mesh, vocab_size)
    print(f'{TOPOLOGY.value}: {mesh.devices.flat[0].device_kind}, compiled in {time.perf_counter() - begun:.0f} s')
    print(*footprint.describe(run, mesh, state, step), sep='\n')
    arguments, temporaries = (f'{n / footprint.GIB:.2f}' for n in footprint.memory(step))
    print(f'it fits: GiB on a device: arguments {arguments}, temporaries {temporaries}')
    print(f'FLOPs of a step on a device: {step.cost_analysis()["flops"]:.3g}, by the compiler')
    for kind, (number, size) in footprint.collectives(step.as_text()).items():
        print(f'{kind}: {number}, of {size / 1e6:,.1f} MB')


if __name__ == '__main__':
    cli.run(main, required=('config', 'topology'))
