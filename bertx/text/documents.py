"""What a corpus is made of."""

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Document:
    """One document; a line of its text is a paragraph."""

    name: str
    text: str


@dataclasses.dataclass(frozen=True)
class Source:
    """A corpus that streams, and may be read more than once: always the same documents in the same order."""

    spec: str
    bytes: int  # of the text, before any cleaning; an estimate where it lies compressed
    read: Callable[[], Iterator[Document]]
    digest: Callable[[], str]  # SHA-256 of the text as it lies there: reads all of it, some 1 GB/s

    def __iter__(self) -> Iterator[Document]:
        return self.read()


def digest(parts: Iterable[Any]) -> str:
    """SHA-256 of what hashlib made of the parts."""
    return hashlib.sha256(b''.join(part.digest() for part in parts)).hexdigest()


def hash_file(path: Path):
    with open(path, 'rb') as file:
        return hashlib.file_digest(file, 'sha256')
