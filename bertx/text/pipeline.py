"""Batches from the host to the loop, through grain: built ahead in threads, in an order that only the config sets."""

from collections.abc import Iterator

import grain
import numpy as np

from bertx.text.rows import Rows
from bertx.types import Example


class BatchSource:
    """Batch i holds the rows i*B .. (i+1)*B of the run; host h of n builds its own contiguous share."""

    def __init__(self, rows: Rows, batch: int, steps: int, host: int = 0, hosts: int = 1):
        self.rows, self.batch, self.steps, self.host, self.hosts = rows, batch, steps, host, hosts

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Example:
        share = self.batch // self.hosts
        first = step * self.batch + self.host * share
        return self.rows.batch(np.arange(first, first + share))

    def __repr__(self) -> str:
        return f'BatchSource(batch={self.batch}, steps={self.steps}, host={self.host}/{self.hosts})'


def batches(source: BatchSource, start: int = 0) -> Iterator[Example]:
    """Batches `start`, `start` + 1, ... of the run: resuming is a seek. Threads change the speed, never the order."""
    dataset = grain.MapDataset.source(source)[start:]
    return iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)))
