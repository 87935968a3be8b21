"""Encoder and heads as one network, and the noise of a batch. Knows no objective by name."""

import zlib
from typing import Any

import flax.linen as nn
import jax

from bertx.encoder import Encoder, EncoderConfig
from bertx.objectives.base import Objective
from bertx.types import DropoutRates, Encoded, Example, Loss, Tables, Term, View, Vocabulary, view_of

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
        targets, base = dict(targets), None
        for name, objective in objectives.items():
            head = self.head[name]
            view, targets[name] = objective.rewrite(head, self.encoder, view, targets[name], rates)
            base = objective.base(head) or base
        encoded = self.encoder(view, rates, base=base)
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

    def tables(self, objectives: Objectives) -> Tables:
        """The encoder's tables with what an objective gives to them."""
        base = [objective.base(self.head[name]) for name, objective in objectives.items()]
        return self.encoder.embeddings.tables(next((tables for tables in base if tables is not None), None))


def rebuilt(structure) -> Any:
    """Objectives from their tree structure, with zeros for numbers: enough to build heads and trace with others."""
    return jax.tree.unflatten(structure, [0.0] * structure.num_leaves)


def encoder_params(config: EncoderConfig, objectives: Objectives, params):
    """The encoder's parameters so that they can be used alone."""
    if not config.delta_embeddings:
        return params['encoder']
    found: Any = make_net(config, objectives).apply({'params': params}, objectives, method=Net.tables)
    tables = {'token': {'embedding': found.token_VE}, 'position': {'embedding': found.position_PE}}
    return params['encoder'] | {'embeddings': params['encoder']['embeddings'] | tables}


def groups(objectives: Objectives) -> dict[str, Any]:
    """Path prefix -> factor of the learning rate, for the parameters that have an optimizer group of their own."""
    return {
        f'heads_{name}/{path}': factor
        for name, objective in objectives.items()
        for path, factor in objective.groups().items()
    }


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
