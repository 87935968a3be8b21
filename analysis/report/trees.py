"""Distances in dependency trees, and a picture of predicted ones beside the tree they give."""

from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path

from analysis.probing.conllu import Sentence
from analysis.report import layer_plots
from analysis.report.plots import COLORS, SMALL, caption, new_figure


def distances(heads: list[int]) -> np.ndarray:
    """[words, words]: edges between words. heads: from 0; -1 for the root."""
    graph = np.zeros((len(heads), len(heads)))
    for word, head in enumerate(heads):
        if head >= 0:
            graph[word, head] = 1
    return shortest_path(graph, directed=False, unweighted=True)


def examples(sentences: list[Sentence], count: int = 2) -> list[int]:
    """The first sentences of a length that can be shown."""
    return [i for i, s in enumerate(sentences) if 8 <= len(s.words) <= 14][:count]


def edges(s: Sentence, distance_TT: np.ndarray) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """(annotated, predicted by the minimum spanning tree) between words but punctuation, the lower one first."""
    words = np.array([w for w, tag in enumerate(s.upos) if tag != 'PUNCT'], int)
    pair = lambda a, b: (int(min(a, b)), int(max(a, b)))
    tree = minimum_spanning_tree(np.maximum(distance_TT[np.ix_(words, words)], 1e-6)).nonzero()
    gold = {pair(w, s.heads[w]) for w in words if s.heads[w] in words}
    return gold, {pair(words[a], words[b]) for a, b in zip(*tree, strict=True)}


def picture(found, number: int, path: Path) -> Path:
    """Predicted distances at the best layer, and the edges of their spanning tree below the annotated ones."""
    s = found.sentences[number]
    n = len(s.words)
    distance = found.distance_LNTT[found.best, number, :n, :n]
    figure = new_figure(11.0, 4.6)
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.5])
    image = left.imshow(distance, cmap='viridis_r')
    figure.colorbar(image, ax=left, shrink=0.8)
    left.set_xticks(range(n), s.words, rotation=60, ha='right', fontsize=SMALL)
    left.set_yticks(range(n), s.words, fontsize=SMALL)
    left.set_title(f'predicted squared distances, layer {found.best}', fontsize=10)
    gold, mine = edges(s, distance)
    x = np.linspace(0, np.pi, 40)
    for drawn, sign in ((gold, 1), (mine, -1)):
        for a, b in drawn:
            wrong = sign < 0 and (a, b) not in gold
            style = {'color': COLORS[1] if wrong else 'black', 'linestyle': '--' if wrong else '-', 'linewidth': 1.3}
            middle, half = (a + b) / 2, (b - a) / 2
            right.plot(middle - half * np.cos(x), sign * (0.6 + half**0.8 * np.sin(x)), **style)
    for w, word in enumerate(s.words):
        right.text(w, 0, word, rotation=30, ha='center', va='center', fontsize=SMALL + 1)
    right.set_axis_off()
    said = f'above: the annotated tree; below: the predicted one, {len(gold & mine)} of {len(gold)} edges'
    right.set_title(said, fontsize=10)
    caption(figure, 'dashed: an edge that the annotation has not; punctuation is left out')
    return layer_plots.save(figure, path)
