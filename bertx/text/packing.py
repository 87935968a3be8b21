"""Inputs into rows: which share a row, and in what order the rows of an epoch come."""

import numpy as np

from bertx.text.plan import offsets, ragged, stream


def best_fit(sizes: np.ndarray, length: int, most: int) -> np.ndarray:
    """[I] the row of each input: the longest first, each into the fullest row that still has room for it.

    Over a whole epoch, not in windows: it takes a microsecond an input, and fills more (98 % where windows of 128
    fill 96 %: sentence pairs of the default corpus, 128 tokens a row).
    """
    row = np.empty(len(sizes), np.int64)
    by_room: list[list[int]] = [[] for _ in range(length + 1)]  # rows that may take more, by the room left
    some = 0  # bit r is set where by_room[r] has a row
    held: list[int] = []  # inputs in each row
    order = np.argsort(-sizes, kind='stable')
    for i, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        fitting = some >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1  # the lowest bit
            here = by_room[room].pop()
            if not by_room[room]:
                some ^= 1 << room
            held[here] += 1
        else:
            room, here = length, len(held)
            held.append(1)
        row[i] = here
        if held[here] < most:
            by_room[room - size].append(here)
            some |= 1 << room - size
    return row


def arrange(
    sizes: np.ndarray, length: int, packing: int, seed: int, epoch: int, rows: int, kinds: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """(inputs, row_starts [rows + 1]): the epoch's rows, shuffled; row r holds inputs[row_starts[r]:row_starts[r + 1]].

    sizes: [I] slots that each input takes.
    rows: how many; 0 for as many as it makes. All epochs must have the same number, so that row numbers can be divided
        into epochs; epochs differ by a few, so one that makes more leaves some out, one that makes fewer repeats some.
    kinds: where inputs come in kinds of equal number, how many kinds. Rows and inputs are then multiples of six
        whatever the number, so that every arm of a seed has the same ones; of `kinds`, where there are fewer than six.
        For this up to five inputs are taken out of rows that hold others.
    """
    order = stream(seed, epoch, 'order').permutation(len(sizes))
    starts = np.arange(len(sizes) + 1)
    if packing > 1:
        row = best_fit(sizes[order], length, packing)
        order, starts = order[np.argsort(row, kind='stable')], offsets(np.bincount(row))
    made = len(starts) - 1
    if not rows:
        rows = (made // 6 * 6 or made // kinds * kinds or made) if kinds else made
    chosen = np.arange(made)
    if packing > 1:  # best_fit has sorted them by length
        chosen = stream(seed, epoch, 'rows').permutation(made)
    chosen = np.resize(chosen, rows)
    items, owner, number = ragged(starts, chosen)
    if kinds:
        spare = np.flatnonzero(number > 0)
        excess = len(items) % 6
        if excess > len(spare) or len(items) < 6:
            excess = len(items) % kinds
        out = spare[max(0, len(spare) - excess) :]
        items, owner = np.delete(items, out), np.delete(owner, out)
    return order[items], offsets(np.bincount(owner, minlength=rows))
