"""How alike are the representations of layers, seeds and objectives, and how much do they depend on context?

    python -m analysis.similarity --sweep=runs/nsp_vs_sop
    python -m analysis.similarity --checkpoint=FOLDER,FOLDER --out=probes/similarity

Linear CKA (Kornblith et al. 2019) between words in context, over minibatches with the unbiased estimator of HSIC
(Nguyen et al. 2021). Of a sweep also the floor that seeds give: an objective changes a layer only where arms are less
alike than the seeds of one arm are. Contextuality: how far the vectors of one word type differ between contexts
(Ethayarajh 2019). Writes similarity.md, figures/ and report.html.
"""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from analysis import probe
from analysis.probing import features, plain_tasks
from analysis.probing.features import Corpus
from analysis.report import layer_plots, page
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from experiments import cli

BATCH = 256  # rows in a Gram matrix: unbiased at any size, noisier below
Run = tuple[str, int]  # arm, seed
Pair = tuple[Run, Run]
LEAST = 5  # contexts of a word type for its contextuality


@dataclasses.dataclass(frozen=True)
class Words:
    """Vectors of words in one run: rows of a file that stays on the disk."""

    states_LMD: np.ndarray
    at_N: np.ndarray


@jax.jit
def _hsic(x_LBD, y_MBD):
    """[L, M] unbiased HSIC (Song et al. 2012) of the linear Gram matrices of each pair of layers."""
    n = x_LBD.shape[1]
    off = 1.0 - jnp.eye(n)

    def gram(x_LBD):
        return jnp.einsum('lbd,lcd->lbc', x_LBD, x_LBD) * off[None]

    k, h = gram(x_LBD), gram(y_MBD)
    trace = jnp.einsum('lbc,mbc->lm', k, h)
    sums = jnp.outer(k.sum((1, 2)), h.sum((1, 2))) / ((n - 1) * (n - 2))
    cross = jnp.einsum('lb,mb->lm', k.sum(2), h.sum(2)) * 2 / (n - 2)
    return (trace + sums - cross) / (n * (n - 3))


def cka(x: Words, y: Words, batch: int = BATCH) -> np.ndarray:
    """[L, M]: numerator and denominators are summed over minibatches, then divided. The same words in both."""
    N = len(x.at_N)
    if len(y.at_N) != N or N < 4:
        raise ValueError(f'CKA wants the same rows, 4 or more, in both; not {N} and {len(y.at_N)}')
    size = min(batch, N)
    order = np.random.default_rng(0).permutation(N)
    total: Any = 0.0
    for start in range(0, N - size + 1, size):
        index = np.sort(order[start : start + size])  # ascending: the files are read from front to back
        a, b = (np.array(z.states_LMD[:, z.at_N[index]], np.float32) for z in (x, y))
        a, b = (z - z.mean(1, keepdims=True) for z in (a, b))  # changes nothing but the rounding
        diagonal = lambda z: np.diagonal(_hsic(z, z))
        total = total + np.stack([_hsic(a, b), *np.broadcast_arrays(diagonal(a)[:, None], diagonal(b)[None])])
    return total[0] / np.sqrt(total[1] * total[2])


def contextuality(words: Words, type_N: np.ndarray) -> np.ndarray:
    """[L]: 1 less the mean cosine between vectors of one type in different contexts; the types weigh alike. The mean
    vector of each layer is taken off first, since all vectors of a layer may point one way."""
    types, inverse, counts = np.unique(type_N, return_inverse=True, return_counts=True)
    found = []
    for x_MD in words.states_LMD:
        x_ND = x_MD[words.at_N]
        centred = np.asarray(x_ND, np.float64) - np.mean(x_ND, axis=0, dtype=np.float64)
        unit_ND = centred / (np.linalg.norm(centred, axis=1, keepdims=True) + 1e-12)
        sums_TD = np.zeros((len(types), unit_ND.shape[1]))
        np.add.at(sums_TD, inverse, unit_ND)
        n = counts[counts >= LEAST]
        own = ((sums_TD[counts >= LEAST] ** 2).sum(1) - n) / (n * (n - 1))
        found.append(1 - own.mean() if len(own) else np.nan)
    return np.array(found)


def read(folders: dict[str, dict[int, str]], corpus: Corpus, cache) -> tuple[dict[Run, Words], np.ndarray]:
    """(run -> its vectors of the words that all runs have, which words these are). Raises BadInput before any forward
    pass where runs differ in tokenizer or layers."""
    runs = {(arm, seed): folder for arm, by_seed in folders.items() for seed, folder in by_seed.items()}
    models = map(Pretrained.load, runs.values())
    if len({(model.tokenizer.fingerprint, model.encoder.layers) for model in models}) > 1:
        raise BadInput('the checkpoints differ in tokenizer or layers: their words cannot be compared row by row')
    found = {run: features.compute(Pretrained.load(folder), corpus, 'mean', cache) for run, folder in runs.items()}
    there_W = np.all([x.rows['words'] >= 0 for x in found.values()], axis=0)
    return {run: Words(x.states_LND, x.rows['words'][there_W]) for run, x in found.items()}, there_W


