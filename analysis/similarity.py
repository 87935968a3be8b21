"""How alike are the representations of layers, seeds and objectives, and how much do they depend on context?

    python -m analysis.similarity --sweep=runs/nsp_vs_sop
    python -m analysis.similarity --checkpoint=FOLDER,FOLDER --out=probes/similarity

Linear CKA (Kornblith et al. 2019) between words in context, over minibatches with the unbiased estimator of HSIC
(Nguyen et al. 2021). Of a sweep also the floor that seeds give: an objective changes a layer only where arms are less
alike than the seeds of one arm are. Contextuality: how far the vectors of one word type differ between contexts
(Ethayarajh 2019). Writes similarity.md, figures/ and report.html.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from etils import epath

from analysis import features, layer_plots, page, plain_tasks, probe
from analysis.features import Corpus
from bertx import results
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from experiments import cli

BATCH = 256  # rows in a Gram matrix: unbiased at any size, noisier below
LEAST = 5  # contexts of a word type for its contextuality


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


def cka(x_LND: np.ndarray, y_MND: np.ndarray, batch: int = BATCH, seed: int = 0) -> np.ndarray:
    """[L, M]: numerator and denominators are summed over minibatches before they are divided. The same rows in both."""
    N = x_LND.shape[1]
    if y_MND.shape[1] != N or N < 4:
        raise ValueError(f'CKA wants the same rows, 4 or more, in both; not {N} and {y_MND.shape[1]}')
    size = min(batch, N)
    order = np.random.default_rng(seed).permutation(N)
    total: Any = 0.0
    for start in range(0, N - size + 1, size):
        index = np.sort(order[start : start + size])  # ascending: the files are read from front to back
        x, y = (np.array(z[:, index], np.float32) for z in (x_LND, y_MND))
        x, y = (z - z.mean(1, keepdims=True) for z in (x, y))  # changes nothing but the rounding
        diagonal = lambda z: np.diagonal(_hsic(z, z))
        total = total + np.stack([_hsic(x, y), *np.broadcast_arrays(diagonal(x)[:, None], diagonal(y)[None])])
    return total[0] / np.sqrt(total[1] * total[2])


def contextuality(x_LND: np.ndarray, type_N: np.ndarray) -> np.ndarray:
    """[L]: 1 less the mean cosine between vectors of one type in different contexts; the types weigh alike. The mean
    vector of each layer is taken off first, since all vectors of a layer may point one way."""
    types, inverse, counts = np.unique(type_N, return_inverse=True, return_counts=True)
    found = []
    for x_ND in x_LND:
        centred = np.asarray(x_ND, np.float64) - np.mean(x_ND, axis=0, dtype=np.float64)
        unit_ND = centred / (np.linalg.norm(centred, axis=1, keepdims=True) + 1e-12)
        sums_TD = np.zeros((len(types), unit_ND.shape[1]))
        np.add.at(sums_TD, inverse, unit_ND)
        n = counts[counts >= LEAST]
        own = ((sums_TD[counts >= LEAST] ** 2).sum(1) - n) / (n * (n - 1))
        found.append(1 - own.mean() if len(own) else np.nan)
    return np.array(found)


def main() -> int:
    f: Any = flags.FLAGS
    s, _, folders = probe.settings()
    out = s.out if f.out else s.out.with_name('similarity')
    texts = [words for _, words in plain_tasks.read(f.source)[0]]
    corpus = Corpus(texts[:: max(1, len(texts) // f.sentences)][: f.sentences])
    type_W = np.array([word for s in corpus.sentences for word in s])
    states, context, fingerprints = {}, {}, set()
    for arm, runs in folders.items():
        for seed, folder in runs.items():
            found = features.compute(Pretrained.load(folder), corpus, 'mean', out / 'cache')
            fingerprints.add((found.meta['tokenizer'], len(found.states_LND)))
            at = found.rows['words'][found.rows['words'] >= 0]
            states[arm, seed] = found.states_LND[:, at]
            context[arm, seed] = contextuality(states[arm, seed], type_W[found.rows['words'] >= 0])
    if len(fingerprints) > 1:
        raise BadInput('the checkpoints differ in tokenizer or layers: their words cannot be compared row by row')
    between = functools.cache(lambda a, b: cka(states[a], states[b]))
    grids, floor = {}, {}
    for a, b in itertools.combinations_with_replacement(folders, 2):
        pairs = [((a, i), (b, j)) for i in folders[a] for j in folders[b] if a != b or i < j]
        if pairs:
            grids[f'{a} and {b}'] = np.mean([between(*pair) for pair in pairs], axis=0)
            floor[f'{a} and {b}'] = np.array([np.diagonal(between(*pair)) for pair in pairs])
        elif a == b:
            grids[a] = between((a, 0), (a, 0)) if (a, 0) in states else between(*[(a, next(iter(folders[a])))] * 2)
    note = f'linear CKA, unbiased, {len(type_W):,} words in context; of one arm and itself: between its seeds'
    pictures = [layer_plots.maps(grids, out / 'figures' / 'cka', note, x='layer', first=0, limits=(0, 1))]
    rows = [['layer', *floor]]
    if floor:
        layers = next(iter(floor.values())).shape[1]
        spread = {name: np.stack([x.mean(0), x.min(0), x.max(0)]) for name, x in floor.items()}
        rows += [
            [str(n), *(f'{m[n]:.3f} [{lo[n]:.3f}, {hi[n]:.3f}]' for m, lo, hi in spread.values())]
            for n in range(layers)
        ]
        said = 'same layer of two runs; an arm with itself: the floor that seeds give; band: all pairs of runs'
        bands = {('CKA', name): (x[1], x[2]) for name, x in spread.items()}
        curve: Any = {'CKA': ({name: x.mean(0)[None] for name, x in floor.items()}, {})}
        pictures.append(layer_plots.curves(curve, out / 'figures' / 'floor', said, bands, ylabel='CKA'))
    by_arm = {arm: np.stack([context[arm, seed] for seed in runs]) for arm, runs in folders.items()}
    said = f'1 - mean cosine of one word type in different contexts (types with {LEAST} or more), centred'
    pictures.append(layer_plots.curves({'contextuality': (by_arm, {})}, out / 'figures' / 'context', said, ylabel=''))
    table = [
        ['layer', *by_arm],
        *(
            [str(n), *(f'{x[:, n].mean():.3f}' for x in by_arm.values())]
            for n in range(len(next(iter(context.values()))))
        ),
    ]
    text = f'CKA of the same layer, mean and range over pairs of runs\n\n{page.markdown(rows)}\n' if floor else ''
    text += f'Contextuality\n\n{page.markdown(table)}\n{note}\n'
    results.write_atomically(epath.Path(out / 'similarity.md'), text)
    sections = [
        page.Section('CKA', note, rows=rows if floor else [], pictures=pictures),
        page.Section('Contextuality', rows=table),
    ]
    page.write(out / 'report.html', f'Similarity, {f.sweep or f.checkpoint}', sections)
    print(text)
    return cli.DONE


if __name__ == '__main__':
    probe.define_flags()
    cli.run(main, required=())
