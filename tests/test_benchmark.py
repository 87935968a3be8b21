"""The benchmark's own arithmetic, and that all its parts run."""

import functools
import json

import pytest
from etils import epath

from bertx import benchmark, parallel, sweep
from bertx.families import encoder_of
from experiments import peer
from tests.test_sweep import small


def test_ratios_are_taken_turn_by_turn():
    rates = {'a': [2.0, 20.0, 200.0], 'b': [1.0, 10.0, 50.0]}  # the machine's speed drifts
    assert benchmark.ratio(rates, 'a', 'b') == 2.0


def test_turns_count_what_was_done():
    done = []
    rates = benchmark.turns({'a': lambda: done.append(1)}, rounds=2, seconds=0.02)
    assert len(rates['a']) == 2
    assert sum(rates['a']) * 0.02 == pytest.approx(len(done), rel=0.3)


def test_products_have_the_flops_of_the_encoder():
    config = encoder_of('bert', 'tiny', 100)
    _, flops = benchmark.products(config, rows=64, predicted=0)
    attention = config.layers * 4.0 * 64 * 64 * config.width  # not among the products
    assert flops + attention == pytest.approx(64 * config.flops_per_token(64))


def test_training_is_measured_beside_torch(store, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark.turns, '__defaults__', (2, 0.05))
    planned = sweep.plan(small(store), [{'arm': 'tiny'}], epath.Path(tmp_path))
    peers = {f'torch {x}': functools.partial(peer.torch_training, gathered=x) for x in (True, False)}
    line = benchmark.training(planned[0], parallel.data_mesh(1), peers)
    assert {'x torch True', 'x torch False', 'data / fixed', 'of products'} <= line.keys()
    assert all(value > 0 for key, value in line.items() if key != 'size')
    json.dumps(line)
    (same,) = benchmark.arms(planned, parallel.data_mesh(1))
    assert same['x tiny'] == 1.0