def pairs(folders: dict[str, dict[int, str]], baseline: str, seeded: bool) -> dict[str, tuple[str, str, list[Pair]]]:
    """Title -> (arm, arm, pairs of runs): each arm with itself, and with the baseline. seeded: runs of one seed share
    initial weights and the order of the data, so between arms they stand apart: the floor has none of them."""
    found: dict[str, tuple[str, str, list[Pair]]] = {}
    for a, b in itertools.combinations_with_replacement(folders, 2):
        every = [((a, i), (b, j)) for i in folders[a] for j in folders[b]]
        if a == b:
            found[f'{a} and {b}'] = a, b, [(x, y) for x, y in every if x[1] < y[1]]
        elif baseline in (a, b):
            found[f'{a} and {b}'] = a, b, [(x, y) for x, y in every if x[1] != y[1] or not seeded]
            found[f'{a} and {b}, same seed'] = a, b, [(x, y) for x, y in every if x[1] == y[1] and seeded]
    return {title: x for title, x in found.items() if x[2]}


def main() -> int:
    f: Any = flags.FLAGS
    s, _, folders = probe.settings()
    out = s.out if f.out else s.out.with_name('similarity')
    texts = [words for _, words in plain_tasks.read(f.source)[0]]
    corpus = Corpus(texts[:: max(1, len(texts) // f.sentences)][: f.sentences])
    states, there_W = read(folders, corpus, out / 'cache')
    type_N = np.array([word for s in corpus.sentences for word in s])[there_W]
    context = {run: contextuality(words, type_N) for run, words in states.items()}
    between = functools.cache(lambda a, b: cka(states[a], states[b]))
    baseline = f.baseline or next(iter(folders))
    compared = pairs(folders, baseline, bool(f.sweep))
    floor = {title: np.array([np.diagonal(between(*x)) for x in mine]) for title, (*_, mine) in compared.items()}
    grids = {title: np.mean([between(*x) for x in mine], axis=0) for title, (*_, mine) in compared.items()}
    names = {title: (f'layer of {a}', f'layer of {b}') for title, (a, b, _) in compared.items()}
    for arm, runs in folders.items():
        if len(runs) == 1:
            grids[arm], names[arm] = between(*[(arm, next(iter(runs)))] * 2), (f'layer of {arm}',) * 2
    note = f'linear CKA, unbiased, {len(type_N):,} words in context'
    if any(a == b for a, b, _ in compared.values()):
        note += '; of one arm and itself: between its seeds'
    if any(len(runs) == 1 for runs in folders.values()):
        note += '; one run alone: with itself, so that seeds are no floor'
    maps = layer_plots.maps(grids, out / 'figures' / 'cka', note, first=0, limits=(0, 1), axes_of=names)
    pictures, rows = [maps], [['layer', *floor]]
    if floor:
        layers = next(iter(floor.values())).shape[1]
        spread = {name: np.stack([x.mean(0), x.min(0), x.max(0)]) for name, x in floor.items()}
        for n in range(layers):
            rows.append([str(n), *(f'{m[n]:.3f} [{lo[n]:.3f}, {hi[n]:.3f}]' for m, lo, hi in spread.values())])
        said = 'same layer of two runs; an arm with itself: the floor that seeds give; band: all pairs of runs'
        drawn = [title for title, (a, b, _) in compared.items() if baseline in (a, b)]
        bands = {('CKA', name): (spread[name][1], spread[name][2]) for name in drawn}
        curve: Any = {'CKA': ({name: floor[name].mean(0)[None] for name in drawn}, {})}
        if drawn:
            pictures.append(layer_plots.curves(curve, out / 'figures' / 'floor', said, bands, ylabel='CKA'))
    by_arm = {arm: np.stack([context[arm, seed] for seed in runs]) for arm, runs in folders.items()}
    said = f'1 - mean cosine of one word type in different contexts (types with {LEAST} or more), centred'
    pictures.append(layer_plots.curves({'contextuality': (by_arm, {})}, out / 'figures' / 'context', said, ylabel=''))
    table = [['layer', *by_arm]]
    for n in range(len(next(iter(context.values())))):
        table.append([str(n), *(f'{x[:, n].mean():.3f}' for x in by_arm.values())])
    text = f'CKA of the same layer, mean and range over pairs of runs\n\n{page.markdown(rows)}\n' if floor else ''
    text += f'Contextuality\n\n{page.markdown(table)}\n{note}\n'
    sections = [
        page.Section('CKA', note, rows=rows if floor else [], pictures=pictures),
        page.Section('Contextuality', rows=table),
    ]
    page.finish(out, 'similarity', f'Similarity, {f.sweep or f.checkpoint}', text, sections)
    return cli.DONE


if __name__ == '__main__':
    probe.define_flags()
    cli.run(main, required=())
