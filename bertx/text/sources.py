"""Where documents come from. A kind of source is one function and one entry in `KINDS`."""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

from bertx.errors import BadInput, one_of
from bertx.text import datasets, files, sotu
from bertx.text.documents import Document, Source

KINDS: dict[str, Callable[[str, str], Source]] = {
    'sotu': sotu.speeches,
    'text': files.plain,
    'jsonl': files.json_lines,
    'tfds': datasets.prepared,
}
_PART = re.compile(rf'\+(?=\s*(?:[\d.]+\s*\*\s*)?(?:{"|".join(KINDS)})\b)')  # a plus sign in a file's name is none
_WEIGHT = re.compile(r'([\d.]+)\s*\*\s*(.*)')


def open_source(spec: str) -> Source:
    """The corpus named by `sotu`, `text:WHAT`, `jsonl:WHAT#KEY` or `tfds:NAME`; BadInput if there is none such.

    A+B          all documents of A, then all of B
    .7*A + .3*B  a mixture: each document is of the source that is furthest behind its share of the characters so far,
                 until that one has no more. So none comes twice, and the rest of the others is not read.
    Names of documents begin with the number of their source then: 0:name, 1:name.
    """
    parts = [part.strip() for part in _PART.split(spec)]
    found = [match.groups() if (match := _WEIGHT.fullmatch(part)) else ('', part) for part in parts]
    sources = [_open(part) for _, part in found]
    weights = [_number(spec, weight) for weight, _ in found if weight]
    if len(weights) not in (0, len(parts)):
        raise BadInput(f'source {spec!r}: give all of its parts a weight, or none')
    if len(parts) == 1:
        return sources[0]
    size = sum(source.bytes for source in sources)
    if weights:
        size = min(size, int(sum(weights) * min(s.bytes / w for s, w in zip(sources, weights, strict=True))))
    return Source(
        spec, size, lambda: _mix(sources, weights) if weights else _chain(sources),
        lambda: hashlib.sha256(''.join(source.digest() for source in sources).encode()).hexdigest(),
    )  # fmt: skip


def _open(spec: str) -> Source:
    kind, _, argument = spec.partition(':')
    one_of('source', kind, KINDS)
    return KINDS[kind](spec, argument)


def _number(spec: str, weight: str) -> float:
    with contextlib.suppress(ValueError):
        if (number := float(weight)) > 0:
            return number
    raise BadInput(f'source {spec!r}: weight {weight} is not a number above 0')


def _chain(sources: Sequence[Source]) -> Iterator[Document]:
    for i, source in enumerate(sources):
        yield from (Document(f'{i}:{document.name}', document.text) for document in source)


def _mix(sources: Sequence[Source], weights: Sequence[float]) -> Iterator[Document]:
    streams, drawn = [iter(source) for source in sources], [0.0] * len(sources)
    while document := next(streams[turn := drawn.index(min(drawn))], None):
        yield Document(f'{turn}:{document.name}', document.text)
        drawn[turn] += len(document.text) / weights[turn]
