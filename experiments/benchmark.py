"""Speed and memory on whatever device there is: the training step, a sweep's arms, or the families' encoders.

    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark --sizes=mini,small
    python -m experiments.benchmark --config=configs/sweeps/token_objectives.py --workdir=runs/benchmark --arms
    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark --inference --sizes=base

Training is measured beside transformers' BertForMaskedLM under torch where requirements-dev.txt is installed, with its
head on all positions and on the predicted ones. The table goes to the terminal, its numbers to benchmark.json.
"""

import functools
import importlib.util

import jax
from absl import flags
from etils import epath
from rich.table import Table

from bertx import benchmark, parallel, sweep
from bertx.errors import BadInput
from bertx.families import FAMILIES, encoder_of
from bertx.results import write_json
from experiments import cli, peer
from experiments.config_file import ConfigFile

SIZES = flags.DEFINE_list('sizes', ['mini'], 'Sizes of the encoder.')
FAMILY = flags.DEFINE_list('families', list(FAMILIES), 'With --inference: which to compare; the first is the measure.')
INFERENCE = flags.DEFINE_bool('inference', False, 'The forward pass of encoders with random weights.')
ARMS = flags.DEFINE_bool('arms', False, 'Each arm of the sweep in --config; the first is the measure.')
PROFILE = flags.DEFINE_string('profile', '', 'A folder for a trace of three steps.')


def measured(config, workdir: epath.Path) -> list[benchmark.Line]:
    mesh = parallel.mesh_of(config.train)
    if PROFILE.value and (ARMS.value or INFERENCE.value):
        raise BadInput('--profile traces the training step of --sizes, without --arms and --inference')
    if ARMS.value:
        firsts = {point.get('arm', 'run'): point for point in reversed(ConfigFile().points())}
        return benchmark.arms(sweep.plan(config, list(firsts.values())[::-1], workdir), mesh)
    if INFERENCE.value:
        kept = ('precision', 'attention', 'unroll')
        settings = {'max_positions': 512} | {name: config.encoder[name] for name in kept if config.encoder[name]}
        of = lambda family, size: encoder_of(family, size, config.data.vocab_size, **settings)
        encoders = {f'{family} {size}': of(family, size) for size in SIZES.value for family in FAMILY.value}
        return benchmark.inference(encoders, config.train.batch, config.rows.length)
    peers: dict[str, benchmark.Peer] = {}
    if importlib.util.find_spec('torch') and jax.default_backend() == 'cpu':
        peers = {
            'torch': functools.partial(peer.torch_training, gathered=False),
            'torch gathered': functools.partial(peer.torch_training, gathered=True),
        }
    planned = sweep.plan(config, [{'arm': size, 'encoder.size': size} for size in SIZES.value], workdir)
    return [benchmark.training(p, mesh, peers, PROFILE.value) for p in planned]


def main() -> int:
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    lines = measured(config, workdir)
    table = Table(title=f'{config.train.batch} x {config.rows.length} on {jax.devices()[0].device_kind}')
    show = lambda x: x if isinstance(x, str) else f'{x:,.0f}' if x >= 100 else f'{x:.2f}'
    if len(lines) > len(lines[0]):
        table = Table(*lines[0], title=table.title)
        rows = [list(line.values()) for line in lines]
    else:  # a figure a row, so that a narrow terminal will do
        table.show_header = False
        rows = [[name, *(line[name] for line in lines)] for name in lines[0]]
    for row in rows:
        table.add_row(*map(show, row))
    cli.console.print(table)
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(workdir / 'benchmark.json', lines)
    return cli.DONE


if __name__ == '__main__':
    cli.run(main)
