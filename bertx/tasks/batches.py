"""Batches of rows of about one length: few shapes, each compiled once, and little padding."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bertx.errors import BadInput
from bertx.tasks.base import Inputs

Batch = dict[str, np.ndarray]  # tokens, segment_ids, positions, type_ids [B, L], weight [B], and the task's targets


def check_buckets(buckets: Sequence[int], length: int) -> tuple[int, ...]:
    """Ascending, the last one config.length."""
    found = tuple(sorted({min(int(size), length) for size in buckets} | {length}))
    if found[0] < 4:  # [CLS], a piece, [SEP], and one of a pair
        raise BadInput(f'config.buckets begins with {found[0]}; lengths of 4 or more would do')
    return found


def plan(lengths: np.ndarray, buckets: Sequence[int], size: int, rng: np.random.Generator | None) -> list[np.ndarray]:
    """Rows of each batch, each row once; shuffled with `rng`. What is left of a bucket goes up to the next longer one,
    so that one batch at most is short."""
    order = np.arange(len(lengths)) if rng is None else rng.permutation(len(lengths))
    bucket_N = np.searchsorted(buckets, lengths)
    batches, left = [], np.zeros(0, np.int64)
    for b in range(len(buckets)):
        rows = np.concatenate([left, order[bucket_N[order] == b]])
        full = len(rows) // size * size if b + 1 < len(buckets) else len(rows)
        batches += [rows[i : i + size] for i in range(0, full, size)]
        left = rows[full:]
    if rng is None:
        return batches
    return [batches[i] for i in rng.permutation(len(batches))]


def padded(inputs: Inputs, rows: np.ndarray, task: Any, buckets: Sequence[int], size: int, pad: int) -> Batch:
    """The rows, filled up to `size` with rows that weigh nothing, at the shortest bucket that holds them."""
    longest = max(len(inputs.rows[i]['tokens']) for i in rows)
    length = next(bucket for bucket in buckets if bucket >= longest)
    shape = (size, length)
    batch: Batch = {name: np.zeros(shape, np.int32) for name in ('segment_ids', 'type_ids')}
    batch |= {'tokens': np.full(shape, pad, np.int32), 'weight': np.zeros(size, np.float32)}
    batch['positions'] = np.broadcast_to(np.arange(length, dtype=np.int32), shape)
    batch['segment_ids'][len(rows) :, 0] = 1  # attention to nothing would be NaN in some implementations
    for name, (kind, filler) in task.targets.items():
        whole = isinstance(inputs.rows[0][name], np.ndarray)
        batch[name] = np.full(shape if whole else size, filler, kind)
    for b, i in enumerate(rows):
        row = inputs.rows[i]
        n = len(row['tokens'])
        batch['tokens'][b, :n], batch['type_ids'][b, :n] = row['tokens'], row['type_ids']
        batch['segment_ids'][b, :n] = 1
        batch['weight'][b] = 1.0
        for name in task.targets:
            batch[name][(b, slice(n)) if batch[name].ndim == 2 else b] = row[name]
    return batch


def mixture(sizes: dict[str, int], shares: Sequence[float], alpha: float) -> np.ndarray:
    """Probabilities of the tasks: the given shares (50, 30, 20), else in proportion to size ** alpha (0: alike)."""
    if shares and (len(shares) != len(sizes) or min(shares) < 0 or not sum(shares) > 0):
        raise BadInput(
            f'config.mix.shares is {tuple(shares)}; a share for each of the tasks {", ".join(sizes)} would do, none '
            'below 0, in the order of their names'
        )
    weights = np.array(shares or [sizes[name] ** alpha for name in sizes], float)
    return weights / weights.sum()


def stream(
    inputs: dict[str, Inputs], buckets: Sequence[int], size: int, probabilities: np.ndarray, seed: int
) -> Iterator[tuple[str, np.ndarray]]:
    """Task and rows of each step, for ever: each task goes through its epochs in an order of its own."""

    def epochs(name: str, n: int) -> Iterator[np.ndarray]:
        for epoch in range(2**31):
            yield from plan(inputs[name].lengths, buckets, size, np.random.default_rng([seed, n, epoch]))

    names = list(inputs)
    each = {name: epochs(name, n) for n, name in enumerate(names)}
    draw = np.random.default_rng([seed, 2**31])
    while True:
        name = names[0] if len(names) == 1 else names[draw.choice(len(names), p=probabilities)]
        yield name, next(each[name])
