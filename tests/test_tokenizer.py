import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers
from transformers import BertTokenizer, PreTrainedTokenizerFast

from bertx.errors import BadInput
from bertx.text.tokenizer import SPECIALS, Tokenizer

UNCASED = Path(__file__).parents[2] / 'shared/data/vocabs/bert-base-uncased-vocab.txt'
SENTENCES = [
    'The quick brown fox jumps over the lazy dog, unaffably.',
    "It's the café's naïve RÉSUMÉ: $3.50 (50% off)!",
    'Jumping foxes are quicker than the laziest of dogs',
    '他来了。Tabs\tand  spaces\u00a0and\u200bzero\x00 width',
    '',
    '    ',
    '##s [MASK] [unused7] a[SEP]b x' + 'y' * 120,
    'Œuvre ﬁne ½ ☃ 𝒳 e\u0301',
]
SMALL = '[PAD] [UNK] [CLS] [SEP] [MASK] [unused0] the quick cafe un ##aff ##able it The , . jump ##ing ##s 他 dog ##d'


def small_vocab(folder, extra=''):
    path = folder / 'vocab.txt'
    path.write_text('\n'.join([*SMALL.split(), *map(chr, range(97, 123)), *extra.split()]) + '\n')
    return path


@pytest.fixture(scope='module')
def trained():
    return Tokenizer.train(SENTENCES * 3, 150)


def test_training_does_not_depend_on_process_threads_or_order():
    # Random words have many ties between pairs, so that any that is broken by chance shows.
    script = (
        'import random, sys; from bertx.text.tokenizer import Tokenizer\n'
        'rng = random.Random(0)\n'
        'words = ["".join(rng.choices("abcdefghij", k=rng.randint(1, 8))) for _ in range(3000)]\n'
        'random.Random(int(sys.argv[1])).shuffle(words)\n'
        'print(Tokenizer.train((" ".join(words[i : i + 7]) for i in range(0, 3000, 7)), 400).fingerprint)'
    )
    prints = set()
    for seed in '123':
        chance = {'PYTHONHASHSEED': seed, 'RAYON_NUM_THREADS': seed}
        environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path), **chance}
        done = subprocess.run(
            [sys.executable, '-c', script, seed], env=environment, capture_output=True, text=True, check=True
        )
        prints.add(done.stdout)
    assert len(prints) == 1


def test_a_trained_vocabulary(trained):
    assert [trained.pad_id, trained.unk_id, trained.cls_id, trained.sep_id, trained.mask_id] == [0, 1, 2, 3, 4]
    assert trained.vocab_size == len(trained.vocabulary) <= 150
    assert {'the', 'quick', '##s', '##x', 'f'} <= set(trained.vocabulary)
    assert 'É' not in trained.vocabulary and 'é' not in trained.vocabulary  # lower case, without accents
    assert sorted(np.flatnonzero(~trained.ordinary())) == [0, 1, 2, 3, 4]


def test_a_small_corpus_makes_a_small_vocabulary():
    tokenizer = Tokenizer.train(['abab ab'], 4096)
    assert set(tokenizer.vocabulary) == {*SPECIALS, 'a', 'b', '##a', '##b', 'ab', '##ab', 'abab'}
    assert tokenizer.vocab_size == 12


def test_cased_training_keeps_case_and_accents():
    tokenizer = Tokenizer.train(['Été Été été'], 50, lowercase=False)
    assert 'Été' in tokenizer.vocabulary
    (upper, _), (lower, _) = tokenizer.encode(['Été', 'été'])
    assert list(upper) != list(lower)


def test_the_vocabulary_never_exceeds_its_size_and_the_most_frequent_characters_fit():
    text = [chr(0x4E00 + i) * (i + 1) for i in range(200)]  # characters that are words of their own
    tokenizer = Tokenizer.train(text, 105)
    assert tokenizer.vocab_size <= 105
    assert chr(0x4E00 + 199) in tokenizer.vocabulary and chr(0x4E00) not in tokenizer.vocabulary
    for size in (10, 11, 40, 77):
        assert Tokenizer.train(SENTENCES, size).vocab_size <= size
    with pytest.raises(BadInput, match='vocab_size=9 is too small'):
        Tokenizer.train(SENTENCES, 9)
    with pytest.raises(BadInput, match='no words'):
        Tokenizer.train(['', ' '], 100)


