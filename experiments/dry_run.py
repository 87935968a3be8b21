"""What a sweep has to do, and about how long it takes."""

import collections
import itertools
import time
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from rich.table import Table

from bertx.config import flat
from bertx.sweep import Planned

SHARE = 0.5  # of the rate of a large matrix product that a step reaches: experiments.benchmark has 0.5 to 0.8 on CPU


def rate() -> float:
    """FLOPs a second of a product in float32, on all devices together."""
    n = 2048
    x, multiply = jnp.ones((n, n)), jax.jit(jnp.matmul)
    multiply(x, x).block_until_ready()
    begun = time.perf_counter()
    for _ in range(3):
        multiply(x, x).block_until_ready()
    return jax.device_count() * 3 * 2.0 * n**3 / (time.perf_counter() - begun)


def settings(planned: Sequence[Planned]) -> list[str]:
    """Of each run what it does not share with all runs of its arm, but for the seed, which is in its name."""
    parts = [[(p.arm, key, str(value)) for key, value in flat(p.run.config).items() if key != 'seed'] for p in planned]
    runs, alike = collections.Counter(p.arm for p in planned), collections.Counter(itertools.chain.from_iterable(parts))
    return [', '.join(f'{part[1]}={part[2]}' for part in own if alike[part] < runs[part[0]]) for own in parts]


def table(planned: Sequence[Planned]) -> Table:
    """A line a run. Time: from the speed of finished runs of its arm, else from its FLOPs and this machine's rate."""
    flops_s = SHARE * rate()
    grid = Table(title=f'{len(planned)} runs')
    texts = ('run', 'settings', 'is')
    for name in (*texts, 'steps', 'tokens', 'FLOPs', 'minutes'):
        grid.add_column(name, justify='left' if name in texts else 'right', overflow='fold')
    total, seconds = [0.0, 0.0, 0.0], {p.arm: (p.folder.result or {})['wall_s'] for p in planned if p.folder.done}
    for p, apart in zip(planned, settings(planned), strict=True):
        steps = p.run.train['steps']
        after = p.run.after(steps)
        takes = seconds.get(p.arm, after['flops'] / flops_s)
        state = 'done' if p.folder.done else 'begun' if p.folder.metrics() else 'new'
        grid.add_row(p.id, apart, state, f'{steps:,}', *_numbers([after['tokens'], after['flops'], takes / 60]))
        if not p.folder.done:
            total = [a + b for a, b in zip(total, [after['tokens'], after['flops'], takes / 60], strict=True)]
    grid.add_section()
    grid.add_row('to do', '', '', '', *_numbers(total))
    return grid


def _numbers(values: Sequence[float]) -> list[str]:
    tokens, flops, minutes = values
    return [f'{tokens:,.0f}', f'{flops:.2e}', f'{minutes:.1f}']
