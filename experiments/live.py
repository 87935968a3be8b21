"""All runs of a sweep in the terminal, read from their folders: it shows them whoever works on them."""

import contextlib
import math
import time
from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bertx.results import RunFolder
from bertx.scheduling import leases
from bertx.sweep import Planned
from experiments import cli

SECONDS = 2.0  # between two looks


class View:
    """What rich shows: how many runs are in which state, and the ones that run."""

    def __init__(self, planned: Sequence[Planned]):
        self.planned, self.done, self.begun = planned, set[str](), time.time()

    def state(self, p: Planned) -> str:
        if p.id in self.done:
            return 'done'
        result = p.folder.result
        if result and result['status'] == 'done':
            self.done.add(p.id)
            return 'done'
        if leases.held(p.folder.path):
            return 'running'
        return 'failed' if result else 'waiting'

    def __rich__(self) -> Group:
        states = {p.id: self.state(p) for p in self.planned}
        kinds = ('done', 'running', 'waiting', 'failed')
        counts = ', '.join(f'{n} {kind}' for kind in kinds if (n := list(states.values()).count(kind)))
        table = Table('run', 'step', 'loss', 'tokens/s', 'left', box=None, pad_edge=False)
        for p in self.planned:
            if states[p.id] == 'running':
                table.add_row(p.id, *about(p.folder, p.run.train['steps'], p.run.tokens_per_step))
        return Group(Text(f'{len(self.planned)} runs: {counts}'), *[table] * bool(table.rows))


def about(folder: RunFolder, steps: int, tokens: int) -> tuple[str, str, str, str]:
    """Step, loss, tokens/s and time left, as the run's last lines tell."""
    lines, clocks = folder.last('metrics.jsonl', 'train'), folder.last('timing.jsonl')
    if not lines or not clocks:
        return f'0/{steps}', '', '', ''
    left = (steps - clocks['step']) * tokens / clocks['tokens_per_s']
    return (
        f'{clocks["step"]}/{steps}', f'{lines.get("loss", math.nan):.3f}', f'{clocks["tokens_per_s"]:,.0f}',
        f'{left / 60:.0f} min' if left >= 90 else f'{left:.0f} s',
    )  # fmt: skip


@contextlib.contextmanager
def view(planned: Sequence[Planned]) -> Iterator[None]:
    """Shows the runs meanwhile, where there is a terminal."""
    if not cli.console.is_terminal:
        yield
        return
    with Live(View(planned), console=cli.console, refresh_per_second=1 / SECONDS):
        yield


@contextlib.contextmanager
def quiet(*_) -> Iterator:
    """An engine's progress where something else shows it."""
    yield lambda *_: None
