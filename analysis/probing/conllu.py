"""Annotated sentences: CoNLL-U treebanks, and column files with BIO spans (CoNLL-2000 chunks, CoNLL NER)."""

import dataclasses
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from bertx.errors import BadInput

SPLITS = ('train', 'dev', 'test')
NAMES = {name: name for name in SPLITS}
NAMES |= {'valid': 'dev', 'validation': 'dev', 'testa': 'dev', 'testb': 'test'}  # CoNLL-2003's are testa and testb
Span = tuple[int, int, str]  # begin, end, label


@dataclasses.dataclass(frozen=True)
class Sentence:
    """Words of a sentence and what a treebank says of each; without annotation, words alone."""

    words: list[str]
    document: str = ''  # a name that sentences of one document share
    upos: list[str] = dataclasses.field(default_factory=list)
    xpos: list[str] = dataclasses.field(default_factory=list)
    feats: list[dict[str, str]] = dataclasses.field(default_factory=list)
    heads: list[int] = dataclasses.field(default_factory=list)  # from 0; -1: the root
    relations: list[str] = dataclasses.field(default_factory=list)  # without subtypes
    spans: list[Span] = dataclasses.field(default_factory=list)

    @property
    def root(self) -> int:
        return self.heads.index(-1)

    def depths(self) -> list[int]:
        """Edges between each word and the root."""
        found: list[int] = []
        for word in range(len(self.words)):
            depth = 0
            while (word := self.heads[word]) >= 0:
                depth += 1
            found.append(depth)
        return found


def splits(what: str) -> dict[str, list[Path]]:
    """Files by the split that a part of each one's name tells (`en-dev.conllu`), of a folder or of a list with commas;
    a list that tells none, or one, is 'all'. Raises BadInput where a name tells two, or there is no train and test."""
    path = Path(what).expanduser()
    named = [Path(part).expanduser() for part in what.split(',')]
    files = sorted(file for file in path.iterdir() if file.is_file()) if path.is_dir() else named
    found: dict[str, list[Path]] = {}
    for file in files:
        if not path.is_dir() and not file.is_file():
            raise BadInput(f'--data={what}: there is no file {file}; a folder, or files with commas between, would do')
        told = sorted({NAMES[part] for part in re.split('[^a-z]+', file.name.lower()) if part in NAMES})
        if len(told) > 1:
            raise BadInput(f'--data={what}: {file.name} names {" and ".join(told)}; a name with one of them would do')
        found.setdefault(told[0] if told else '', []).append(file)
    if not path.is_dir() and len(found) == 1:
        return {'all': files}
    rest = found.pop('', [])
    if 'train' not in found or 'test' not in found or (rest and not path.is_dir()):
        raise BadInput(f'--data={what}: train and test are no parts of the names; or files without dev, train, test')
    return {split: found[split] for split in SPLITS if split in found}


def read(path: Path) -> list[Sentence]:
    """The sentences of a CoNLL-U file (.gz too). BadInput names the line that is no CoNLL-U.

    Multiword tokens (1-2) and empty nodes (1.1) are left out: words are the syntactic ones.
    """
    found, document = [], path.name
    for start, block in _blocks(path):
        rows: list[list[str]] = []
        for number, line in enumerate(block, start):
            if line.startswith('#'):
                key, _, value = line[1:].partition('=')
                document = value.strip() if key.strip() == 'newdoc id' else document
                continue
            columns = line.split('\t')
            if len(columns) != 10:
                raise BadInput(f'{path}:{number}: {len(columns)} columns; CoNLL-U has 10 with tabs between')
            if '-' in columns[0] or '.' in columns[0]:
                continue
            if columns[0] != str(len(rows) + 1) or not columns[6].isdecimal():
                raise BadInput(
                    f'{path}:{number}: id {columns[0]!r}, head {columns[6]!r}; words are numbered from 1, heads too'
                )
            rows.append(columns)
        if rows:
            found.append(_sentence(rows, document, f'{path}:{start}'))
    if not found:
        raise BadInput(f'{path} holds no sentence in CoNLL-U')
    return found


def _sentence(rows: list[list[str]], document: str, place: str) -> Sentence:
    _, words, _, upos, xpos, feats, heads, relations, _, _ = zip(*rows, strict=True)
    head_W = [int(head) - 1 for head in heads]
    at = list(range(len(rows)))
    if max(head_W) >= len(rows) or head_W.count(-1) != 1:
        raise BadInput(f'{place}: a head beyond the sentence, or not exactly one root')
    for _ in rows:  # after as many steps everybody is at the root, or goes round in a circle
        at = [head_W[word] if word >= 0 else -1 for word in at]
    if max(at) >= 0:
        raise BadInput(f'{place}: the heads of this sentence go round in a circle')
    pairs = [dict(pair.split('=', 1) for pair in text.split('|') if '=' in pair) for text in feats]
    bare = [relation.partition(':')[0] for relation in relations]
    return Sentence([_solid(word) for word in words], document, list(upos), list(xpos), pairs, head_W, bare)


def read_spans(path: Path) -> list[Sentence]:
    """Sentences of a column file with spans, from the BIO tags in the last column; -DOCSTART- begins a document."""
    found, document = [], path.name
    for start, block in _blocks(path):
        words: list[str] = []
        spans: list[Span] = []
        for number, line in enumerate(block, start):
            columns = line.split()
            if columns[0] == '-DOCSTART-':
                document = f'{path.name}:{number}'
                continue
            if len(columns) < 2 or not (columns[-1] == 'O' or columns[-1][:2] in ('B-', 'I-')):
                raise BadInput(f'{path}:{number}: {line[:40]!r}; a word and, last, its BIO tag would do')
            tag, label = columns[-1][:1], columns[-1][2:]
            if tag == 'I' and spans and spans[-1][1:] == (len(words), label):
                spans[-1] = (spans[-1][0], len(words) + 1, label)
            elif tag != 'O':
                spans.append((len(words), len(words) + 1, label))
            words.append(columns[0])
        if words:
            found.append(Sentence(words, document, spans=spans))
    return found


def _blocks(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, lines) of what stands between blank lines."""
    block: list[str] = []
    try:
        with gzip.open(path, 'rt', encoding='utf-8') if path.suffix == '.gz' else path.open(encoding='utf-8') as file:
            number = 0
            for number, line in enumerate(file, 1):  # noqa: B007 - read after the loop
                if line.strip():
                    block.append(line.rstrip('\r\n'))
                elif block:
                    yield number - len(block), block
                    block = []
            if block:
                yield number + 1 - len(block), block
    except (UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise BadInput(f'{path} cannot be read as UTF-8 text: {error}') from None


def _solid(word: str) -> str:
    """Without inner blanks ('10 000'), so that words can be joined by them."""
    return ''.join(word.split())
