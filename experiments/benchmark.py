"""Speed and memory on whatever device there is: the training step, or with --inference the encoders of the families.

    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark --sizes=mini,small
    python -m experiments.benchmark --config=configs/benchmark.py --workdir=runs/benchmark --inference --sizes=base

Training is measured beside transformers' BertForMaskedLM under torch where requirements-dev.txt is installed, with its
head on all positions and on the predicted ones. The table goes to the terminal, its numbers to benchmark.json.
"""

import importlib.util
import json
import statistics
from typing import Any

import jax
from absl import flags
from etils import epath
from rich.table import Table

from bertx import benchmark, parallel, sweep
from bertx.encoder import count
from bertx.families import FAMILIES, encoder_of
from bertx.results import write_atomically
from experiments import cli

SIZES = flags.DEFINE_list('sizes', ['mini'], 'Sizes of the encoder.')
FAMILY = flags.DEFINE_list('families', list(FAMILIES), 'With --inference: which to compare; the first is the measure.')
INFERENCE = flags.DEFINE_bool('inference', False, 'The forward pass of encoders with random weights.')
PROFILE = flags.DEFINE_string('profile', '', 'A folder for a trace of three steps.')
Line = dict[str, Any]


def training(config, size: str, workdir: epath.Path) -> Line:
    point = {'arm': size, 'encoder.size': size}
    [p] = sweep.plan(config, [point], workdir)
    mesh = parallel.data_mesh(config.train.devices)
    step = benchmark.Training(p.run, p.store, mesh)
    tokens = p.run.train['batch'] * p.run.rows.length
    predicted = p.run.train['batch'] * getattr(p.run.objectives.get('mlm'), 'k', 0)
    matrices, flops = benchmark.products(p.run.encoder, tokens, predicted)
    host = lambda: [next(step.stream) for _ in range(10)] and None
    parts: dict[str, benchmark.Part] = {
        'step': step, 'with data': step.with_data, 'products': matrices, 'host': host,
    }  # fmt: skip
    if importlib.util.find_spec('torch') and jax.default_backend() == 'cpu':
        parts['torch'] = benchmark.torch_training(p.run.encoder, step.batch, gathered=False)
        parts['torch gathered'] = benchmark.torch_training(p.run.encoder, step.batch, gathered=True)
    if PROFILE.value:
        step()
        with jax.profiler.trace(PROFILE.value):
            for _ in range(3):
                step()
    rates = benchmark.turns(parts)
    middle = {name: statistics.median(rate) for name, rate in rates.items()}
    peak, done = middle['products'] * flops, middle['step'] * p.run.flops_per_step
    line = {
        'size': size,
        'parameters': count(step.state.params),
        'tokens/s': middle['step'] * tokens,
        'GFLOP/s': done / 1e9,
        'of products': benchmark.ratio(rates, 'step', 'products') * p.run.flops_per_step / flops,
        'products GFLOP/s': peak / 1e9,
        'memory MB': step.memory / 1e6,
        'compile s': step.compile_s,
        'data / fixed': benchmark.ratio(rates, 'with data', 'step'),
        'host tokens/s': middle['host'] * 10 * tokens,
    }
    peers = [name for name in parts if name.startswith('torch')]
    return line | {f'x {name}': benchmark.ratio(rates, 'step', name) for name in peers}


def inference(config, size: str) -> list[Line]:
    batch, length = config.train.batch, config.rows.length
    settings = {'precision': config.encoder.precision, 'max_positions': 512}
    encoders = {f: encoder_of(f, size, config.data.vocab_size, **settings) for f in FAMILY.value}
    parts = {f: benchmark.Inference(c, batch, length) for f, c in encoders.items()}
    rates = benchmark.turns(dict(parts))
    return [
        {
            'family': f,
            'size': size,
            'parameters': count(part.params),
            'tokens/s': statistics.median(rates[f]) * batch * length,
            f'x {FAMILY.value[0]}': benchmark.ratio(rates, f, FAMILY.value[0]),
            'memory MB': part.memory / 1e6,
            'compile s': part.compile_s,
        }
        for f, part in parts.items()
    ]


def main() -> int:
    config, workdir = cli.CONFIG.value, epath.Path(cli.workdir())
    if INFERENCE.value:
        lines = [line for size in SIZES.value for line in inference(config, size)]
    else:
        lines = [training(config, size, workdir) for size in SIZES.value]
    table = Table(title=f'{config.train.batch} x {config.rows.length} on {jax.devices()[0].device_kind}')
    show = lambda x: x if isinstance(x, str) else f'{x:,.0f}' if x >= 100 else f'{x:.2f}'
    for name in lines[0]:  # a figure a row, so that any number of sizes can be read
        table.add_row(name, *(show(line[name]) for line in lines))
    table.show_header = False
    cli.console.print(table)
    workdir.mkdir(parents=True, exist_ok=True)
    write_atomically(workdir / 'benchmark.json', json.dumps(lines, indent=1))
    return cli.DONE


if __name__ == '__main__':
    cli.run(main)
