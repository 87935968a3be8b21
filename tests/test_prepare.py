import dataclasses
import itertools
import logging
import os
import subprocess
import sys

import numpy as np
import pytest

from bertx.errors import BadInput
from bertx.text import prepare as module
from bertx.text.prepare import PrepareOptions, assign, prepare
from bertx.text.sentences import split
from bertx.text.tokenizer import Tokenizer

WORDS = [
    'the',
    'old',
    'new',
    'ship',
    'road',
    'law',
    'peace',
    'war',
    'people',
    'nation',
    'year',
    'runs',
    'holds',
    'sees',
]


def make_documents(n, seed=0):
    rng = np.random.default_rng(seed)
    return ['\n'.join('. '.join(map(' '.join, rng.choice(WORDS, (3, 5)))) + '.' for _ in range(2)) for _ in range(n)]


@pytest.fixture
def corpus(tmp_path):
    """A folder of two files with 60 documents, and options that read it."""
    documents = make_documents(60)
    (tmp_path / 'corpus').mkdir()
    (tmp_path / 'corpus' / 'a.txt').write_text('\n\n'.join(documents[:25]))
    (tmp_path / 'corpus' / 'b.txt').write_text('\n\n'.join(documents[25:]))
    return documents, PrepareOptions(source=f'text:{tmp_path}/corpus', vocab_size=80, validation=0.2, test=0.2)


def test_documents_become_a_store(corpus, tmp_path):
    documents, options = corpus
    store = prepare(options, tmp_path / 'store')
    report = store.meta['report']
    tokenizer = store.tokenizer
    assert store.vocab_size <= 80
    for name in ('train', 'validation', 'test'):
        expected = [document for document in documents if assign(options, document) == name]
        part = store.split(name)
        assert len(part.names) == len(expected) == report['documents'][name] > 3
        for i, document in enumerate(expected):
            sentences = split(document, 'en')
            first, last = part.document_starts[i : i + 2]
            assert last - first == len(sentences)
            for j, (ids, starts) in enumerate(tokenizer.encode(sentences), first):
                index = np.arange(*part.sentence_starts[j : j + 2])
                np.testing.assert_array_equal(part.gather(index), ids)
                np.testing.assert_array_equal(part.gather_word_starts(index), starts)
    counts = [store.meta['splits'][name] for name in ('train', 'validation', 'test')]
    assert report['sentences'] == sum(c['sentences'] for c in counts) == sum(len(split(d, 'en')) for d in documents)
    assert report['tokens'] == sum(c['tokens'] for c in counts)
    assert report['duplicate_documents'] == report['empty_documents'] == report['unknown_share'] == 0


def test_documents_encoded_together_are_kept_apart(corpus, tmp_path, monkeypatch):
    _, options = corpus
    whole = prepare(options, tmp_path / 'whole')
    monkeypatch.setattr(module, '_BATCH', 7)
    assert prepare(options, tmp_path / 'pieces').fingerprint == whole.fingerprint


def test_a_document_s_side_is_its_own(corpus):
    documents, options = corpus
    sides = [assign(options, document) for document in documents]
    assert [assign(options, document) for document in documents[::-1]] == sides[::-1]
    assert sides != [assign(dataclasses.replace(options, split_seed=9), document) for document in documents]
    more = dataclasses.replace(options, test=0.3, validation=0.1)  # a larger share takes in, and gives none back
    assert all(assign(more, d) == 'test' for d, side in zip(documents, sides, strict=True) if side == 'test')
    many = make_documents(4000, seed=1)
    for side, share in (('train', 0.6), ('validation', 0.2), ('test', 0.2)):
        found = sum(assign(options, document) == side for document in many) / len(many)
        assert abs(found - share) < 4 * (share * (1 - share) / len(many)) ** 0.5


