"""Where words begin, for each kind of tokenizer, and for words that the tokenizer does not know of."""

import itertools
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from bertx.errors import BadInput
from bertx.select import WholeWords
from bertx.text import known
from bertx.text.prepare import PrepareOptions, prepare
from bertx.text.rows import RowOptions, Rows
from bertx.text.tokenizer import Tokenizer
from bertx.text.words import finder, require
from bertx.train import vocabulary

DATA = Path(__file__).parents[2] / 'shared/data'
SPECIALS = ['<unk>', '<s>', '<pad>', '</s>', '<mask>']
TEXT = 'the quick brown fox jumps over lazy dogs'
CHINESE = '我们在北京大学学习自然语言处理。'
JIEBA = '我们 在 北京大学 学习 自然语言 处理 。'


def make(model, trainer, pre_tokenizer=None, normalizer=None) -> Tokenizer:
    learner = tokenizers.Tokenizer(model)
    if pre_tokenizer:
        learner.pre_tokenizer = pre_tokenizer
    if normalizer:
        learner.normalizer = normalizer
    size = trainer.vocab_size
    learner.train_from_iterator([TEXT, TEXT[::-1]] * 3, trainer)
    assert learner.get_vocab_size() <= size
    return Tokenizer(learner.to_str())


def bpe(pre_tokenizer=None, normalizer=None, size=60, **kwargs) -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False, **kwargs)
    return make(models.BPE(unk_token='<unk>'), trainer, pre_tokenizer, normalizer)


def unigram(split: bool) -> Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=SPECIALS, unk_token='<unk>', max_piece_length=4, show_progress=False
    )
    return make(models.Unigram(), trainer, pre_tokenizers.Metaspace(split=split))


