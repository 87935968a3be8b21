"""Structural probe: do distances between vectors follow the syntax tree? (Hewitt & Manning 2019)

    python -m analysis.structural --checkpoint=FOLDER --data=DATA/ud_english_ewt --out=probes/structure

Squared distances under a linear map B are fitted to distances in the tree, and squared lengths under another to depths,
by their L1 loss, at all layers in one program. Beside them an untrained encoder and the chain of neighbours. Word
vectors are means over pieces; punctuation does not count for UUAS and root. Writes structure.{md,csv}, figures/ and
report.html; three minutes on two cores for a model of 6 layers.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from scipy.stats import rankdata

from analysis.probing import annotated_tasks, engine, features
from analysis.probing.conllu import Sentence
from analysis.probing.engine import Examples, Options, Probe
from analysis.probing.features import Corpus
from analysis.report import layer_plots, page, trees
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from bertx.report import stats
from bertx.report.stats import Estimate
from experiments import cli

LONGEST = 32  # words; longer sentences are left out (theirs: all in training, 5 to 50 in DSpr)
SHORTEST = 5  # of what Spearman's correlations are averaged over
RANK = 64  # gains stop near 32 to 64 (their figure 4)
OPTIONS = Options(penalties=(0.0,), seeds=1, batch=32, rounds=20, patience=3, learning_rate=2e-3)


@dataclasses.dataclass(frozen=True)
class Structural(Probe):
    """at [n, T], -1 behind the end; target: distance [n, T, T], depth [n, T], length [n]."""

    rank: int = RANK

    def init(self, key, width, layers):
        draw = lambda k: jax.random.uniform(k, (width, self.rank), minval=-0.05, maxval=0.05)
        return {name: draw(k) for name, k in zip(('distance', 'depth'), jax.random.split(key), strict=True)}

    def read(self, x_LND, layer, at_BT):
        return x_LND[layer, at_BT], at_BT >= 0

    def outputs(self, params, x, target, layer):
        x_BTD, there_BT = x
        a_BTR, b_BTR = (x_BTD @ params[name] for name in ('distance', 'depth'))
        square_BT, depth_BT = (a_BTR**2).sum(-1), (b_BTR**2).sum(-1)
        distance_BTT = square_BT[:, :, None] + square_BT[:, None] - 2 * jnp.einsum('bir,bjr->bij', a_BTR, a_BTR)
        there_BTT = (there_BT[:, :, None] & there_BT[:, None]).astype(jnp.float32)
        length = target['length'].astype(jnp.float32)
        loss = (jnp.abs(distance_BTT - target['distance']) * there_BTT).sum((1, 2)) / length**2
        loss += (jnp.abs(depth_BT - target['depth']) * there_BT).sum(1) / length
        return {'distance': distance_BTT, 'depth': depth_BT, 'loss': loss}


def examples(sentences: list[Sentence], first_S: np.ndarray, rows_W: np.ndarray, keep: np.ndarray) -> Examples:
    """Of the sentences numbered `keep`."""
    n, T = len(keep), LONGEST
    at, length = np.full((n, T), -1, np.int32), np.ones(n, np.int32)
    distance, depth = np.zeros((n, T, T), np.float32), np.zeros((n, T), np.float32)
    for i, number in enumerate(keep):
        s, w = sentences[number], len(sentences[number].words)
        at[i, :w], length[i] = rows_W[first_S[number] : first_S[number] + w], w
        distance[i, :w, :w], depth[i, :w] = trees.distances(s.heads), s.depths()
    return Examples(at, {'distance': distance, 'depth': depth, 'length': length})


@dataclasses.dataclass(frozen=True)
class Scores:
    """Of predicted trees over n sentences."""

    hit_N: np.ndarray  # edges found
    edge_N: np.ndarray
    root_N: np.ndarray  # was the root the shallowest word?
    dspr: float
    nspr: float

    @property
    def uuas(self) -> Estimate:
        return stats.mean(self.hit_N[None], self.edge_N)


def scores(sentences: list[Sentence], distance_NTT, depth_NT) -> Scores:
    """UUAS by the minimum spanning tree without punctuation; correlations averaged by length, then over lengths."""
    hits, edges, roots = [], [], []
    by_length: dict[int, list[tuple[float, float]]] = {}
    for s, distance_TT, depth_T in zip(sentences, distance_NTT, depth_NT, strict=True):
        words = np.array([w for w, tag in enumerate(s.upos) if tag != 'PUNCT'], int)
        gold, found = trees.edges(s, distance_TT)
        hits.append(len(gold & found))
        edges.append(len(gold))
        roots.append(float(len(words) > 0 and words[np.argmin(depth_T[words])] == s.root))
        if (n := len(s.words)) >= SHORTEST:
            true = trees.distances(s.heads)
            rows = spearman(distance_TT[:n, :n], true)
            depths = spearman(depth_T[None, :n], np.array([s.depths()]))
            by_length.setdefault(n, []).append((float(np.nanmean(rows)), float(depths[0])))
    if not by_length:
        raise BadInput(f'no sentence of {SHORTEST} to {LONGEST} words to score trees on')
    dspr, nspr = np.mean([np.nanmean(pairs, axis=0) for pairs in by_length.values()], axis=0)
    return Scores(np.array(hits, float), np.array(edges, float), np.array(roots), float(dspr), float(nspr))


def spearman(x_NW: np.ndarray, y_NW: np.ndarray) -> np.ndarray:
    """[N]: rank correlation of each pair of rows."""
    a, b = (rankdata(z, axis=1) for z in (x_NW, y_NW))
    a, b = (z - z.mean(1, keepdims=True) for z in (a, b))
    return (a * b).sum(1) / np.sqrt((a**2).sum(1) * (b**2).sum(1))


def chain(sentences: list[Sentence]) -> Scores:
    """The baseline: distance in the sentence, and place in it as depth."""
    at = np.arange(LONGEST, dtype=float)
    return scores(sentences, [abs(at[:, None] - at)] * len(sentences), [at] * len(sentences))


@dataclasses.dataclass(frozen=True)
class Result:
    """Of all layers of a model on the same test sentences."""

    layers: list[Scores]
    dev_L: np.ndarray
    distance_LNTT: np.ndarray
    sentences: list[Sentence]
    left_out: int  # sentences of all splits: too long, or not read as a whole

    @property
    def best(self) -> int:
        return int(self.dev_L.argmin())


def run(model: Pretrained, sentences: list[Sentence], split_S: np.ndarray, cache: Path, options=OPTIONS) -> Result:
    corpus = Corpus([s.words for s in sentences])
    found = features.compute(model, corpus, 'mean', cache)
    first_S, rows_W = corpus.starts[:-1], found.rows['words']
    whole = np.array([(rows_W[a:b] >= 0).all() for a, b in zip(first_S, corpus.starts[1:], strict=True)])
    fits = np.array([2 <= len(s.words) <= LONGEST for s in sentences]) & whole
    train, dev, test = (np.flatnonzero(fits & (split_S == n)) for n in range(3))
    if not min(map(len, (train, dev, test))):
        raise BadInput(f'--data: training, dev and test all want sentences of at most {LONGEST} words')
    make = lambda keep: examples(sentences, first_S, rows_W, keep)
    at = make(train)
    x_LND = engine.standardised(found.states_LND, np.unique(at.at[at.at >= 0]))
    options = dataclasses.replace(options, steps=max(1, len(train) // options.batch))
    fitted = engine.fit(Structural(), x_LND, at, make(dev), options)
    out = fitted.scores(x_LND, make(test))
    tested = [sentences[i] for i in test]
    layers = [scores(tested, d[0], h[0]) for d, h in zip(out['distance'], out['depth'], strict=True)]
    return Result(layers, fitted.dev_LT[:, 0], out['distance'][:, 0], tested, int((~fits).sum()))


def lines(found: Result, control: Result) -> list[list[str]]:
    """The table: a line a layer, then the chain of neighbours."""
    base = chain(found.sentences)
    rows = [['layer', 'UUAS', 'less untrained', 'less chain', 'DSpr', 'NSpr', 'root', 'untrained UUAS']]
    for n, (a, b) in enumerate(zip(found.layers, control.layers, strict=True)):
        gains = [stats.difference(a.hit_N[None], x.hit_N[None], a.edge_N) for x in (b, base)]
        numbers = [f'{x:.3f}' for x in (a.dspr, a.nspr, a.root_N.mean(), b.uuas.value)]
        name, gained = f'{n}{" (dev)" if n == found.best else ""}', [page.interval(g, '+') for g in gains]
        rows.append([name, page.interval(a.uuas), *gained, *numbers])
    numbers = [f'{x:.3f}' for x in (base.dspr, base.nspr, base.root_N.mean())]
    return [*rows, ['chain', page.interval(base.uuas), '', '', *numbers, '']]


def main() -> int:
    f: Any = flags.FLAGS
    model, out = Pretrained.load(f.checkpoint), page.folder(f.out)
    data = annotated_tasks.treebank(f.data, f.sentences, f.sentences // 3)
    found = run(model, *data, out / 'cache')
    control = run(features.untrained(model), *data, out / 'cache')
    rows = lines(found, control)
    said = '95 % intervals over sentences, one run'
    left = f'{found.left_out:,} of all sentences left out'
    note = f'{len(found.sentences):,} test sentences of 2 to {LONGEST} words, {left}; {said}; rank {RANK}'
    of = lambda result, get: np.array([get(s) for s in result.layers])
    measures = {
        'UUAS': lambda s: s.uuas.value,
        'distances, Spearman': lambda s: s.dspr,
        'depths, Spearman': lambda s: s.nspr,
    }
    base, count = chain(found.sentences), len(found.layers)
    panels = {}
    for name, get in measures.items():
        controls = {'untrained encoder': of(control, get), 'chain of neighbours': np.full(count, get(base))}
        panels[name] = {'trained': of(found, get)[None]}, controls
    bands = {('UUAS', 'trained'): (of(found, lambda s: s.uuas.low), of(found, lambda s: s.uuas.high))}
    pictures = [layer_plots.curves(panels, out / 'figures' / 'structure', note, bands, ylabel='')]
    pictures += [trees.picture(found, n, out / 'figures' / f'tree{n}') for n in trees.examples(found.sentences)]
    page.write_csv(out / 'structure.csv', rows)
    sections = [page.Section('Layers', note, rows=rows, pictures=pictures)]
    page.finish(out, 'structure', f'Structural probe of {f.checkpoint}', f'{page.markdown(rows)}\n- {note}\n', sections)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('checkpoint', None, 'A run, or a Hugging Face folder.')
    flags.DEFINE_string('data', None, 'CoNLL-U files: a folder, or files with commas between.')
    flags.DEFINE_string('out', None, 'Where everything is written.')
    flags.DEFINE_integer('sentences', 2000, 'Training sentences at most; a third of dev, and test.', lower_bound=3)
    cli.run(main, required=('checkpoint', 'data', 'out'))