def test_save_and_load(trained, tmp_path):
    trained.save(tmp_path / 'new')
    for path in (tmp_path / 'new', tmp_path / 'new' / 'tokenizer.json', str(tmp_path / 'new')):
        again = Tokenizer.load(path)
        assert again.fingerprint == trained.fingerprint
        assert_same(again.encode(SENTENCES), trained.encode(SENTENCES))
    # Layout of the file does not count, content does.
    content = json.loads((tmp_path / 'new' / 'tokenizer.json').read_text())
    (tmp_path / 'flat.json').write_text(json.dumps(content))
    assert Tokenizer.load(tmp_path / 'flat.json').fingerprint == trained.fingerprint
    content['normalizer']['lowercase'] = False
    (tmp_path / 'cased.json').write_text(json.dumps(content))
    assert Tokenizer.load(tmp_path / 'cased.json').fingerprint != trained.fingerprint


def test_truncation_and_padding_in_a_file_are_dropped(trained, tmp_path):
    other = tokenizers.Tokenizer.from_str(trained.text)
    other.enable_truncation(4)
    other.enable_padding(length=9)
    other.save(str(tmp_path / 'tokenizer.json'))
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == trained.fingerprint
    assert_same(again.encode(SENTENCES), trained.encode(SENTENCES))


@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('vocab', ['small', 'published'])
def test_same_ids_as_transformers(vocab, lowercase, tmp_path):
    if vocab == 'published' and not UNCASED.exists():
        pytest.skip(f'{UNCASED} is not here')
    path = small_vocab(tmp_path) if vocab == 'small' else UNCASED
    ours = Tokenizer.load(path, lowercase=lowercase)
    theirs = BertTokenizer(vocab=str(path), do_lower_case=lowercase)
    assert theirs.vocab_size == ours.vocab_size
    encoded = ours.encode(SENTENCES, allow_special=True)
    for sentence, (ids, _) in zip(SENTENCES, encoded, strict=True):
        assert ids.tolist() == theirs(sentence, add_special_tokens=False)['input_ids'], sentence
    assert len({tuple(ids) for ids, _ in encoded}) > 5


def test_a_folder_says_how_its_weights_read_case(tmp_path):
    small_vocab(tmp_path, 'A É é 中')

    def ids(**settings):
        (tmp_path / 'tokenizer_config.json').write_text(json.dumps(settings))
        theirs = BertTokenizer(vocab=str(tmp_path / 'vocab.txt'), **settings)
        ours = Tokenizer.load(tmp_path).encode(['A É a é 中中'])[0][0].tolist()
        assert ours == theirs('A É a é 中中', add_special_tokens=False)['input_ids']
        return ours

    kept = [
        ids(do_lower_case=False), ids(do_lower_case=True), ids(do_lower_case=True, strip_accents=False),
        ids(do_lower_case=False, tokenize_chinese_chars=False),
    ]  # fmt: skip
    assert len(set(map(tuple, kept))) == 4
    (tmp_path / 'tokenizer_config.json').write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    with pytest.raises(BadInput, match='a BertJapaneseTokenizer is more than its vocab.txt'):
        Tokenizer.load(tmp_path)


def test_word_starts_are_where_no_continuation_is(trained):
    pieces = {i: piece for piece, i in trained.vocabulary.items()}
    encoded = trained.encode(SENTENCES)
    assert [len(ids) for ids, _ in encoded][4:6] == [0, 0]
    for ids, starts in encoded:
        assert ids.dtype == np.int32 and starts.dtype == np.uint8
        assert starts.tolist() == [not pieces[i].startswith('##') for i in ids.tolist()]
    assert sum(int((starts == 0).sum()) for _, starts in encoded) > 10


def test_encoding_in_a_batch_is_encoding_alone(trained):
    assert_same(trained.encode(SENTENCES), [trained.encode([sentence])[0] for sentence in SENTENCES])
    assert trained.encode([]) == []
    assert [starts.tolist() for _, starts in trained.encode(['the', 'the', 'foxes'])] == [[1], [1], [1, 0]]


def test_special_tokens_in_text_are_text_unless_allowed(trained):
    ((plain, starts),) = trained.encode(['the [MASK][MASK]'])
    assert trained.mask_id not in plain
    ((special, starts),) = trained.encode(['the [MASK][MASK]'], allow_special=True)
    assert special.tolist() == [trained.vocabulary['the'], 4, 4]
    assert starts.tolist() == [1, 1, 1]  # each special token is a word of its own
    assert trained.decode(special) == 'the [MASK] [MASK]'
    assert trained.mask_id not in trained.encode(['[MASK]'])[0][0]  # the permission does not stick


