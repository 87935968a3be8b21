"""The training step compiled for devices that are not here."""

import importlib.util
import re
import subprocess
import sys

import as_users
import jax
import numpy as np
import pytest
from etils import epath

from bertx import ahead, footprint, parallel, sweep, train
from bertx.errors import BadInput
from bertx.sweep import arm
from tests.test_sweep import small

COMMAND = [sys.executable, '-m', 'experiments.compile']
has_compiler = pytest.mark.skipif(not importlib.util.find_spec('libtpu'), reason='libtpu is not installed: jax[tpu]')


def test_the_shapes_are_those_of_a_real_run(store, tmp_path):
    config = small(store)
    config.data.vocab_size = store.tokenizer.vocab_size
    config.rows.packing = 2
    config.train.update(devices=8, fsdp=2)
    config.objectives = {'mlm': {}, 'sop': {}}
    [planned] = sweep.plan(config, arm('sop'), epath.Path(tmp_path))
    mesh, run = parallel.mesh_of(config.train), planned.run
    rows = train.Rows(store, 'train', run.rows, run.seed)
    vocab = train.vocabulary(store)
    state = train.start(run, rows, vocab, mesh)
    batch = parallel.split_batch(mesh, rows.batch(np.arange(config.train.batch)))
    rest = parallel.replicate(mesh, (run.objectives, run.hyper, jax.random.key(0), vocab))
    found = ahead.arguments(ahead.run_of(config), mesh, config.data.vocab_size)
    about = lambda x: (x.shape, x.dtype, x.sharding)
    assert jax.tree.map(about, found) == jax.tree.map(about, (state, *rest, batch))


def test_collectives_are_counted_by_their_results():
    hlo = """
%all-reduce-scatter.1 (input: f32[64]) -> f32[8] {
  %all-reduce.2 = f32[64]{0} all-reduce(%input), channel_id=1
}
ENTRY %main (p: f32[4]) -> f32[4] {
  %all-reduce.1 = (f32[2,3]{1,0:T(8,128)}, bf16[4]{0}, /*index=2*/pred[8]) all-reduce(%a, %b, %c), channel_id=2
  %all-gather-start = (f32[4]{0}, f32[32]{0}) all-gather-start(%p), dimensions={0}
  %all-gather-done = f32[32]{0} all-gather-done(%all-gather-start)
}
"""
    assert footprint.collectives(hlo) == {'reduce-scatter': (1, 256), 'all-reduce': (1, 40), 'all-gather': (1, 128)}


def test_without_the_compiler_one_line_says_so(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
    with pytest.raises(BadInput, match=r'jax\[tpu\]'):
        ahead.topology('v5e:2x4', 1)


CHIPS = {'v5e:2x4': 8, 'v5e:4x4': 16, 'v5e:16x16': 256}
REFUSED = {('base', 'v5e:2x4'), ('large', 'v5e:2x4'), ('large', 'v5e:4x4')}


@has_compiler
@pytest.mark.slow
@pytest.mark.parametrize('topology', CHIPS)
@pytest.mark.parametrize('size', ['base', 'large'])
@pytest.mark.parametrize('sharded', [False, True])
def test_bert_on_tpus(size, topology, sharded):
    """MLM and SOP, 256 rows of 512 tokens, float32, dropout 0.1: two to four minutes each on two cores."""
    said = subprocess.run(
        [
            *COMMAND, f'--config=configs/sop.py:{size}', f'--topology={topology}', '--config.data.vocab_size=30522',
            '--config.rows.length=512', '--config.train.batch=256', '--config.encoder.unroll=1',
            f'--config.train.fsdp={CHIPS[topology] if sharded else 1}',
        ],
        capture_output=True, text=True, env=as_users.environment(),
    )  # fmt: skip
    print(said.stdout, said.stderr)
    if (size, topology) in REFUSED:
        assert said.returncode == 2
        assert re.fullmatch(
            r'error: the training step does not fit: [\d.]+ GiB of 15.75 GiB on a device; .*\n', said.stderr
        )
        return
    assert said.returncode == 0, said.stderr
    number = lambda pattern: float(re.search(pattern, said.stdout)[1].replace(',', ''))
    state, held = 4e-6 * number(r'([\d,]+) parameters'), number(r'arguments ([\d.]+)') * footprint.GIB / 1e6
    if sharded:
        assert 'all-gather' in said.stdout
        assert held < 3 * state / CHIPS[topology] + 20
    else:
        assert 'all-gather' not in said.stdout
        assert number(r'all-reduce: \d+, of ([\d,.]+) MB') == pytest.approx(state, abs=0.1)  # the gradients
        assert held == pytest.approx(3 * state, rel=0.03)
