"""Words that a tokenizer does not know of: cut by jieba, or given by the whitespace of the text.

config.data.words   'tokenizer'  what it takes for words: it cuts text into them first, or marks where they begin
                    'jieba'      Chinese words, where a BERT vocabulary has characters (as BERT-wwm had LTP's)
                    'spaces'     what stands between spaces, for text that was segmented before
"""

import logging
import re
from collections.abc import Callable

from bertx.errors import BadInput, one_of

WORDS = ('tokenizer', 'jieba', 'spaces')
UNSPACED = ('ja', 'my', 'zh')  # of sentences.LANGUAGES, those written without spaces: no tokenizer marks their words

Finder = Callable[[str], list[int]]  # for a text the number of the word that each character belongs to


def finder(words: str) -> Finder | None:
    """What finds the words; None: the tokenizer does. BadInput if the library for it is not installed."""
    one_of('config.data.words', words, WORDS)
    if words == 'tokenizer':
        return None
    if words == 'spaces':
        return lambda text: _numbers(re.findall(r'\S+|\s+', text))
    try:
        import jieba
    except ImportError:
        raise BadInput("config.data.words='jieba' wants that library: pip install jieba") from None
    jieba.setLogLevel(logging.WARNING)
    return lambda text: _numbers(jieba.lcut(text))


def _numbers(parts: list[str]) -> list[int]:
    """Blanks belong to the word that they come before, as in the pieces of tokenizers that keep them."""
    numbers, word = [], 0
    for part in parts:
        numbers += [word] * len(part)
        word += not part.isspace()
    return numbers


def require(store, what: str) -> None:
    """BadInput that `what` is impossible, unless word starts of this token store mean words."""
    if not store.marks_words:
        raise BadInput(
            f'{what} needs words, and the tokenizer of {store.path} marks none in language {store.language!r}; '
            "prepare the store with config.data.words='spaces', or 'jieba' for Chinese"
        )
