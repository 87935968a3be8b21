"""Units from a file: named entities, noun phrases, whatever else somebody marked in the corpus (SpanBERT's Table 6).

JSON lines, one a document, in any order; a document without a line has no units:

    {"document": "a.txt#0", "units": [[0, 13], [31, 44]]}

`document` is its name, and a unit is [start, end) in characters of its text, both as bertx.text.sources has them:

    for document in open_source('text:my/*.txt'):
        units = [[e.start_char, e.end_char] for e in spacy_model(document.text).ents]
        print(json.dumps({'document': document.name, 'units': units}))

A unit takes in every word that has a letter in it; where two claim a word, the first has it. It ends where its sentence
does. The text is read again for this, so the corpus must lie where it lay when the store was prepared.
"""

import json
from pathlib import Path

import numpy as np

from bertx.errors import BadInput, one_of
from bertx.text.sentences import split as split_sentences
from bertx.text.sources import open_source


def read(path: Path) -> dict[str, tuple[int, np.ndarray]]:
    """document -> (line number, ascending [units, 2] int64); BadInput names the line that is no such annotation."""
    found: dict[str, tuple[int, np.ndarray]] = {}
    with open(path, 'rb') as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                name, units = _parse(line, f'{path}:{number}')
                if name in found:
                    raise BadInput(f'{path}:{number}: document {name!r} is on line {found[name][0]} already')
                found[name] = number, units
    return found


def _parse(line: bytes, where: str) -> tuple[str, np.ndarray]:
    try:
        content = json.loads(line)
        name, units = content['document'], content['units']
        good = isinstance(name, str) and all(type(x) is int for start, end in units for x in (start, end))
        units = np.array(sorted(units), np.int64).reshape(-1, 2)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        good = False  # not JSON, no object; a key lacks; no pairs, no numbers
    if not good:
        raise BadInput(f'{where}: not of the form {{"document": "name", "units": [[start, end], ...]}}')
    for start, end in units[(units[:, 0] < 0) | (units[:, 1] <= units[:, 0])].tolist():
        raise BadInput(f'{where}: unit [{start}, {end}] is empty; it is [start, end) in characters, from 0')
    for i in np.flatnonzero(units[1:, 0] < units[:-1, 1]):
        raise BadInput(f'{where}: units {units[i].tolist()} and {units[i + 1].tolist()} overlap; leave one out')
    return name, units


def joined(store, path: Path) -> dict[str, np.ndarray]:
    """For each split of a token store the flat indexes of the words that continue a unit, [words] int64."""
    annotated = read(path)
    names = {split: store.split(split).names for split in store.meta['splits']}
    place = {name: (split, i) for split, documents in names.items() for i, name in enumerate(documents)}
    for name, (number, _) in annotated.items():
        one_of(f'{path}:{number}: document', name, place)
    source = open_source(store.meta['source'])
    if source.digest() != store.meta['source_sha256']:
        raise BadInput(
            f'{store.path}: {source.spec} has changed since this was prepared; {path} cannot be aligned to it'
        )
    found: dict[str, list[np.ndarray]] = {split: [] for split in names}
    for document in source:
        number, units = annotated.get(document.name, (0, np.zeros((0, 2), np.int64)))
        if len(units):
            if units[-1, 1] > len(document.text):
                raise BadInput(
                    f'{path}:{number}: unit {units[-1].tolist()} ends after the {len(document.text)} characters of '
                    f'document {document.name!r}'
                )
            split, i = place[document.name]
            found[split].append(_align(store, store.split(split), i, document.text, units))
    return {split: np.concatenate([np.zeros(0, np.int64), *parts]) for split, parts in found.items()}


def _align(store, split, document: int, text: str, units: np.ndarray) -> np.ndarray:
    """The flat indexes of the words of a document that continue a unit."""
    sentences, at = split_sentences(text, store.language), 0
    ids, last = [], []
    for sentence, (pieces, end) in zip(sentences, store.tokenizer.last_characters(sentences), strict=True):
        at = text.index(sentence, at)
        ids.append(pieces)
        last.append(at + end)
        at += len(sentence)
    begins = split.sentence_starts[slice(split.document_starts[document], split.document_starts[document + 1] + 1)]
    flat = np.arange(begins[0], begins[-1])
    if not np.array_equal(split.gather(flat), np.concatenate(ids)):
        raise BadInput(f'{store.path}: sentences are split otherwise now than they were; prepare the store again')
    words = np.flatnonzero(split.gather_word_starts(flat))
    ends = np.concatenate(last)[np.append(words[1:], len(flat)) - 1]  # each word's last letter
    unit = _unit_of(np.append(-1, ends[:-1]), ends, text, units)
    return np.setdiff1d(flat[words[1:][(unit[1:] == unit[:-1]) & (unit[1:] >= 0)]], begins)


def _unit_of(before: np.ndarray, last: np.ndarray, text: str, units: np.ndarray) -> np.ndarray:
    """For each word the first unit that has a letter of it, or -1; its letters are in (before, last]."""
    spans = [(end - len(text[start:end].lstrip()), start + len(text[start:end].rstrip()) - 1) for start, end in units]
    first, final = np.array([span for span in spans if span[0] <= span[1]] + [(len(text) + 1, len(text) + 1)]).T
    unit = np.searchsorted(final, before, side='right')
    return np.where(first[unit] <= last, unit, -1)
