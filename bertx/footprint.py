"""What a compiled training step needs of a device, what it sends, and what would make it smaller."""

import math
import re
from typing import Any

import jax

from bertx.config import Run
from bertx.encoder import count
from bertx.errors import BadInput

# GiB that XLA gives out on a chip, as its refusals of programs say. Devices that are here are asked.
CHIPS = {'TPU v5 lite': 15.75, 'TPU v6 lite': 31.25, 'TPU v5': 95.74}
GIB = 2**30
KINDS = 'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
BITS = {'pred': 8, 'bf16': 16}  # other types end in theirs


def memory(compiled) -> tuple[int, int]:
    """Bytes of one device: of arguments (state and batch), and beyond (gradients, activations)."""
    m = compiled.memory_analysis()
    own = m.output_size_in_bytes - m.alias_size_in_bytes  # results that do not lie where a donated argument was
    return m.argument_size_in_bytes, m.temp_size_in_bytes + own


def collectives(hlo: str) -> dict[str, tuple[int, int]]:
    """Kind -> how many a program has, and the bytes of their results on one device. A loop's body counts once.

    TPUs have reduce-scatter as a fusion around an all-reduce, which is counted by what goes in.
    """
    found: dict[str, tuple[int, int]] = {}
    fused = False
    for line in hlo.splitlines():
        if line.endswith('{'):
            fused = line.startswith('%all-reduce-scatter')
        if match := re.search(rf' = (.*?) ({KINDS})(?:-done)?\(', line):
            kind = 'reduce-scatter' if fused else match[2]
            number, size = found.get(kind, (0, 0))
            found[kind] = number + 1, size + sum(map(_bytes, re.findall(r'([a-z]+\d*)\[([\d,]*)\]', match[1])))
    return found


def _bytes(array: tuple[str, str]) -> int:
    kind, shape = array
    bits = BITS.get(kind) or int(re.findall(r'\d+$', kind)[0])
    return math.prod(int(n) for n in shape.split(',') if n) * bits // 8


def held(tree: Any) -> int:
    """Bytes of the arrays, or of what stands for them, on one device."""
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def capacity(device) -> float | None:
    """Bytes that a device has for a program; None where that is not known."""
    try:
        return (device.memory_stats() or {}).get('bytes_limit')
    except jax.errors.JaxRuntimeError:  # one that is only described
        return CHIPS[device.device_kind] * GIB if device.device_kind in CHIPS else None


def compiled(step, run: Run, mesh, *arguments):
    """The step compiled for these arguments, or for what stands for them. BadInput where XLA finds it too large."""
    lowered = step.lower(*arguments)
    try:
        return lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        if 'RESOURCE_EXHAUSTED' not in str(error):
            raise
        figures = re.findall(r'([\d.]+)G\b', str(error))[:2]  # what it wants, what there is
        share = float(figures[0]) / float(figures[1]) if len(figures) == 2 else 2.0
        said = ' of '.join(f'{x} GiB' for x in figures)
        raise BadInput(f'the training step does not fit: {said} on a device; {advice(run, mesh, share)}') from None


def advice(run: Run, mesh, share: float) -> str:
    """What would make the step smaller, which takes `share` times what there is."""
    t, found = run.train, []
    wanted = range(math.ceil(t['micro_batches'] * share), t['batch'] + 1)
    more = next((m for m in wanted if t['batch'] % (mesh.size * m) == 0), None)
    if more:
        found.append(f'config.train.micro_batches={more}')
    if not run.encoder.remat:
        found.append('config.encoder.remat=True')
    if run.encoder.precision == 'float32':
        found.append("config.encoder.precision='bfloat16'")
    if mesh.shape['fsdp'] < mesh.size and t['parallel'] == 'jit':
        found.append(f'config.train.fsdp={mesh.size}')
    return ' or '.join(found or ['a smaller config.train.batch', 'more devices']) + ' would lower that'


def describe(run: Run, mesh, state, step=None) -> list[str]:
    """Lines for the log. step: a compiled one, where there is; state: arrays, or what stands for them."""
    tokens, parts = run.tokens_per_step, mesh.shape['fsdp']
    lines = [
        f'{count(state.params):,} parameters, {run.flops_per_step / tokens:.3g} FLOPs a token, '
        f'{tokens:,} tokens a step '
        f'on {mesh.size} devices, {mesh.size // parts} x {parts} (data x fsdp)'
    ]
    if step is None:
        return lines
    params, opt, total = held(state.params), held(state.opt), sum(memory(step))
    limit = capacity(mesh.devices.flat[0])
    gib = lambda n: f'{n / GIB:.3g}'
    lines.append(
        f'GiB on a device: parameters {gib(params)}, optimizer {gib(opt)}, gradients {gib(params)}, activations and '
        f'the rest {gib(total - 2 * params - opt)}: {gib(total)}' + (f' of {gib(limit)}' if limit else '')
    )
    return lines + ([f'that will not fit; {advice(run, mesh, total / limit)}'] if limit and total > limit else [])