def byte_level(**kwargs) -> Tokenizer:
    return bpe(pre_tokenizers.ByteLevel(**kwargs), size=290, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


KINDS = {
    'wordpiece': lambda: Tokenizer.train([TEXT, TEXT[::-1]], 75),
    'sentencepiece': lambda: unigram(split=True),
    'byte-level': lambda: byte_level(add_prefix_space=False),
    'cut at spaces, no marks': lambda: bpe(pre_tokenizers.Whitespace()),
    # Nothing is cut before the model: only the marks tell.
    'uncut, ▁': lambda: bpe(normalizer=normalizers.Replace(' ', '▁'), size=45),
    'uncut, Ġ': lambda: byte_level(add_prefix_space=False, use_regex=False),
}


def words(tokenizer: Tokenizer, text: str, **kwargs) -> list[str]:
    """The pieces of each word, without the marks."""
    texts = tokenizer.texts()
    ((ids, starts),) = tokenizer.encode([text], **kwargs)
    assert starts[0] == 1 and starts.dtype == np.uint8
    return ''.join(' ' * int(start) + texts[i] for i, start in zip(ids.tolist(), starts, strict=True)).split()


ODD = [
    'the quick  brown', '', ' fox', 'fox ', '[MASK] [UNK]', 'caf\u0301e \u0301 \u0301fox', '\x00 \u200b',
    'ab\tc\u00a0d\u2003e', 'Ελλάς ΣΑΣ İ ﬁ ½', '你好 dog,cat 。', 'q' * 200 + ' dog', '▁the Ġfox ##ox',
]  # fmt: skip


@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('kind', [*KINDS, 'words'])
def test_many_are_encoded_as_one_by_one(kind, lowercase, monkeypatch):
    text = [*ODD, *TEXT.split(), TEXT.upper()]
    if kind == 'wordpiece':
        tokenizer = Tokenizer.train(text, 75, lowercase)
    else:
        tokenizer = Tokenizer.train_words(text, 30, lowercase) if kind == 'words' else KINDS[kind]()
    assert (tokenizer._by_space is True) == (kind in ('wordpiece', 'words'))
    for most in (2**20, 3):
        monkeypatch.setattr(known, '_MOST', most)
        for sentences in ([TEXT, *ODD], ODD[::-1], [], ['']):
            ids, starts, lengths = tokenizer.encode_many(sentences)
            alone = [tokenizer.encode([sentence])[0] for sentence in sentences]
            assert lengths.tolist() == [len(pair[0]) for pair in alone]
            for column, found in enumerate((ids, starts)):
                assert found.tolist() == [value for pair in alone for value in pair[column].tolist()]
                assert found.dtype == (np.int32, np.uint8)[column]


@pytest.mark.parametrize('kind', [name for name in KINDS if name != 'uncut, Ġ'])
def test_words_begin_where_they_are_written(kind):
    tokenizer = KINDS[kind]()
    text = 'dogs over quick fox the'
    assert words(tokenizer, text) == text.split()
    ((ids, _),) = tokenizer.encode([text])
    assert len(ids) > 4  # some are cut
    assert tokenizer.marks_words


def test_merges_over_a_space_leave_the_marks_that_there_are():
    tokenizer = KINDS['uncut, Ġ']()
    assert tokenizer.marks_words
    pieces = {i: piece for piece, i in tokenizer.vocabulary.items()}
    ((ids, starts),) = tokenizer.encode(['dogs over quick fox the'])
    assert starts.tolist() == [i == 0 or pieces[x].startswith('Ġ') for i, x in enumerate(ids.tolist())]
    assert 1 < starts.sum() < len(starts)


@pytest.mark.parametrize('tokenizer', [KINDS[kind] for kind in KINDS] + [bpe], ids=[*KINDS, 'uncut, no marks'])
def test_the_last_letter_of_each_piece(tokenizer):
    tokenizer, text = tokenizer(), 'the quick brown dogs jumps fox'
    texts = tokenizer.texts()
    ((ids, last),) = tokenizer.last_characters([text])
    assert (np.diff(last) >= 0).all()
    for i, at in zip(ids.tolist(), last.tolist(), strict=True):
        assert not texts[i] or text[at] == texts[i][-1]


@pytest.mark.parametrize('split', [pre_tokenizers.Split('', 'isolated'), None], ids=['characters', 'uncut'])
def test_a_tokenizer_without_words_is_known(split):
    tokenizer = bpe(split)
    assert not tokenizer.marks_words
    if split:
        assert words(tokenizer, TEXT, words=finder('spaces')) == TEXT.split()


@pytest.mark.parametrize('kind', KINDS)
def test_words_between_spaces_for_every_kind(kind):
    tokenizer, text = KINDS[kind](), 'the  dogsjumps over fox'
    ((ids, starts),) = tokenizer.encode([text], words=finder('spaces'))
    assert starts.sum() == 4 < len(ids)
    if not kind.startswith('uncut'):
        assert words(tokenizer, text, words=finder('spaces')) == text.split()


def test_pieces_of_the_text():
    for kind in ('wordpiece', 'sentencepiece', 'byte-level', 'uncut, ▁'):
        tokenizer = KINDS[kind]()
        texts, begins = tokenizer.texts(), tokenizer.begins()
        pieces = {i: piece for piece, i in tokenizer.vocabulary.items()}
        for i, text in enumerate(texts):
            assert not text.startswith(('▁', 'Ġ', '##'))
            assert begins[i] == (not pieces[i].startswith('##') if kind == 'wordpiece' else pieces[i][0] in '▁Ġ')
    assert '\ufffd' in KINDS['byte-level']().texts()


@pytest.fixture(scope='module')
def chinese(tmp_path_factory):
    """A vocabulary of characters, as BERT's, and a file that is written without spaces."""
    folder = tmp_path_factory.mktemp('chinese')
    characters = dict.fromkeys(CHINESE)
    (folder / 'vocab.txt').write_text('\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *characters]))
    (folder / 'text.txt').write_text('\n\n'.join(['\n'.join([CHINESE] * 3)] * 4))
    (folder / 'spaced.txt').write_text('\n\n'.join(['\n'.join([JIEBA] * 3)] * 4))
    return folder


def options(folder, words, file='text.txt', **kwargs):
    return PrepareOptions(
        f'text:{folder}/{file}', 'zh', str(folder / 'vocab.txt'), words=words, validation=0, test=0, **kwargs
    )


@pytest.mark.parametrize('kind', ['jieba', 'spaces'])
def test_chinese_words(chinese, tmp_path, kind):
    if kind == 'jieba':
        pytest.importorskip('jieba')
    store = prepare(options(chinese, kind, 'spaced.txt' if kind == 'spaces' else 'text.txt'), tmp_path / 'store')
    assert store.marks_words
    require(store, 'this')
    batch = Rows(store, 'train', RowOptions(length=64), seed=0).batch(np.arange(4))
    texts = store.tokenizer.texts()
    wanted = JIEBA.split()
    for tokens, word_ids, real in zip(batch.tokens, batch.word_ids, batch.segment_ids, strict=True):
        found = [''.join(texts[t] for t in tokens[(word_ids == w) & (real > 0)]) for w in np.unique(word_ids)]
        assert {word for word in found if len(word) > 1 and word[0] != '['} <= set(wanted)
        assert set(wanted) <= set(found)


def test_a_chinese_word_is_masked_whole(chinese, tmp_path):
    pytest.importorskip('jieba')
    store = prepare(options(chinese, 'jieba'), tmp_path / 'store')
    batch = Rows(store, 'train', RowOptions(length=64), seed=0).batch(np.arange(4))
    selector, vocab = WholeWords(rate=0.4), jax.device_put(vocabulary(store))
    choose = jax.jit(jax.vmap(lambda key, row: selector(key, row, vocab, selector.slots(64))))
    selected = choose(jax.random.split(jax.random.key(0), 4), batch)
    pieces = {i: piece for piece, i in store.tokenizer.vocabulary.items()}
    counts = {word: [] for word in JIEBA.split()}
    for tokens, at, weight in zip(batch.tokens, *map(np.asarray, (selected.at_K, selected.weight_K)), strict=True):
        masked = np.isin(np.arange(64), at[weight > 0])
        text = [pieces[token] for token in tokens]
        for word, seen in counts.items():
            n = len(word)
            seen += [masked[i : i + n].sum() for i in range(64 - n) if text[i : i + n] == list(word)]
    assert all(set(seen) <= {0, len(word)} for word, seen in counts.items())
    assert sum(len(word) in seen for word, seen in counts.items() if len(word) > 1) > 2


def test_words_of_a_language_without_spaces_are_not_the_tokenizers(chinese, tmp_path):
    store = prepare(options(chinese, 'tokenizer'), tmp_path / 'store')
    assert store.tokenizer.marks_words and not store.marks_words
    with pytest.raises(BadInput, match="PMI needs words.*marks none in language 'zh'.*config.data.words='spaces'"):
        require(store, 'PMI')
    with pytest.raises(BadInput, match="was prepared with words='tokenizer', not 'spaces'"):
        prepare(options(chinese, 'spaces'), tmp_path / 'store')


def test_jieba_is_asked_for_by_name(chinese, tmp_path, monkeypatch):
    pytest.importorskip('jieba')
    prepare(options(chinese, 'jieba'), tmp_path / 'store')
    monkeypatch.setitem(sys.modules, 'jieba', None)
    prepare(options(chinese, 'jieba'), tmp_path / 'store')  # is there already
    with pytest.raises(BadInput, match='pip install jieba') as error:
        prepare(options(chinese, 'jieba'), tmp_path / 'other')
    assert '\n' not in str(error.value)
    assert finder('tokenizer') is None
    with pytest.raises(BadInput, match="config.data.words 'space' is unknown; did you mean 'spaces'"):
        finder('space')


def test_gold_words_of_a_newspaper():
    """jieba's words and a person's agree on most; words between spaces are the person's, character for character."""
    pytest.importorskip('jieba')
    file = DATA / 'chinese_pos/peoples_daily_199801.txt.gz'
    if not file.exists():
        pytest.skip(f'{file} is not here')
    import gzip

    with gzip.open(file, 'rt') as lines:
        gold = [[pair.rsplit('/', 1)[0].lstrip('[') for pair in line.split()] for line in itertools.islice(lines, 200)]
    gold = [sentence for sentence in gold if sentence]
    tokenizer = Tokenizer.load(DATA / 'vocabs/bert-base-chinese-vocab.txt')
    spaced = tokenizer.encode([' '.join(sentence) for sentence in gold], words=finder('spaces'))
    joined = tokenizer.encode([''.join(sentence) for sentence in gold], words=finder('jieba'))
    same = total = 0
    for (ids, starts), (other_ids, other_starts), sentence in zip(spaced, joined, gold, strict=True):
        assert starts.sum() == len(sentence)
        if len(ids) == len(other_ids):  # a number cut by a space has other pieces
            same, total = same + (starts == other_starts).sum(), total + len(ids)
    assert total > 5000 and same / total > 0.9
