"""What a run says of itself: its log lines, and warnings where something looks wrong."""

import collections
import logging
from typing import Any

import jax
import numpy as np

from bertx.config import Run
from bertx.model import Objectives
from bertx.results import RunFolder
from bertx.types import Term

log = logging.getLogger(__name__)


class NotFinite(Exception):
    """Losses or gradients were inf or nan too often: the run has failed."""


class Spikes:
    """Tells of losses far above those of the twenty log lines before."""

    def __init__(self, losses: list[float]):
        self.losses = collections.deque(losses, maxlen=20)

    def __call__(self, loss: float) -> bool:
        before = np.array(self.losses)
        self.losses.append(loss)
        if len(before) < 20:
            return False
        # Medians, which a spike itself hardly moves. Of a normal, the median deviation is 0.6745 standard ones.
        middle = np.median(before)
        return loss > middle + max(6 * np.median(abs(before - middle)) / 0.6745, 0.05 * middle)


class Watch:
    """Writes the lines of metrics.jsonl that come from training steps; `shown` has the numbers of the last one."""

    def __init__(self, run: Run, folder: RunFolder):
        self.run, self.folder = run, folder
        self.most = run.train['max_skipped']
        self.shown: dict[str, float] = {}
        self.warned: set[str] = set()
        before = [line for line in folder.metrics() if line['split'] == 'train']
        steps = np.diff([0, *(line['step'] for line in before)])
        self.skipped = round(sum(n * line['optimizer/skipped'] for n, line in zip(steps, before, strict=True)))
        self.spike = Spikes([line['loss'] for line in before if not line['optimizer/skipped']])

    def line(self, step: int, window: dict[str, Term]) -> None:
        """Raises NotFinite, after the line that shows it has been written."""
        window = jax.device_get(window)
        shown = means(window)
        if shown['optimizer/skipped'] == 1:  # nothing else is known of it
            shown = {'optimizer/skipped': 1.0}
        self.shown = shown
        self.folder.append(
            'metrics.jsonl', {'step': step, 'split': 'train', 'tokens': self.run.after(step)['tokens']} | shown
        )
        if skipped := int(window['optimizer/skipped'].sum):
            self.skipped += skipped
            log.warning('step %d: %d steps since the last line had no finite loss and gradient; skipped', step, skipped)
            if self.skipped > self.most:
                raise NotFinite(
                    f'{self.skipped} steps up to {step} had no finite loss and gradient; a lower '
                    'config.optimizer.learning_rate, or a higher config.train.max_skipped, may do'
                )
        elif self.spike(shown['loss']):
            log.warning('step %d: the loss is %.3f, far above those before', step, shown['loss'])
        if step > self.run.hyper['warmup'] and len(shown) > 1:
            for text in warnings(self.run.objectives, shown):
                if text not in self.warned:
                    log.warning('step %d: %s', step, text)
                self.warned.add(text)


def means(window: dict[str, Term]) -> dict[str, float]:
    """Each term's sum over its weight."""
    return {name: float(term.sum / np.maximum(term.weight, 1e-9)) for name, term in sorted(window.items())}


def warnings(objectives: Objectives, shown: dict[str, Any]) -> list[str]:
    """What the objectives find wrong with the values of a log line."""
    found = []
    for name, objective in objectives.items():
        own = {key.removeprefix(f'{name}/'): value for key, value in shown.items() if key.startswith(f'{name}/')}
        found += [f'config.objectives.{name}: {text}' for text in objective.warnings(own)]
    return found