def test_ordinary_leaves_out_specials_and_spare_rows(tmp_path):
    tokenizer = Tokenizer.load(small_vocab(tmp_path))
    outside = {piece for piece, i in tokenizer.vocabulary.items() if not tokenizer.ordinary()[i]}
    assert outside == {'[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', '[unused0]'}
    if UNCASED.exists():
        assert Tokenizer.load(UNCASED).ordinary().sum() == 30522 - 5 - 994


def test_byte_level_vocabulary_with_other_names():
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ['<s>', '<pad>', '</s>', '<mask>', '<extra>']
    model.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=400, special_tokens=specials, show_progress=False)
    )
    tokenizer = Tokenizer(model.to_str())
    assert [tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id] == [0, 1, 2, 3]
    assert tokenizer.unk_id is None
    assert np.flatnonzero(~tokenizer.ordinary()).tolist() == [0, 1, 2, 3, 4]
    ((ids, starts),) = tokenizer.encode(['fq jumps ju'])
    pieces = {i: piece for piece, i in tokenizer.vocabulary.items()}
    words = ''.join('|' * int(start) + pieces[i] for i, start in zip(ids.tolist(), starts, strict=True))
    assert words == '|fq|Ġjumps|Ġju'


@pytest.mark.parametrize(
    'content, message',
    [
        ('{"no": "tokenizer"}', 'not a tokenizer.json'),
        ('[PAD]', 'not a tokenizer.json'),
        ('[1]', 'not a tokenizer.json'),
    ],
)
def test_a_bad_tokenizer_json_is_named(tmp_path, content, message):
    (tmp_path / 'tokenizer.json').write_text(content)
    with pytest.raises(BadInput, match=message) as error:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize('role', ['pad', 'unk', 'cls', 'sep', 'mask'])
def test_a_vocabulary_without_a_special_token_is_refused(tmp_path, role):
    path = small_vocab(tmp_path)
    path.write_text(path.read_text().replace(f'[{role.upper()}]', 'other'))
    with pytest.raises(BadInput, match=rf'vocab.txt: the vocabulary has no {role} token; add \[{role.upper()}\]'):
        Tokenizer.load(path)


def test_other_bad_vocabularies(tmp_path):
    with pytest.raises(BadInput, match="piece 'dog' stands on two lines"):
        Tokenizer.load(small_vocab(tmp_path, 'dog'))
    with pytest.raises(BadInput, match='no such file'):
        Tokenizer.load(tmp_path / 'none')
    (tmp_path / 'latin.txt').write_bytes(b'[PAD]\n\xff')
    with pytest.raises(BadInput, match='byte 6 is not UTF-8'):
        Tokenizer.load(tmp_path / 'latin.txt')


def assert_same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_vocabulary_of_words(tmp_path):
    sentences = ['我 喜欢 机器 学习', '深度 学习 和 机器 学习', 'Ça va [MASK] 学习']
    tokenizer = Tokenizer.train_words(sentences, 4096)
    by_id = sorted(tokenizer.vocabulary, key=tokenizer.vocabulary.get)
    assert by_id[:7] == [*SPECIALS, '学习', '机器']
    assert set(by_id[7:]) == {'[mask]', 'ca', 'va', '和', '喜欢', '我', '深度'}
    ((ids, starts),) = tokenizer.encode(['深度学习 学习,\t机器'])
    assert ids.tolist() == [1, 1, 6] and starts.tolist() == [1, 1, 1]
    assert tokenizer.marks_words and tokenizer.decode([5, 6]) == '学习 机器'
    assert Tokenizer.train_words(sentences[::-1], 4096).fingerprint == tokenizer.fingerprint
    assert Tokenizer.train_words(sentences, 10).vocab_size == 10

    cased = Tokenizer.train_words(['a [MASK] b[SEP]', '[PAD]'], 4096, lowercase=False)
    assert set(cased.vocabulary) == {*SPECIALS, 'a', 'b', '[', 'MASK]', 'SEP]', 'PAD]'}
    for text in ('a[MASK]', 'a [MASK]'):
        ((read, _), (special, _)) = cased.encode([text]) + cased.encode([text], allow_special=True)
        assert cased.mask_id not in read and special.tolist() == [cased.vocabulary['a'], cased.mask_id]

    tokenizer.save(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / 'tokenizer.json'))
    assert theirs('我 喜欢 [MASK] 鱼')['input_ids'] == [2, *tokenizer.encode(['我 喜欢'])[0][0], 4, 1, 3]
    with pytest.raises(BadInput, match='no words'):
        Tokenizer.train_words(['', ' '], 20)
