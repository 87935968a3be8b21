"""All layers x penalties x seeds of a probe at once, beside scikit-learn's fits of the same on the same vectors.

    python tests/probe_peer.py --data=DATA/ud_english_ewt

Parts of speech from all-MiniLM-L6-v2: seconds of our one program with its compilation, of scikit-learn's fits (one for
each layer and penalty: it has no seeds, so ours does three times as many), and test accuracies. A quarter of an hour;
--layers 3 asks scikit-learn about one layer only. Fails where accuracies differ by a hundredth.
"""

import argparse
import pathlib
import sys
import time

from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from finetune_peer import minilm  # noqa: E402

from analysis.probing import annotated_tasks, profiles  # noqa: E402
from analysis.probing.engine import Options  # noqa: E402
from bertx.pretrained import Pretrained  # noqa: E402

AGREED = 0.01  # of accuracy: scikit-learn has no early stopping


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('--data', required=True)
    flags.add_argument('--cache', default='probes/cache', type=pathlib.Path)
    flags.add_argument('--layers', nargs='*', type=int)
    a, options = flags.parse_args(), Options()
    task = annotated_tasks.make('pos', *annotated_tasks.treebank(a.data, 2000, 700)).limited(20_000, 10_000)
    p = profiles.prepare(Pretrained.load(minilm()), task, profiles.Pools(), a.cache)
    train, dev, test = (p.examples(split) for split in range(3))
    begun = time.perf_counter()
    fitted = profiles.fit(p, 'linear', options)
    ours = time.perf_counter() - begun
    hit_L = fitted.scores(p.x_LND, test)['hit'].mean((1, 2))
    fits = fitted.dev_LT.size * len(options.penalties)
    print(f'{len(train):,} words, {len(hit_L)} layers: {fits} fits of ours in {ours:.0f} s', flush=True)
    theirs, layers = 0.0, a.layers or list(range(len(hit_L)))
    for layer in layers:
        x_ND, found = p.x_LND[layer], []
        rows, dev_rows, test_rows = (part.at[:, 0] for part in (train, dev, test))
        for penalty in options.penalties:
            begun = time.perf_counter()
            model = LogisticRegression(C=1 / (penalty * len(train)), max_iter=1000).fit(x_ND[rows], train.target)
            theirs += time.perf_counter() - begun
            found.append((-model.score(x_ND[dev_rows], dev.target), model.score(x_ND[test_rows], test.target)))
        print(f'layer {layer}: ours {hit_L[layer]:.4f}, scikit-learn {min(found)[1]:.4f}', flush=True)
        assert abs(hit_L[layer] - min(found)[1]) < AGREED, 'the two should agree'
    each = theirs / len(layers) / len(options.penalties)
    print(f'a fit: ours {ours / fits:.2f} s, scikit-learn {each:.1f} s, {each * fits / ours:.0f} times as long')


if __name__ == '__main__':
    main()
