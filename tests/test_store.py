import errno
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from bertx.errors import BadInput
from bertx.text import writer as module
from bertx.text.store import TokenStore, _Column
from bertx.text.tokenizer import Tokenizer
from bertx.text.writer import StoreWriter, columns

WORDS = ['alpha', 'beta', 'gamma', 'delta', 'epsilon', 'zeta', 'eta', 'theta', 'iota', 'kappa']


@pytest.fixture(scope='module')
def tokenizer():
    return Tokenizer.train([' '.join(WORDS)] * 3, 60)


@pytest.fixture(scope='module')
def corpus(tokenizer):
    """For each split its documents: name and sentences of (ids, word starts)."""
    rng = np.random.default_rng(0)

    def sentence():
        n = rng.integers(1, 9)
        starts = rng.integers(0, 2, n).astype(np.uint8)
        starts[0] = 1
        return rng.integers(5, tokenizer.vocab_size, n).astype(np.int32), starts

    return {
        split: [(f'{split}{i}', [sentence() for _ in range(rng.integers(1, 6))]) for i in range(n)]
        for split, n in (('train', 40), ('validation', 7), ('test', 1))
    }


def batch(split, name, sentences, vocab_size=60):
    tokens, starts = (np.concatenate(column) for column in zip(*sentences, strict=True))
    lengths = np.array([len(ids) for ids, _ in sentences])
    row = name, split, zlib.crc32(name.encode())
    return columns([row], np.array([len(lengths)]), lengths, tokens, starts, vocab_size)


def write(out, corpus, tokenizer, shard_tokens=2**26):
    with mock.patch.object(module, 'SHARD_TOKENS', shard_tokens), StoreWriter(out, list(corpus), 'job') as writer:
        if not writer.tokenizer:
            writer.start(tokenizer)
        documents = [(split, *document) for split, documents in corpus.items() for document in documents]
        for document in documents[writer.read :]:
            writer.add(batch(*document, tokenizer.vocab_size))
        writer.finish('en', 'text:x', options={'a': 1})
    return TokenStore(out)


def flat(documents, column):
    return np.concatenate([sentence[column] for _, sentences in documents for sentence in sentences])


@pytest.mark.parametrize('shard_tokens, shards', [(2**26, 1), (100, None), (1, 40)])
def test_what_was_written_is_read(tmp_path, corpus, tokenizer, shard_tokens, shards):
    store = write(tmp_path / 'store', corpus, tokenizer, shard_tokens)
    assert store.vocab_size == tokenizer.vocab_size
    assert store.tokenizer.fingerprint == tokenizer.fingerprint
    assert store.meta['language'] == 'en' and store.meta['options'] == {'a': 1}
    assert not list(tmp_path.glob('.*')), 'the temporary folder stays'
    if shards:
        assert len(store.meta['splits']['train']['shards']) == shards
    else:
        sizes = [shard['tokens'] for shard in store.meta['splits']['train']['shards']]
        assert len(sizes) > 2 and all(100 <= size < 100 + 45 for size in sizes[:-1])
    for name, documents in corpus.items():
        split = store.split(name)
        tokens = flat(documents, 0)
        index = np.random.default_rng(1).integers(0, len(tokens), (5, 7, 3))
        assert split.n_tokens == len(tokens) == store.meta['splits'][name]['tokens']
        np.testing.assert_array_equal(split.gather(index), tokens[index])
        np.testing.assert_array_equal(split.gather_word_starts(index), flat(documents, 1)[index])
        np.testing.assert_array_equal(split.gather(np.arange(len(tokens))), tokens)
        assert split.gather(index).dtype == np.int32 and split.gather_word_starts(index).dtype == np.uint8
        lengths = [len(sentence[0]) for _, sentences in documents for sentence in sentences]
        np.testing.assert_array_equal(split.sentence_starts, np.cumsum([0, *lengths]))
        np.testing.assert_array_equal(split.document_starts, np.cumsum([0, *(len(s) for _, s in documents)]))
        assert split.sentence_starts.dtype == split.document_starts.dtype == np.int64
        assert split.names == [name for name, _ in documents]
    np.testing.assert_array_equal(
        store.unigram_V, np.bincount(flat(corpus['train'], 0), minlength=tokenizer.vocab_size)
    )
    store.verify()


def test_indexes_out_of_range_and_none(tmp_path, corpus, tokenizer):
    for shard_tokens in (2**26, 50):
        split = write(tmp_path / str(shard_tokens), corpus, tokenizer, shard_tokens).split('train')
        for bad in (-1, split.n_tokens):
            with pytest.raises(IndexError):
                split.gather(np.array([0, bad]))
        assert split.gather(np.zeros((0, 4), int)).shape == (0, 4)


def test_one_shard_is_mapped_not_copied(tmp_path, corpus, tokenizer):
    before = pa.total_allocated_bytes()
    split = write(tmp_path / 'store', corpus, tokenizer).split('train')
    (tokens,) = split._tokens.chunks
    assert not tokens.flags.owndata and not tokens.flags.writeable
    assert tokens.dtype == np.uint16
    assert pa.total_allocated_bytes() == before


