"""Labelled data, read as one dict a row whatever it comes from; the columns are named in the config.

FILE.tsv, .csv, .jsonl   a line each; .tsv has no quoting (GLUE's), .csv has. Also as .gz
FILE.conll               a word a line, an empty line between sentences: columns 'words' and 'tags'
FILE.json                SQuAD's format, 1.1 or 2.0
tfds:NAME?split=SPLIT    a data set of tfds that lies there as ArrayRecord files; data_dir=FOLDER if elsewhere
sotu:LABEL?split=SPLIT   paragraphs of the State of the Union addresses (bertx/tasks/sotu.py)
A + B                    all rows of A, then all of B
"""

import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bertx.errors import BadInput, one_of, unknown
from bertx.tasks import sotu
from bertx.text import datasets

Row = dict[str, Any]


def rows(spec: str, key: str, header: bool, counts: Counter) -> list[Row]:
    """All rows. key: of the config, for errors; counts: of what was found wrong and left out.

    Raises BadInput for what cannot be read.
    """
    found = []
    for part in (part.strip() for part in spec.split(' + ')):
        kind, _, argument = part.partition(':')
        read = {'tfds': _tfds, 'sotu': _sotu}.get(kind)
        found += read(argument, part, key) if read else _file(part, key, header, counts)
    if not found:
        raise BadInput(f'{key}: {spec} has no rows; give data with examples in it')
    return found


def column(row: Row, name: str, key: str, spec: str) -> Any:
    """A row's value; BadInput where there is no such column."""
    if name not in row:
        raise unknown(f'{key}: column', name, row) if row else BadInput(f'{key}: {spec} has no columns')
    return row[name]


def _file(spec: str, key: str, header: bool, counts: Counter) -> list[Row]:
    path = Path(spec).expanduser()
    name = path.name.removesuffix('.gz')
    kind = name.rsplit('.', 1)[-1] if '.' in name else ''
    readers: dict[str, Callable[[Iterable[str]], Iterable[Row]]] = {
        'tsv': lambda lines: _separated(lines, header, counts, delimiter='\t', quoting=csv.QUOTE_NONE),
        'csv': lambda lines: _separated(lines, header, counts),
        'jsonl': lambda lines: (dict(_json(line)) for line in lines if line.strip()),
        'json': lambda lines: _squad(_json(''.join(lines))),
        'conll': lambda lines: _conll(lines, counts),
    }
    one_of(f'{key}: {spec}: ending', kind, readers)
    try:
        with (gzip.open if path.suffix == '.gz' else open)(path, 'rt', encoding='utf-8-sig', newline='') as lines:
            return list(readers[kind](lines))
    except FileNotFoundError:
        raise BadInput(f'{key}: there is no file {path}') from None
    except UnicodeDecodeError as error:
        raise BadInput(f'{key}: {path} is not UTF-8 (byte {error.start}); convert it') from None
    except UnicodeEncodeError:
        raise BadInput(f'{key}: {path} has half a character in a text (a lone surrogate); mend it') from None
    except csv.Error as error:
        raise BadInput(f'{key}: {path} cannot be read ({error}): a quote that is not closed, or not doubled?') from None
    except (KeyError, TypeError, AttributeError) as error:
        form = "in SQuAD's format, data/paragraphs/qas" if kind == 'json' else 'an object with named values a line'
        raise BadInput(f'{key}: {path} is not {form} ({error!r}); give such a file') from None
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise BadInput(f'{key}: {path} cannot be read: {error}') from None


def _separated(lines: Iterable[str], header: bool, counts: Counter, **dialect: Any) -> Iterator[Row]:
    """Without a header the columns are named '0', '1', ..."""
    names: list[str] = []
    for fields in csv.reader(lines, strict=True, **dialect):
        if not fields:
            continue
        if not names:
            names = fields if header else [str(i) for i in range(len(fields))]
            if header:
                continue
        if len(fields) == len(names):
            yield dict(zip(names, fields, strict=True))
        else:
            counts['lines with another number of columns, left out'] += 1


def _conll(lines: Iterable[str], counts: Counter) -> Iterator[Row]:
    """The word is the first column, the tag the last one (CoNLL-2003); they are separated by tabs or blanks."""
    words: list[str] = []
    tags: list[str] = []
    for line in (*lines, ''):
        fields = line.rstrip('\r\n').split('\t' if '\t' in line else None)
        if not line.strip() or fields[0] == '-DOCSTART-':
            if words:
                yield {'words': words, 'tags': tags}
            words, tags = [], []
        elif len(fields) < 2:
            counts['words without a tag, read as O'] += 1
            words, tags = [*words, fields[0]], [*tags, 'O']
        else:
            words, tags = [*words, fields[0]], [*tags, fields[-1]]


def _json(text: str) -> Any:
    """Raises ValueError, also for half a character: predictions could not be written."""
    content = json.loads(text)
    json.dumps(content, ensure_ascii=False).encode()
    return content


def _squad(content: Any) -> Iterator[Row]:
    for article in content['data']:
        for paragraph in article['paragraphs']:
            for qa in paragraph['qas']:
                answers = {key: [a[key] for a in qa.get('answers', ())] for key in ('text', 'answer_start')}
                context = paragraph['context']
                yield {'id': str(qa['id']), 'question': qa['question'], 'context': context, 'answers': answers}


def _sotu(argument: str, spec: str, key: str) -> list[Row]:
    known = ('split', 'validation', 'test', 'split_seed')
    label, settings = datasets.query(argument, f'{key}: {spec}', known)
    return sotu.paragraphs(label, key, **settings)


def _tfds(argument: str, spec: str, key: str) -> list[Row]:
    """Text as str; numbers of a ClassLabel as its names, -1 (of the hidden test labels) as None."""
    name, split, builder = datasets.opened(argument, f'{key}: {spec}')
    features = builder.info.features
    try:
        rows = [_plain(row, features) for row in builder.as_data_source(split)]
    except Exception as error:  # of whatever kind the readers have
        raise BadInput(f'{key}: {spec} cannot be read ({" ".join(str(error).split())})') from None
    # Of STS-B, whose scores are from 0 to 5, the hidden test labels are -1 as well, but no ClassLabel's.
    return [row | {'label': None} if name.startswith('glue/stsb') and row['label'] == -1 else row for row in rows]


def _plain(value: Any, feature: Any) -> Any:
    inner = getattr(feature, 'feature', feature)  # of a Sequence
    names = getattr(inner, 'names', None)
    if isinstance(value, dict):
        return {name: _plain(item, inner[name]) for name, item in value.items()}
    if isinstance(value, list) or isinstance(value, np.ndarray) and value.ndim:
        return [_plain(item, inner) for item in value]
    if names:
        return names[int(value)] if int(value) >= 0 else None
    return value.decode() if isinstance(value, bytes) else value.item() if hasattr(value, 'item') else value
