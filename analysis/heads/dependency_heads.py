"""Which head follows which dependency relation? Chosen on dev, scored on test (Clark et al. 2019).

A head predicts for each word the word it looks at most, itself left out; the relation is followed from the dependent to
its head, or from the head to its dependent. Attention to a word is the sum over its pieces, from a word the mean. Among
hundreds of heads the best one on the split it is chosen on is lucky; so it is scored on another, and an untrained
encoder's best head and the best fixed offset are chosen likewise.
"""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from analysis.heads import weights
from analysis.probing import features
from analysis.probing.conllu import Sentence
from analysis.probing.features import Corpus, Pieces
from analysis.report import page
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from bertx.report import stats
from bertx.report.stats import Estimate

OFFSETS = [k for k in range(-5, 6) if k]  # theirs were -3 to 2
LEAST = 50  # arcs on test, or a relation is left out

Maps = list[tuple[Sentence, np.ndarray]]  # attention between a sentence's words, [M, W, W]; heads layer after layer


def word_maps(p: Pieces, words: int, a_NHQK: np.ndarray) -> np.ndarray:
    """[N, H, W, W]"""
    own_WL = (p.word_L == np.arange(words)[:, None]).astype(np.float32)
    from_WL = own_WL / np.maximum(1, own_WL.sum(1, keepdims=True))
    return np.einsum('wq,nhqk,vk->nhwv', from_WL, a_NHQK, own_WL, optimize=True)


def read(model: Pretrained, sentences: Sequence[Sentence]) -> Maps:
    """Sentences that the model cannot read as a whole are left out, and those of one word."""
    corpus = Corpus([s.words for s in sentences])
    rows = corpus.pieces(model.tokenizer, features.longest(model))
    found = []
    for i, a_NHQK, _ in weights.maps(model, rows):
        W = len(sentences[i].words)
        if rows[i].whole and len(set(rows[i].word_L) - {-1}) == W and W > 1:
            found.append((sentences[i], word_maps(rows[i], W, a_NHQK).reshape(-1, W, W)))
    if not found:
        raise BadInput(f'--data: {model.folder} reads no sentence of two words or more as a whole')
    return found


@dataclasses.dataclass(frozen=True)
class Arcs:
    """All arcs but the root's, and who finds them: M heads to the head, M to the dependent, then the fixed offsets."""

    relation: np.ndarray  # [A] str
    sentence: np.ndarray  # [A]
    hit: np.ndarray  # [2 M + offsets, A]
    heads: int  # M


def arcs(maps: Maps) -> Arcs:
    parts: list[np.ndarray] = []
    relation: list[str] = []
    number: list[int] = []
    for i, (s, a_MWW) in enumerate(maps):
        looks_MW = np.where(np.eye(len(s.words), dtype=bool), -1, a_MWW).argmax(-1)
        d = np.array([w for w, head in enumerate(s.heads) if head >= 0], int)
        h = np.array(s.heads, int)[d]
        fixed = np.stack([d + k == h for k in OFFSETS])
        parts.append(np.concatenate([looks_MW[:, d] == h, looks_MW[:, h] == d, fixed]))
        relation += [s.relations[w] for w in d]
        number += [i] * len(d)
    return Arcs(np.array(relation), np.array(number), np.concatenate(parts, 1), len(parts[0]) - len(OFFSETS) >> 1)


@dataclasses.dataclass(frozen=True)
class Found:
    """A predictor's name, and its hits and chances in each test sentence."""

    name: str
    hit_G: np.ndarray
    weight_G: np.ndarray

    @property
    def score(self) -> Estimate:
        return stats.mean(self.hit_G[None], self.weight_G)


def found(name: str, hit_A: np.ndarray, sentence_A: np.ndarray) -> Found:
    """hit_A: of each arc."""
    groups, group_A = np.unique(sentence_A, return_inverse=True)
    by_group = functools.partial(np.bincount, group_A, minlength=len(groups))
    return Found(name, by_group(weights=hit_A.astype(float)), by_group().astype(float))


def choose(dev: Arcs, test: Arcs, relation: str, offsets: bool, heads_per_layer: int) -> Found:
    """The best on dev of the heads, or of the offsets, measured on test. relation: a name, or 'all'."""
    here = [np.full(len(x.relation), True) if relation == 'all' else x.relation == relation for x in (dev, test)]
    part = slice(2 * dev.heads, None) if offsets else slice(0, 2 * dev.heads)
    best = int(dev.hit[part][:, here[0]].mean(1).argmax())
    if offsets:
        name = f'{OFFSETS[best]:+d}'
    else:
        layer, head = divmod(best % dev.heads, heads_per_layer)
        name = f'{layer + 1}-{head + 1} {"to head" if best < dev.heads else "to dependent"}'
    return found(name, test.hit[part][best, here[1]], test.sentence[here[1]])


def compare(own: tuple[Maps, Maps], control: tuple[Maps, Maps], heads: int) -> tuple[list[list[str]], str]:
    """(table, note): a line a relation, the most frequent first. own, control: dev and test of the model, and of an
    untrained one; heads: of a layer."""
    dev, test = (arcs(maps) for maps in own)
    fresh = [arcs(maps) for maps in control]
    names, counts = np.unique(test.relation, return_counts=True)
    known = [(int(n), str(name)) for n, name in zip(counts, names, strict=True) if n >= LEAST and name in dev.relation]
    pick = functools.partial(choose, heads_per_layer=heads)
    rows = [['relation', 'arcs', 'head', 'accuracy', 'offset', 'accuracy', 'head less offset', 'untrained']]
    for relation in ['all', *(name for _, name in sorted(known, reverse=True))]:
        head, offset = pick(dev, test, relation, False), pick(dev, test, relation, True)
        gain = stats.difference(head.hit_G[None], offset.hit_G[None], head.weight_G)
        untrained, count = pick(fresh[0], fresh[1], relation, False), f'{int(head.weight_G.sum()):,}'
        plain = f'{offset.score.value:.3f}', page.interval(gain, '+'), f'{untrained.score.value:.3f}'
        rows.append([relation, count, head.name, page.interval(head.score), offset.name, *plain])
    note = (
        f'heads and offsets chosen on {len(own[0]):,} dev sentences, accuracy on {len(own[1]):,} test sentences '
        f'with 95 % intervals over these; head: layer-head, from 1'
    )
    return rows, note