def test_gathering_over_many_chunks():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 60000, 5000).astype(np.uint16)
    column = _Column(np.split(values, [1, 700, 701, 3000]))
    for low, high in ((0, 5000), (0, 1), (700, 701), (690, 710), (1, 700), (3000, 5000)):
        index = rng.integers(low, high, (16, 9))
        np.testing.assert_array_equal(column.gather(index), values[index])


def test_fingerprint_is_of_the_content(tmp_path, corpus, tokenizer):
    count = iter(range(100))

    def fingerprint(corpus=corpus, tokenizer=tokenizer, shard_tokens=2**26):
        return write(tmp_path / str(next(count)), corpus, tokenizer, shard_tokens).fingerprint

    def changed(edit):
        documents = [(name, [(ids.copy(), starts.copy()) for ids, starts in s]) for name, s in corpus['train']]
        edit(documents)
        return {**corpus, 'train': documents}

    def token(documents):
        ids = documents[3][1][0][0]
        ids[0] = 5 if ids[0] != 5 else 6

    def word(documents):
        starts = max((starts for _, sentences in documents for _, starts in sentences), key=len)
        starts[-1] = 1 - starts[-1]

    def sentence(documents):  # the first two sentences of a document become one
        sentences = next(sentences for _, sentences in documents if len(sentences) > 1)
        sentences[:2] = [tuple(np.concatenate(column) for column in zip(*sentences[:2], strict=True))]

    def document(documents):  # the first two documents become one
        documents[:2] = [('train0', documents[0][1] + documents[1][1])]

    def names(documents):
        documents[:] = [(name + 'x', sentences) for name, sentences in documents]

    base = fingerprint()
    assert fingerprint() == base
    assert fingerprint(shard_tokens=64) == base
    assert fingerprint(changed(names)) == base
    other = Tokenizer.train([' '.join(WORDS)] * 3, 60, lowercase=False)
    assert other.vocab_size == tokenizer.vocab_size
    different = [fingerprint(changed(edit)) for edit in (token, word, sentence, document)]
    different += [fingerprint(tokenizer=other), fingerprint({'train': corpus['train'], 'test': corpus['test']})]
    assert len({base, *different}) == 7


def test_large_vocabularies_take_four_bytes(tmp_path):
    vocabulary = tmp_path / 'vocab.txt'
    pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *(f'w{i}' for i in range(70000))]
    vocabulary.write_text('\n'.join(pieces))
    tokenizer = Tokenizer.load(vocabulary)
    ids = np.array([70004, 65535, 65536, 5], np.int32)
    split = write(tmp_path / 'store', {'train': [('a', [(ids, np.ones(4, np.uint8))])]}, tokenizer).split('train')
    assert split.gather(np.arange(4)).tolist() == ids.tolist()


def test_what_cannot_be_stored_is_refused():
    for ids in ([60], [-1], []):
        sentences = [(np.array([5]), np.ones(1)), (np.array(ids, np.int32), np.ones(len(ids)))]
        with pytest.raises(ValueError, match='doc7'):
            batch('train', 'doc7', sentences)


def edit_meta(store, **changes):
    path = store / 'meta.json'
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def spoil(path, start, data):
    content = bytearray(path.read_bytes())
    start %= len(content)
    content[start : start + len(data)] = data
    path.write_bytes(content)


@pytest.mark.parametrize(
    'damage, message',
    [
        (lambda s: (s / 'meta.json').unlink(), 'no finished token store'),
        (lambda s: edit_meta(s, format=7), 'token store format 7, not 2'),
        (lambda s: (s / 'meta.json').write_text('{"format": 2'), 'meta.json: damaged'),
        (lambda s: (s / 'meta.json').write_text('{"format": 2}'), 'meta.json: damaged'),
        (lambda s: edit_meta(s, max_token=10**6), 'token id 1000000 is outside its vocabulary'),
        (lambda s: (s / 'unigram.npy').unlink(), 'unigram.npy: missing or damaged'),
        (lambda s: (s / 'tokenizer.json').unlink(), 'tokenizer.json.: no such file'),
        (lambda s: (s / 'train-00001.arrow').unlink(), 'train-00001.arrow: this shard is missing'),
        (lambda s: os.truncate(s / 'train-00001.arrow', 900), r'train-00001.arrow: 900 bytes, \d+ were written'),
        (lambda s: spoil(s / 'train-00000.arrow', 0, b'JUNKJUNK'), 'train-00000.arrow: (damaged|not)'),
        (lambda s: spoil(s / 'train-00000.arrow', -10, b'JUNKJUNKJU'), 'train-00000.arrow: damaged'),
        (lambda s: (s / 'train-00000.arrow').write_bytes(bytes((s / 'train-00000.arrow').stat().st_size)), 'damaged'),
    ],
)
def test_damage_is_named(tmp_path, corpus, tokenizer, damage, message):
    path = tmp_path / 'store'
    write(path, corpus, tokenizer, 100)
    damage(path)
    with pytest.raises(BadInput, match=message) as error:
        store = TokenStore(path)
        store.split('train')
        _ = store.tokenizer
        store.verify()
    assert '\n' not in str(error.value) and str(path) in str(error.value)


