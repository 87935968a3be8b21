"""Classes of pieces: first characters and token types."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from bertx.text import tables
from bertx.text.tables import CONTENT, DIGIT, DIGITS, MARKS, OTHER, PUNCTUATION, STOP
from bertx.text.tokenizer import Tokenizer
from bertx.types import FIRST_CHARS, TOKEN_TYPES

UNCASED = Path(__file__).parents[2] / 'shared/data/vocabs/bert-base-uncased-vocab.txt'
SPECIALS = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
# piece: class of its first character, type in English
PIECES = {
    'the': (19, STOP), 'The': (19, STOP), '##the': (19, CONTENT), 'zebra': (25, CONTENT), '##s': (18, CONTENT),
    'a': (0, STOP), '1990': (DIGIT, DIGITS), '##2': (DIGIT, DIGITS), '1990s': (DIGIT, CONTENT),
    '.': (PUNCTUATION, MARKS), '$': (PUNCTUATION, MARKS), '...': (PUNCTUATION, MARKS), '##-': (PUNCTUATION, MARKS),
    '。': (PUNCTUATION, MARKS), "'s": (PUNCTUATION, CONTENT), 'é': (OTHER, CONTENT), '的': (OTHER, CONTENT),
    '½': (OTHER, CONTENT), '٣': (DIGIT, DIGITS), '[unused1]': (OTHER, CONTENT),
}  # fmt: skip


def wordpiece(folder, pieces) -> Tokenizer:
    (folder / 'vocab.txt').write_text('\n'.join([*SPECIALS, *pieces]))
    return Tokenizer.load(folder / 'vocab.txt', lowercase=False)


def test_a_table_of_pieces(tmp_path):
    tokenizer = wordpiece(tmp_path, PIECES)
    first, kind = tables.first_char(tokenizer), tables.token_type(tokenizer, 'en', np.ones(tokenizer.vocab_size))
    assert first.dtype == kind.dtype == np.int32 and first.shape == kind.shape == (tokenizer.vocab_size,)
    for i, piece in enumerate([*SPECIALS, *PIECES]):
        assert (first[i], kind[i]) == PIECES.get(piece, (OTHER, CONTENT)), piece
    assert first.max() == FIRST_CHARS - 1 and set(kind.tolist()) == set(range(TOKEN_TYPES))


def test_another_language_has_its_commonest_pieces_for_stop_words(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, 'STOP_WORDS', 2)
    pieces = {'le': 50, 'chat': 3, '##le': 99, ',': 70, '12': 60, 'de': 40, 'chien': 4, 'jamais': 0}
    tokenizer = wordpiece(tmp_path, pieces)
    counts = np.array([1000] * 5 + list(pieces.values()))
    kind = tables.token_type(tokenizer, 'fr', counts)
    assert {piece for piece, k in zip(pieces, kind[5:], strict=True) if k == STOP} == {'le', 'de'}
    monkeypatch.setattr(tables, 'STOP_WORDS', 9)
    kind = tables.token_type(tokenizer, 'fr', counts)
    assert {piece for piece, k in zip(pieces, kind[5:], strict=True) if k == STOP} == {'le', 'de', 'chat', 'chien'}
    assert (kind[:5] == CONTENT).all() and kind[5 + list(pieces).index(',')] == MARKS


def test_byte_level_and_sentence_pieces():
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces = ['<pad>', '<s>', '</s>', '<mask>', *alphabet, 'Ġthe', 'the', 'Ġ12', 'ĠÃ©']
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    model = tokenizers.Tokenizer(models.BPE(vocabulary, []))
    model.pre_tokenizer = pre_tokenizers.ByteLevel()
    tokenizer = Tokenizer(model.to_str())
    first, kind = tables.first_char(tokenizer), tables.token_type(tokenizer, 'en', np.ones(len(vocabulary)))
    at = lambda piece: (first[vocabulary[piece]], kind[vocabulary[piece]])
    assert at('Ġthe') == (19, STOP) and at('the') == (19, CONTENT) and at('Ġ12') == (DIGIT, DIGITS)
    assert at('ĠÃ©') == (OTHER, CONTENT) and at('Ã') == (OTHER, CONTENT)  # half a character

    scored = [('<unk>', 0.0), ('<s>', 0.0), ('</s>', 0.0), ('<pad>', 0.0), ('<mask>', 0.0), ('<0xE4>', -1.0)]
    scored += [('▁', -1.0), ('▁the', -1.0), ('the', -1.0), ('▁.', -1.0)]
    model = tokenizers.Tokenizer(models.Unigram(scored, 0, byte_fallback=True))
    model.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = Tokenizer(model.to_str())
    first, kind = tables.first_char(tokenizer), tables.token_type(tokenizer, 'en', np.ones(len(scored)))
    assert first[5:].tolist() == [OTHER, OTHER, 19, 19, PUNCTUATION]
    assert kind[5:].tolist() == [CONTENT, CONTENT, STOP, CONTENT, MARKS]


def test_the_list_is_scikit_learns():
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    assert tables.english() == ENGLISH_STOP_WORDS


def test_the_published_vocabulary():
    if not UNCASED.exists():
        pytest.skip(f'{UNCASED} is not here')
    tokenizer = Tokenizer.load(UNCASED)
    first, kind = tables.first_char(tokenizer), tables.token_type(tokenizer, 'en', np.ones(tokenizer.vocab_size))
    assert (np.bincount(first, minlength=FIRST_CHARS) > 0).all()
    assert np.bincount(kind)[STOP] > 300 and np.bincount(kind)[DIGITS] > 900
    assert first[tokenizer.vocabulary['##ing']] == 8 and kind[tokenizer.vocabulary['##ing']] == CONTENT
