"""Sentence boundaries, by the rules of Wikimedia's sentencex."""

import sentencex

from bertx.errors import BadInput

# sentencex 1.0 takes any code and silently splits by its English rules what it does not know. These have rules of their
# own (its src/languages/*.rs), and Chinese, whose full stops the common rules hold and its tests cover.
LANGUAGES = (
    'am', 'ar', 'bg', 'bn', 'ca', 'da', 'de', 'el', 'en', 'es', 'fi', 'fr', 'gu', 'hi', 'hy', 'it', 'ja', 'kk', 'kn',
    'ml', 'mr', 'my', 'nl', 'pa', 'pl', 'pt', 'ru', 'sk', 'ta', 'te', 'uk', 'zh',
)  # fmt: skip


def check_language(language: str) -> None:
    """BadInput unless there are rules for this ISO 639 code."""
    if language not in LANGUAGES:
        raise BadInput(f'language {language!r} has no sentence rules; take the nearest of {", ".join(LANGUAGES)}')


def split(text: str, language: str) -> list[str]:
    """The sentences of a text in order, stripped, none empty. A line is a paragraph: no sentence crosses its end."""
    check_language(language)
    sentences = [part.strip() for line in text.splitlines() if line for part in sentencex.segment(language, line)]
    return [sentence for sentence in sentences if sentence]
