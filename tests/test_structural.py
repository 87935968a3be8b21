import dataclasses

import numpy as np
import pytest
from analysis_cases import treebank

from analysis.probing import engine
from analysis.probing.conllu import Sentence
from analysis.report import trees
from analysis.structural import OPTIONS, Structural, chain, examples, scores
from bertx.errors import BadInput


def vectors(sentences, noise):
    """A word's vector is the sum of those of the edges above it: squared distances are distances in the tree (Hewitt &
    Manning 2019, section 2.3). Turned, so that the probe has something to find."""
    rng, found = np.random.default_rng(0), []
    turn, _ = np.linalg.qr(rng.normal(size=(16, 16)))
    for s in sentences:
        edge = np.eye(16)[rng.permutation(16)[: len(s.words)]]
        for w in range(len(s.words)):
            x, at = np.zeros(16), w
            while s.heads[at] >= 0:
                x, at = x + edge[at], s.heads[at]
            found.append(x @ turn + noise * rng.normal(size=16))
    return np.array(found, np.float32)


def test_vectors_that_are_trees_give_them_back():
    sentences = [s for s in treebank(160) if len(s.words) == 6]
    first = np.cumsum([0, *(len(s.words) for s in sentences)])[:-1]
    x = np.stack([vectors(sentences, 3.0), vectors(sentences, 0.02)])
    x = np.concatenate([x, np.random.default_rng(1).normal(size=(2, x.shape[1], 8)).astype(np.float32)], -1)
    make = lambda a, b: examples(sentences, first, np.arange(x.shape[1]), np.arange(a, b))
    options = dataclasses.replace(OPTIONS, learning_rate=1e-2, rounds=40, steps=16)
    fitted = engine.fit(Structural(rank=16), x, make(0, 60), make(60, 75), options)
    out = fitted.scores(x, make(75, len(sentences)))
    worse, better = (scores(sentences[75:], out['distance'][n, 0], out['depth'][n, 0]) for n in range(2))
    assert better.uuas.value > 0.9 and better.dspr > 0.85 and better.nspr > 0.8 and better.root_N.mean() > 0.9
    assert worse.uuas.value < 0.8 and fitted.dev_LT[1, 0] < fitted.dev_LT[0, 0]


def test_scores_of_gold_trees_and_of_the_chain():
    sentences = treebank(30)
    distance = [np.pad(trees.distances(s.heads), (0, 10)) for s in sentences]
    depth = [np.pad(np.array(s.depths(), float), (0, 10)) for s in sentences]
    gold = scores(sentences, distance, depth)
    assert gold.uuas.value == 1 and gold.dspr == pytest.approx(1) and gold.nspr == pytest.approx(1)
    assert gold.root_N.all()
    # the cat sees a dog: of 4 edges the chain lacks sees-dog, and has sees-a instead; of 2 it has both
    want = sum({6: 3, 4: 2}[len(s.words)] for s in sentences) / sum({6: 4, 4: 2}[len(s.words)] for s in sentences)
    assert chain(sentences).uuas.value == pytest.approx(want)
    with pytest.raises(BadInput, match='no sentence of 5 to'):
        scores([Sentence(['a'], upos=['X'], heads=[-1])], [np.zeros((1, 1))], [np.zeros(1)])


def test_padding_counts_for_nothing():
    sentences = treebank(4)
    first = np.cumsum([0, *(len(s.words) for s in sentences)])[:-1]
    x = np.random.default_rng(0).normal(size=(1, 40, 8)).astype(np.float32)
    part = examples(sentences, first, np.arange(40), np.arange(4))
    probe = Structural(rank=4)
    params = {name: np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32) for name in ('distance', 'depth')}
    loss = probe.loss(params, probe.read(x, 0, part.at), part.target, 0)
    for i, s in enumerate(sentences):
        n = len(s.words)
        a, b = (x[0, first[i] : first[i] + n] @ params[name] for name in ('distance', 'depth'))
        square = ((a[:, None] - a[None]) ** 2).sum(-1)
        want = abs(square - trees.distances(s.heads)).sum() / n**2 + abs((b**2).sum(1) - s.depths()).sum() / n
        assert loss[i] == pytest.approx(want, rel=1e-4)
