"""Documents in files of one's own: plain text and JSON lines, compressed (.gz, .zst, .bz2) or not.

WHAT is a file, a glob or a folder, which is searched at any depth, or several of them with commas between.
"""

import glob
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from bertx.errors import BadInput, one_of
from bertx.text.documents import Document, Source, digest, hash_file

_PACKED = ('.gz', '.zst', '.bz2')
_RATIO = 3  # English text shrinks to a third, about


def plain(spec: str, argument: str) -> Source:
    """`text:WHAT`: UTF-8, a blank line or the end of a file ends a document. Of folders the *.txt."""
    return _source(spec, argument, ('.txt',), _paragraphs)


def json_lines(spec: str, argument: str) -> Source:
    """`jsonl:WHAT#KEY`: an object a line, its text under KEY ('text'). Of folders the *.jsonl, compressed or not.

    A list stands for its items, each a paragraph.
    """
    what, _, key = argument.partition('#')
    endings = ('.jsonl', *(f'.jsonl{packed}' for packed in _PACKED))
    return _source(spec, what, endings, lambda path: _objects(path, key or 'text'))


def _source(
    spec: str, what: str, endings: tuple[str, ...], read: Callable[[Path], Iterator[tuple[str, str]]]
) -> Source:
    """read: the documents of a file, each with what tells it from the others in the file."""
    files = list(dict.fromkeys(path for part in what.split(',') for path in _find(spec, part.strip(), endings)))
    sizes = [path.stat().st_size for path in files]
    if 0 in sizes:
        raise BadInput(f'{files[sizes.index(0)]}: the file is empty; leave it out of source {spec!r}')
    root = os.path.commonpath([path.parent for path in files])
    size = sum(size * (_RATIO if path.suffix in _PACKED else 1) for path, size in zip(files, sizes, strict=True))

    def documents() -> Iterator[Document]:
        for path in files:
            yield from (Document(os.path.relpath(path, root) + at, text) for at, text in read(path))

    return Source(spec, size, documents, lambda: digest(map(hash_file, files)))


def _find(spec: str, part: str, endings: tuple[str, ...]) -> list[Path]:
    path = Path(os.path.abspath(Path(part).expanduser()))  # so that a file is known, however it is named
    if not part:
        kind = spec.partition(':')[0]
        raise BadInput(f'source {spec!r}: {kind}: wants files, globs or folders, as in {kind}:books,more/*{endings[0]}')
    if path.is_dir():
        found = [file for file in path.rglob('*') if file.name.endswith(endings) and file.is_file()]
        if not found:
            raise BadInput(
                f'source {spec!r}: folder {part!r} holds no {endings[0]} file; name a glob to read other endings'
            )
    elif path.is_file():
        found = [path]
    else:
        found = [Path(file) for file in glob.glob(str(path), recursive=True) if os.path.isfile(file)]
        if not found:
            raise BadInput(f'source {spec!r}: there is no file, folder or match for {part!r}')
    return sorted(found, key=Path.as_posix)


def _paragraphs(path: Path) -> Iterator[tuple[str, str]]:
    count = 0
    lines: list[str] = []
    for _, line in _lines(path):
        if line:
            lines.append(line)
        elif lines:
            yield f'#{count}', '\n'.join(lines)
            count, lines = count + 1, []
    if lines:
        yield f'#{count}', '\n'.join(lines)
    elif not count:
        raise BadInput(f'{path}: the file holds nothing but blank lines; leave it out of the source')


def _objects(path: Path, key: str) -> Iterator[tuple[str, str]]:
    for number, line in _lines(path):
        if line:
            yield f':{number}', _text(line, key, f'{path}:{number}')


def _text(line: str, key: str, where: str) -> str:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f'{where}: not JSON ({error}); one document a line, as in {{"{key}": "Some text."}}') from None
    if not isinstance(content, dict):
        raise BadInput(f'{where}: not an object, as in {{"{key}": "Some text."}}')
    one_of(f'{where}: key', key, content)
    try:
        text = _joined(content[key])
        text.encode()
    except TypeError:
        raise BadInput(f'{where}: {key!r} is neither text nor a list of texts') from None
    except UnicodeEncodeError:
        raise BadInput(f'{where}: {key!r} has half a character in it (a lone surrogate)') from None
    return text


def _joined(value: Any) -> str:
    """The text of a JSON value: of a list the items', of brown's paragraphs the sentences', a line each."""
    return '\n'.join(map(_joined, value)) if isinstance(value, list) else value + ''


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbers from 1 and lines, stripped."""
    number = 0
    try:
        with io.BufferedReader(pa.input_stream(str(path), compression='detect'), 2**20) as file:
            for raw in file:
                number += 1
                yield number, raw.decode('utf-8').removeprefix('\ufeff').strip()
    except UnicodeDecodeError as error:
        raise BadInput(
            f'{path}:{number}: byte {error.start} of the line is not UTF-8; convert the file (iconv -t utf-8)'
        ) from None
    except OSError as error:  # Arrow says 'Truncated compressed stream' where a file was cut
        raise BadInput(f'{path}:{number + 1}: cannot be read ({error.strerror or error})') from error