def test_the_tokenizer_sees_the_training_split_alone(tmp_path):
    options = PrepareOptions(source=f'text:{tmp_path}/c.txt', vocab_size=200, validation=0.3, test=0.3)
    marks = {'train': 'д', 'validation': 'ж', 'test': 'щ'}
    chosen = {side: [] for side in marks}
    for document in make_documents(200):
        for side, mark in marks.items():
            if assign(options, f'{document} {mark}') == side:
                chosen[side].append(f'{document} {mark}')
    (tmp_path / 'c.txt').write_text('\n\n'.join(itertools.chain(*chosen.values())))
    store = prepare(options, tmp_path / 'store')
    assert 'д' in store.tokenizer.vocabulary
    assert 'ж' not in store.tokenizer.vocabulary and 'щ' not in store.tokenizer.vocabulary
    assert store.unigram_V.sum() == store.split('train').n_tokens
    assert store.unigram_V[store.tokenizer.unk_id] == 0
    assert (store.split('test').gather(np.arange(store.split('test').n_tokens)) == store.tokenizer.unk_id).any()


def test_two_processes_make_the_same_store(corpus, tmp_path):
    _, options = corpus
    script = (
        'import sys; from bertx.text.prepare import *\n'
        f'print(prepare(PrepareOptions(**{dataclasses.asdict(options)}), sys.argv[1]).fingerprint)'
    )
    prints = []
    for seed in '12':
        environment = {**os.environ, 'PYTHONHASHSEED': seed, 'PYTHONPATH': os.pathsep.join(sys.path)}
        command = [sys.executable, '-c', script, str(tmp_path / seed)]
        prints.append(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert prints[0] == prints[1] and len(prints[0]) == 65


def test_a_finished_store_is_not_made_again(corpus, tmp_path, monkeypatch):
    documents, options = corpus
    made = prepare(options, tmp_path / 'store')
    monkeypatch.setattr(module, 'StoreWriter', None)
    monkeypatch.setattr(module, '_tracked', None)
    assert prepare(options, tmp_path / 'store').fingerprint == made.fingerprint
    for change in ({'vocab_size': 81}, {'test': 0.1}, {'split_seed': 1}, {'language': 'de'}, {'lowercase': False}):
        ((name, value),) = change.items()
        with pytest.raises(BadInput, match=f'was prepared with {name}=.*not {value!r}; choose another folder'):
            prepare(dataclasses.replace(options, **change), tmp_path / 'store')
    text = (tmp_path / 'corpus' / 'b.txt').read_text()
    (tmp_path / 'corpus' / 'b.txt').write_text(text.replace('t', 'T', 1))  # as many bytes
    with pytest.raises(BadInput, match=r'corpus has changed since this was prepared; choose another folder'):
        prepare(options, tmp_path / 'store')
    for file in (tmp_path / 'corpus').iterdir():
        file.unlink()
    assert prepare(options, tmp_path / 'store').fingerprint == made.fingerprint  # moved to where there is no corpus


def test_a_tokenizer_that_is_given(corpus, tmp_path):
    documents, options = corpus
    Tokenizer.train(documents, 70).save(tmp_path / 'tokenizer')
    given = dataclasses.replace(options, tokenizer=str(tmp_path / 'tokenizer'))
    store = prepare(given, tmp_path / 'store')
    assert store.vocab_size == 70
    assert store.tokenizer.fingerprint == Tokenizer.load(tmp_path / 'tokenizer').fingerprint
    (tmp_path / 'tokenizer').rename(tmp_path / 'moved')
    moved = dataclasses.replace(given, tokenizer=str(tmp_path / 'moved'), vocab_size=5)
    assert prepare(moved, tmp_path / 'store').fingerprint == store.fingerprint
    Tokenizer.train(documents, 60).save(tmp_path / 'moved')
    with pytest.raises(BadInput, match='made with tokenizer'):
        prepare(moved, tmp_path / 'store')
    with pytest.raises(BadInput, match='no such file'):
        prepare(dataclasses.replace(options, tokenizer=str(tmp_path / 'none')), tmp_path / 'other')


def test_what_is_odd_is_counted_and_said(corpus, tmp_path, caplog):
    documents, options = corpus
    with open(tmp_path / 'corpus' / 'c.txt', 'w') as file:
        file.write('\n\n'.join([documents[0], documents[0], documents[1], '\x01\x02', '\u200b']))
    Tokenizer.train(['zzz'], 70).save(tmp_path / 'tokenizer')
    with caplog.at_level(logging.INFO):
        store = prepare(dataclasses.replace(options, tokenizer=str(tmp_path / 'tokenizer')), tmp_path / 'store')
    report = store.meta['report']
    assert report['duplicate_documents'] == 3
    assert report['empty_documents'] == 2
    assert report['unknown_share'] == 1
    assert '100.0 % of the tokens are unknown' in caplog.text
    with caplog.at_level(logging.INFO):
        prepare(dataclasses.replace(options, vocab_size=5000), tmp_path / 'large')
    assert 'not 5000' in caplog.text


def test_splits_that_got_nothing(tmp_path):
    (tmp_path / 'one.txt').write_text('Only one document. It has two sentences.')
    one = PrepareOptions(source=f'text:{tmp_path}/one.txt', vocab_size=60)
    with pytest.raises(BadInput, match=r'split \w+ got none of the 1 document\(s\) of text:.*give more documents'):
        prepare(one, tmp_path / 'store')
    Tokenizer.train(['only one document'], 60).save(tmp_path / 'tokenizer')
    with pytest.raises(BadInput, match=r'got none of the 1 document\(s\)'):
        prepare(dataclasses.replace(one, tokenizer=str(tmp_path / 'tokenizer')), tmp_path / 'store')
    seed = next(s for s in range(99) if assign(PrepareOptions(split_seed=s, test=0.9, validation=0), 'One.') == 'test')
    (tmp_path / 'two.txt').write_text('One.')
    with pytest.raises(BadInput, match='split train got none of the 1 .*lower validation= or test='):
        options = PrepareOptions(source=f'text:{tmp_path}/two.txt', split_seed=seed, test=0.9, validation=0)
        prepare(options, tmp_path / 'store')
    assert not (tmp_path / 'store').exists() and not list(tmp_path.glob('.*'))
    store = prepare(dataclasses.replace(one, validation=0, test=0), tmp_path / 'store')  # enough for masked tokens
    assert store.meta['report']['documents'] == {'train': 1}
    with pytest.raises(BadInput, match="split 'test' is unknown"):
        store.split('test')


@pytest.mark.parametrize(
    'change, message',
    [
        ({'validation': 1.2}, 'validation=1.2: it is a share'),
        ({'test': -0.1}, 'test=-0.1: it is a share'),
        ({'validation': 0.5, 'test': 0.5}, 'validation=0.5 and test=0.5 leave nothing'),
        ({'language': 'xx'}, "language 'xx'"),
        ({'vocab_size': 3}, 'vocab_size=3 is too small'),
        ({'words': 'space'}, "config.data.words 'space' is unknown; did you mean 'spaces'"),
        ({'source': 'text:nowhere'}, "no file, folder or match for 'nowhere'"),
    ],
)
def test_bad_options(corpus, tmp_path, change, message):
    with pytest.raises(BadInput, match=message):
        prepare(dataclasses.replace(corpus[1], **change), tmp_path / 'store')


def test_another_folder_is_not_written_over(corpus, tmp_path, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(BadInput, match='already exists'):
        patch.setattr(module, '_train', None)  # said before the work is done
        prepare(corpus[1], tmp_path / 'corpus')
    with pytest.raises(BadInput, match='already exists'):
        prepare(corpus[1], tmp_path / 'corpus')
    assert len(list((tmp_path / 'corpus').iterdir())) == 2
    (tmp_path / 'empty').mkdir()
    prepare(corpus[1], tmp_path / 'empty')
    with pytest.raises(BadInput, match='already exists'):
        prepare(corpus[1], tmp_path / 'corpus' / 'a.txt')
    with pytest.raises(BadInput, match='cannot write'):
        prepare(corpus[1], tmp_path / 'corpus' / 'a.txt' / 'store')


def test_sotu(tmp_path):
    """The default corpus: 5 to 15 s."""
    store = prepare(PrepareOptions(), tmp_path / 'store')
    report = store.meta['report']
    assert report['documents'] == {'train': 190, 'validation': 26, 'test': 21}
    assert store.vocab_size == 4096
    assert report['unknown_share'] < 1e-5
    assert 2_500_000 < report['tokens'] < 2_800_000
    assert 72_000 < report['sentences'] < 75_000
    train = store.split('train')
    ids = train.gather(np.arange(*train.sentence_starts[:2]))
    assert store.tokenizer.decode(ids).startswith('fellow - citizens of the senate and house of representatives')
    for name in ('validation', 'test'):  # every era
        years = [int(document[:4]) for document in store.split(name).names]
        assert np.histogram(years, [1790, 1850, 1910, 1970, 2030])[0].min() >= 5
