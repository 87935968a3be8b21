"""Two phases in one run: short rows, then long ones; parameters, optimizer and schedule go on."""

import json

import pytest

from bertx.errors import BadInput
from bertx.sweep import arm
from tests.test_sweep import Killed, killer, run, small

MLM = arm('mlm', objectives={'mlm': {}})


def two_phases(store, **second):
    """Twelve steps, the last four of which have rows of 64 tokens, four in a batch."""
    config = small(store)
    config.encoder.max_positions = 64
    config.train.second.update({'steps': 4, 'length': 64, 'batch': 4} | second)
    return config


@pytest.fixture(scope='module')
def whole(store, tmp_path_factory):
    ([planned], failed) = run(two_phases(store), MLM, tmp_path_factory.mktemp('whole'))
    assert not failed
    return planned


def lines(planned):
    return [json.loads(line) for line in (planned.folder.path / 'metrics.jsonl').read_text().splitlines()]


def test_the_second_phase_has_its_own_rows_and_batches(whole):
    tokens = {line['step']: line['tokens'] for line in lines(whole)}
    assert tokens == {3: 3 * 256, 6: 6 * 256, 9: 8 * 256 + 256, 12: 8 * 256 + 4 * 256}
    result = whole.folder.result
    assert result['tokens'] == 12 * 256
    first, second = whole.run, whole.run.second
    assert second.rows.length == 64 and first.rows.length == 32
    assert second.objectives['mlm'].k > first.objectives['mlm'].k
    assert result['flops'] == 8 * first.flops_per_step + 4 * second.flops_per_step


def test_up_to_the_change_it_is_the_run_that_has_one_phase(store, whole, tmp_path):
    ([one], _) = run(two_phases(store, steps=0), MLM, tmp_path)
    assert one.id != whole.id
    losses = [
        [line['loss'] for line in lines(p) if line['step'] <= 6 and line['split'] == 'train'] for p in (one, whole)
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize('at', [6, 10])
def test_a_kill_in_either_phase_costs_no_number(store, whole, tmp_path, at):
    with pytest.raises(Killed):
        run(two_phases(store), MLM, tmp_path, killer(at))
    ([planned], failed) = run(two_phases(store), MLM, tmp_path)
    assert not failed
    assert lines(planned) == lines(whole)


@pytest.mark.parametrize(
    ('second', 'said'),
    [
        ({'steps': 12}, 'config.train.second.steps is 12'),
        ({'batch': 0}, 'config.train.second.batch is 0'),
        ({'length': 128}, 'a row length of 128 exceeds'),
    ],
)
def test_a_second_phase_that_cannot_be_is_refused(store, tmp_path, second, said):
    with pytest.raises(BadInput, match=said):
        run(two_phases(store, **second), MLM, tmp_path)
