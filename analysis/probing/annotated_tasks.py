"""Tasks that want annotation: from a CoNLL-U treebank, and from BIO spans."""

import functools
from collections.abc import Callable, Iterator

import numpy as np

from analysis.probing import conllu
from analysis.probing.conllu import Sentence
from analysis.probing.features import Corpus
from analysis.probing.tasks import Example, Task, build, split_sentences
from bertx.errors import one_of

DEPTHS = 7  # the deepest class is 'and more'
WIDEST = 8  # words of a span that an edge probe reads; longer ones are cut


def pos(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Universal part of speech of a word."""
    yield from (Example([first + w], tag, group, s.words[w].lower()) for w, tag in enumerate(s.upos))


def xpos(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """The language's own part of speech (English: Penn tags)."""
    yield from (Example([first + w], tag, group, s.words[w].lower()) for w, tag in enumerate(s.xpos))


def dep(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Relation of an arc, given head and dependent."""
    for w, (head, relation) in enumerate(zip(s.heads, s.relations, strict=True)):
        if head >= 0:
            yield Example([first + head, first + w], relation, group, s.words[w].lower())


def arc(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Is there an arc between two words? As many pairs without one, of the same dependents (Liu et al. 2019)."""
    rng = np.random.default_rng(group)
    for w, head in enumerate(s.heads):
        others = [o for o in range(len(s.words)) if o not in (w, head) and s.heads[o] != w]
        if head >= 0 and others:
            yield Example([first + head, first + w], 'arc', group, s.words[w].lower())
            yield Example([first + int(rng.choice(others)), first + w], 'none', group, s.words[w].lower())


def spans(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Label of a BIO span (chunk, entity)."""
    for begin, end, label in s.spans:
        inside = [first + w if w < end else -1 for w in range(begin, begin + WIDEST)]
        yield Example([inside], label, group, s.words[end - 1].lower())


def tree_depth(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Edges between the root and the word furthest from it."""
    yield _sentence(s, group, str(min(max(s.depths()), DEPTHS)))


def tense(s: Sentence, first: int, group: int) -> Iterator[Example]:
    """Of the main clause: of its finite verb, or of the finite auxiliary of its root."""
    clause = [s.root, *(w for w in _of_root(s) if s.relations[w] in ('aux', 'cop'))]
    found = [s.feats[w].get('Tense') for w in clause if s.feats[w].get('VerbForm') == 'Fin']
    if found and found[0] in ('Past', 'Pres'):
        yield _sentence(s, group, found[0])


def number(s: Sentence, first: int, group: int, relation: str) -> Iterator[Example]:
    """Number of what stands in a relation to the root of the main clause: its subject, its object."""
    mine = [w for w in _of_root(s) if s.relations[w] == relation and s.upos[w] in ('NOUN', 'PROPN')]
    found = [s.feats[w].get('Number') for w in mine]
    if len(found) == 1 and found[0] in ('Sing', 'Plur'):
        yield _sentence(s, group, found[0])


def _sentence(s: Sentence, group: int, label: str) -> Example:
    return Example([group], label, group, s.words[0].lower())


def _of_root(s: Sentence) -> list[int]:
    return [w for w, head in enumerate(s.heads) if head == s.root]


# name -> (function, kind, unit)
CONLLU: dict[str, tuple[Callable[..., Iterator[Example]], str, str]] = {
    'pos': (pos, 'syntax', 'words'),
    'xpos': (xpos, 'syntax', 'words'),
    'dep': (dep, 'syntax', 'words'),
    'arc': (arc, 'syntax', 'words'),
    'tree_depth': (tree_depth, 'syntax', 'sentences'),
    'tense': (tense, 'semantics', 'sentences'),
    'subject_number': (functools.partial(number, relation='nsubj'), 'semantics', 'sentences'),
    'object_number': (functools.partial(number, relation='obj'), 'semantics', 'sentences'),
}
# of column files with BIO tags
SPANS = {'chunks': (spans, 'syntax', 'words'), 'ner': (spans, 'semantics', 'words')}


def treebank(what: str, train: int, rest: int, read=conllu.read) -> tuple[list[Sentence], np.ndarray]:
    """Sentences of --data and the number of each one's split: at most so many of each, drawn at random."""
    files = conllu.splits(what)
    flat, split_S = split_sentences({split: [s for f in fs for s in read(f)] for split, fs in files.items()})
    rng = np.random.default_rng(0)
    kept = [rng.permutation(np.flatnonzero(split_S == n))[:most] for n, most in enumerate((train, rest, rest))]
    index = np.sort(np.concatenate(kept))
    return [flat[i] for i in index], split_S[index]


def make(name: str, sentences: list[Sentence], split_S: np.ndarray) -> Task:
    """One of CONLLU or SPANS over these sentences."""
    one_of('task', name, CONLLU | SPANS)
    function, kind, unit = (CONLLU | SPANS)[name]
    corpus = Corpus([s.words for s in sentences])
    first_S = corpus.starts[:-1]
    found = [x for group, s in enumerate(sentences) for x in function(s, int(first_S[group]), group)]
    return build(name, kind, unit, corpus, found, lambda group: int(split_S[group]))
