"""What small token objectives predict of a piece: the class of its first character, and its type.

The classes and their numbers are those of gucci-j/light-transformer-emnlp2021, src/model/data_collator.py (First Char
and Token Type of "Frustratingly Simple Pretraining Alternatives to Masked Language Modeling").
"""

import importlib.util
import runpy
import unicodedata

import numpy as np

from bertx.text.tokenizer import Tokenizer
from bertx.types import FIRST_CHARS, TOKEN_TYPES

LETTERS = 'abcdefghijklmnopqrstuvwxyz'  # classes 0 to 25
PUNCTUATION, DIGIT, OTHER = 26, 27, 28  # symbols such as $ are punctuation; é, 的 and a part of a character: other
CONTENT, STOP, DIGITS, MARKS = range(TOKEN_TYPES)
assert OTHER == FIRST_CHARS - 1

STOP_WORDS = 100  # of a language without a list: about as many as the lists of NLTK have, which the released code uses


def english() -> frozenset[str]:
    """scikit-learn's ENGLISH_STOP_WORDS, from its file: importing the package takes 2 s, in every command."""
    folder = importlib.util.find_spec('sklearn').submodule_search_locations[0]  # type: ignore[union-attr, index]
    return runpy.run_path(f'{folder}/feature_extraction/_stop_words.py')['ENGLISH_STOP_WORDS']


def is_punctuation(character: str) -> bool:
    """Marks and symbols of Unicode, but not the sign for what could not be decoded."""
    return unicodedata.category(character)[0] in 'PS' and character != '\ufffd'


def first_char(tokenizer: Tokenizer) -> np.ndarray:
    """[V] int32: class of each piece's first character after its word mark; case does not count.

    A continuing piece has the class of its own first character: '##ing' is i. What is no text is OTHER.
    """

    def class_of(text: str) -> int:
        first = text[:1].lower()
        if not first:
            return OTHER
        if first in LETTERS:
            return LETTERS.index(first)
        return DIGIT if first.isdigit() else PUNCTUATION if is_punctuation(first) else OTHER

    classes = np.array([class_of(text) for text in tokenizer.texts()], np.int32)
    return np.where(tokenizer.ordinary(), classes, OTHER).astype(np.int32)


def token_type(tokenizer: Tokenizer, language: str, unigram_V: np.ndarray) -> np.ndarray:
    """[V] int32: CONTENT, STOP (a whole stop word), DIGITS or MARKS (nothing but digits, or punctuation).

    Stop words are scikit-learn's list in English; in any other language, the pieces that come most often in the
    training split. Only pieces that begin a word can be one: any other is CONTENT, but for digits and punctuation.
    """
    texts, ordinary_V = tokenizer.texts(), tokenizer.ordinary()
    kinds = [DIGITS if t.isdigit() else MARKS if t and all(map(is_punctuation, t)) else CONTENT for t in texts]
    type_V = np.where(ordinary_V, kinds, CONTENT).astype(np.int32)
    may_V = ordinary_V & (type_V == CONTENT) & tokenizer.begins()
    if language == 'en':
        stop_words = english()
        type_V[may_V & np.array([text.lower() in stop_words for text in texts])] = STOP
    else:
        count_V = np.where(may_V, unigram_V, 0)
        common = np.argsort(-count_V, kind='stable')[:STOP_WORDS]
        type_V[common[count_V[common] > 0]] = STOP
    return type_V