def test_a_flipped_bit_is_found_by_verify(tmp_path, corpus, tokenizer):
    path = tmp_path / 'store'
    store = write(path, corpus, tokenizer)
    tokens = flat(corpus['train'], 0).astype(np.uint16).tobytes()
    shard = path / 'train-00000.arrow'
    at = shard.read_bytes().index(tokens)
    spoil(shard, at, bytes([tokens[0] ^ 1]))
    with pytest.raises(BadInput, match='train-00000.arrow: not what was written'):
        store.verify()


def test_other_bad_questions(tmp_path, corpus, tokenizer):
    with pytest.raises(BadInput, match='there is no such folder'):
        TokenStore(tmp_path / 'none')
    store = write(tmp_path / 'store', corpus, tokenizer)
    with pytest.raises(BadInput, match="split 'valid' is unknown; did you mean 'validation'"):
        store.split('valid')
    store.check_made_with(tokenizer)
    with pytest.raises(BadInput, match='made with tokenizer'):
        store.check_made_with(Tokenizer.train(['other words'], 60))
    with pytest.raises(BadInput, match='already exists'):
        write(tmp_path / 'store', corpus, tokenizer)


def test_a_failed_write_leaves_what_is_finished(tmp_path, corpus, tokenizer, monkeypatch):
    def fail(job, *documents):
        with pytest.raises(RuntimeError, match='halfway'), StoreWriter(tmp_path / 'store', list(corpus), job) as writer:
            before = writer.read
            if not writer.tokenizer:
                writer.start(tokenizer)
            for document in documents:
                writer.add(batch('train', *document, tokenizer.vocab_size))
            raise RuntimeError('halfway')
        return before

    whole = write(tmp_path / 'whole', corpus, tokenizer, 50)
    monkeypatch.setattr(module, 'SHARD_TOKENS', 50)
    documents = corpus['train']
    assert fail('job', *documents[:2]) == 0
    assert os.listdir(tmp_path) == ['whole'], 'nothing was finished'
    assert fail('job', *documents[:20]) == 0
    done = fail('job')
    assert 10 < done < 20, 'up to the last shard'
    assert fail('another job') == 0
    assert os.listdir(tmp_path) == ['whole']
    fail('job', *documents[:20])
    shard = tmp_path / '.store.partial' / 'train-00000.arrow'
    shard.write_bytes(shard.read_bytes()[:-1] + b'x')
    assert fail('job', *documents[:20]) == 0, 'damaged'
    assert fail('job') == done
    assert write(tmp_path / 'store', corpus, tokenizer, 50).meta == whole.meta
    for path in (tmp_path / 'whole').iterdir():
        assert path.read_bytes() == (tmp_path / 'store' / path.name).read_bytes()


def test_a_full_disk_is_told(tmp_path, corpus, tokenizer, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, 'No space left on device')

    for place, name in ((pa, 'OSFile'), (os, 'fsync')):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, full)
            with pytest.raises(BadInput, match=rf'{tmp_path}: no space left \(\d+ MB free\)'):
                write(tmp_path / 'store', corpus, tokenizer)
        assert os.listdir(tmp_path) == []
    write(tmp_path / 'store', corpus, tokenizer)


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='no /dev/full here')
def test_arrow_gives_the_number_of_the_error():
    with pytest.raises(OSError) as error, pa.OSFile('/dev/full', 'wb') as sink:
        sink.write(b'x' * 10**6)
    assert error.value.errno == errno.ENOSPC  # what the message of the test above depends on


RUNNING = """
import sys
from bertx.text.tokenizer import Tokenizer
from bertx.text.writer import StoreWriter
with StoreWriter(sys.argv[1], ['train'], 'another job') as writer:
    writer.start(Tokenizer.train(['a b c'], 60))
    print('written', flush=True)
    sys.stdin.read()
"""


def test_a_running_writer(tmp_path, corpus, tokenizer):
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}
    command = [sys.executable, '-c', RUNNING, str(tmp_path / 'store')]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b'written\n'
        with pytest.raises(BadInput, match='another process is writing this token store'):
            write(tmp_path / 'store', corpus, tokenizer)
        process.kill()
    assert os.listdir(tmp_path) == ['.store.partial']
    with pytest.raises(BadInput, match='there is no such folder'):
        TokenStore(tmp_path / 'store')
    store = write(tmp_path / 'store', corpus, tokenizer)
    assert os.listdir(tmp_path) == ['store']
    assert store.split('train').names[0] == 'train0'
