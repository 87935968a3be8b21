"""Encoder and heads as one network, and the noise of a batch. Knows no objective by name."""

import zlib
from typing import Any

import flax.linen as nn
import jax

from bertx.encoder import Encoder, EncoderConfig
from bertx.objectives.base import Objective
from bertx.types import DropoutRates, Encoded, Example, Loss, Term, View, Vocabulary, view_of

Objectives = dict[str, Objective]


class Net(nn.Module):
    """One encoder pass shared by all objectives. `heads` holds what each objective built, by its name."""

    config: EncoderConfig
    heads: Any

    def setup(self):
        self.encoder = Encoder(self.config)
        self.head = dict(self.heads)

    def __call__(self, objectives: Objectives, view: View, targets: dict[str, Any], rates: DropoutRates | None = None):
        """`<objective>/<loss>` -> Loss and `<objective>/<metric>` -> Term, per example."""
        targets = dict(targets)
        for name, objective in objectives.items():
            view, targets[name] = objective.rewrite(self.head[name], view, targets[name])
        encoded = self.encoder(view, rates)
        losses: dict[str, Loss] = {}
        metrics: dict[str, Term] = {}
        for name, objective in objectives.items():
            own_losses, own_metrics = objective.terms(self.head[name], encoded, targets[name])
            losses |= {f'{name}/{key}': value for key, value in own_losses.items()}
            metrics |= {f'{name}/{key}': value for key, value in own_metrics.items()}
        return losses, metrics

    def encode(self, view: View) -> Encoded:
        """The hidden states without dropout."""
        return self.encoder(view)


def make_net(config: EncoderConfig, objectives: Objectives) -> Net:
    return Net(config, {name: objective.build(config) for name, objective in objectives.items()})


def corrupt(objectives: Objectives, root, vocab: Vocabulary, batch: Example) -> tuple[View, dict[str, Any]]:
    """The batch's corrupted view, and each objective's targets.

    A row's noise follows from the root, its epoch and index, and the objective's NAME: not from the batch it is in,
    the devices, the other objectives, or where the run was resumed.
    """

    def one(example: Example):
        key = jax.random.fold_in(jax.random.fold_in(root, example.epoch), example.index)
        view, targets = view_of(example), {}
        for name, objective in objectives.items():
            own = jax.random.fold_in(key, zlib.crc32(name.encode()))
            view, targets[name] = objective.corrupt(own, example, view, vocab)
        return view, targets

    return jax.vmap(one)(batch)
