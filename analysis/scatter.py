"""Where do spans and words lie in each layer? Pictures coloured by label (Jawahar et al. 2019, figure 1 and table 1).

    python -m analysis.scatter --checkpoint=FOLDER --task=chunks --data=DATA/conll2000_chunking --out=probes/spans
    python -m analysis.scatter --checkpoint=FOLDER --task=pos --data=DATA/ud_english_ewt --method=pca --out=probes/words

A span's vector is [first; last; first * last; first - last] of its words' (their section 3), and so is that of an arc's
two words; a word or a sentence has its own. Test examples in the plane of t-SNE or PCA, of the most frequent labels;
above each layer how far clusters (k-means on training examples, as many as labels) agree with the labels: NMI, which
needs no plane. Theirs, of chunks, fell from 0.38 at layer 1 to 0.16-0.19 in layers 8 to 12 (BERT-base, from memory).
Writes scatter.md, figures/ and scatter.html.
"""

from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import normalized_mutual_info_score

from analysis import probe
from analysis.probing import profiles
from analysis.probing.profiles import Pools, Prepared
from analysis.report import layer_plots, page
from analysis.report.layer_plots import MARKERS
from analysis.report.plots import COLORS, grid, legend
from bertx.errors import one_of
from bertx.pretrained import Pretrained
from experiments import cli

METHODS = ('tsne', 'pca')
CLASSES = len(COLORS)  # more could not be told apart
FITTED, SHOWN = 3000, 500  # examples: theirs, for clusters and for NMI
PERPLEXITY = 30  # the usual one; fewer examples: a third of them
DIMENSIONS = 50  # kept before t-SNE, whose distances cost as many


def chosen(p: Prepared) -> tuple[np.ndarray, np.ndarray]:
    """(training examples, test examples) of the most frequent labels: numbers, drawn at random."""
    count_K = np.bincount(p.task.label_N[p.task.split_N == 0], minlength=len(p.task.classes))
    known_N = np.isin(p.task.label_N, np.argsort(-count_K, kind='stable')[:CLASSES])
    rng = np.random.default_rng(0)
    pick = lambda split, most: rng.permutation(np.flatnonzero(known_N & (p.task.split_N == split)))[:most]
    return pick(0, FITTED), pick(2, SHOWN)


def vectors(x_ND: np.ndarray, at: np.ndarray) -> np.ndarray:
    """[n, D], or [n, 4 D] of spans. at: rows of x, [n, ...], -1 behind the end of a span."""
    at_NW = at.reshape(len(at), -1)
    first_ND = x_ND[at_NW[:, 0]]
    if at_NW.shape[1] == 1:
        return first_ND
    last_ND = x_ND[at_NW[np.arange(len(at_NW)), (at_NW >= 0).sum(1) - 1]]
    return np.concatenate([first_ND, last_ND, first_ND * last_ND, first_ND - last_ND], axis=1)


def plane(x_NF: np.ndarray, method: str) -> np.ndarray:
    """[n, 2]"""
    one_of('--method', method, METHODS)
    if method == 'pca':
        return PCA(2, random_state=0).fit_transform(x_NF)
    x_NF = PCA(min(DIMENSIONS, *x_NF.shape), random_state=0).fit_transform(x_NF)
    return TSNE(2, perplexity=min(PERPLEXITY, len(x_NF) / 3), init='pca', random_state=0).fit_transform(x_NF)


def nmi(train_NF: np.ndarray, test_NF: np.ndarray, label_N: np.ndarray) -> float:
    """Normalised mutual information of the test examples' clusters and labels."""
    clusters = KMeans(len(np.unique(label_N)), n_init=3, random_state=0).fit(train_NF)
    return float(normalized_mutual_info_score(label_N, clusters.predict(test_NF)))


def picture(place_LN2: list[np.ndarray], labels: np.ndarray, titles: list[str], note: str, path: Path) -> Path:
    """A panel a layer; labels [n] str."""
    figure, axes = grid(len(place_LN2), 4, 2.7, 2.8, least=5.5, below=0.9)
    names, counts = np.unique(labels, return_counts=True)
    for panel, place_N2, title in zip(axes, place_LN2, titles, strict=False):
        for number in np.argsort(-counts, kind='stable'):  # the rarest on top
            x, y = place_N2[labels == names[number]].T
            name = f'{names[number]} ({counts[number]})'
            panel.scatter(x, y, s=16, color=COLORS[number], marker=MARKERS[number], label=name, alpha=0.75, linewidth=0)
        panel.set_title(title, fontsize=10)
        panel.set(xticks=[], yticks=[])
    legend(figure, note, *axes[0].get_legend_handles_labels(), fontsize=9, markerscale=1.6)
    return layer_plots.save(figure, path)


def main() -> int:
    f: Any = flags.FLAGS
    out, pools = page.folder(f.out), Pools(f.word_pool, f.sentence_pool).check()
    one_of('--method', f.method, METHODS)
    model, sections, text = Pretrained.load(f.checkpoint), [], ''
    for task in probe.asked():
        p = profiles.prepare(model, task, pools, out / 'cache')
        train, test = chosen(p)
        label_N = p.task.label_N[test]
        pairs = [(vectors(x_ND, p.rows[train]), vectors(x_ND, p.rows[test])) for x_ND in np.asarray(p.x_LND)]
        scores = [f'{nmi(*pair, label_N):.3f}' for pair in pairs]
        places, titles = [plane(x, f.method) for _, x in pairs], [f'layer {n}, NMI {s}' for n, s in enumerate(scores)]
        method = {'tsne': 't-SNE', 'pca': 'PCA'}[f.method]
        note = f'{task.name}: {len(test):,} test examples, {method} of standardised vectors; NMI of k-means clusters'
        labels = np.array(p.task.classes)[label_N]
        drawn = picture(places, labels, titles, note, out / 'figures' / f'{task.name}_{f.method}')
        rows = [['layer', *map(str, range(len(scores)))], ['NMI', *scores]]
        sections.append(page.Section(task.name, note, rows=rows, pictures=[drawn]))
        text += f'{page.markdown(rows)}\n{note}\n\n'
    page.finish(out, 'scatter', f'Spans and words, {f.checkpoint}', text, sections, html='scatter')
    return cli.DONE


def define_method() -> None:
    flags.DEFINE_string('method', METHODS[0], f'Of the plane: {" or ".join(METHODS)}.')


if __name__ == '__main__':
    probe.define_flags()
    define_method()
    cli.run(main, required=('checkpoint', 'out'))
