"""What gives a pair's label away without reading it as a language model would: a report before training.

Released NSP and SOP data have such leaks (google-research/bert#180, albert#234, brightmart/albert_zh#83): an objective
that a bag of words solves teaches an encoder little.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np
from scipy import sparse

from bertx.text.rows import RowOptions, Rows


@dataclasses.dataclass(frozen=True)
class Leakage:
    """Of one label. Accuracies are on pairs of other documents than those that were fitted; chance is `majority`."""

    label: str
    pairs: int
    shares: tuple[float, ...]  # of each class in the training pairs
    length_difference: float  # mean tokens of A and B together: of the class that differs most, minus those of label 0
    first_minus_second: float  # the same for tokens of A minus tokens of B
    majority: float
    length_only: float
    bag_of_words: float

    def __str__(self) -> str:
        shares = ', '.join(f'{share:.1%} are {value}' for value, share in enumerate(self.shares) if value)
        return (
            f'{self.label} labels of {self.pairs:,} pairs: {shares}; mean length differs by '
            f'{self.length_difference:+.2f} tokens, A minus B by {self.first_minus_second:+.2f}; on held-out documents '
            f'a length-only classifier gets {self.length_only:.3f}, a bag of words {self.bag_of_words:.3f}, '
            f'the majority {self.majority:.3f}'
        )


def _lengths(rows: Rows) -> np.ndarray:
    """[pairs, 4] of epoch 0."""
    a, b = rows.plan(0).pieces.length.reshape(-1, 2).T
    return np.stack([a, b, a + b, a - b], axis=1).astype(np.float64)


def _words(rows: Rows, most: int) -> sparse.csr_matrix:
    """Of the first rows' pairs: counts of each token in A, in B, and in both (the smaller count), so that shared
    vocabulary is seen too."""
    example, width, starts = rows.batch(np.arange(most)), rows.tokenizer.vocab_size, rows.plan(0).row_starts
    ordinary = rows.tokenizer.ordinary()[example.tokens] & (example.segment_ids > 0)

    def count(side: int) -> sparse.csr_matrix:
        row, at = np.nonzero(ordinary & (example.type_ids == side))
        pair = starts[row] + example.segment_ids[row, at] - 1
        return sparse.csr_matrix((np.ones(len(row)), (pair, example.tokens[row, at])), shape=(starts[most], width))

    a, b = count(0), count(1)
    return sparse.hstack([a, b, a.minimum(b)]).tocsr()


def report(store, options: RowOptions, label: str, seed: int = 0, most: int = 5000) -> Leakage:
    """Fits on the pairs of up to `most` rows of the training split and scores on as many of the validation split."""
    # Imported here: it takes seconds that commands with nothing to report need not wait for.
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    splits = [Rows(store, split, options, seed) for split in ('train', 'validation')]
    lengths, labels = [_lengths(rows) for rows in splits], [rows.plan(0).labels[label] for rows in splits]
    limits = [min(most, len(rows)) for rows in splits]
    pairs = [rows.plan(0).row_starts[limit] for rows, limit in zip(splits, limits, strict=True)]
    y, y_held_out = (values[:count] for values, count in zip(labels, pairs, strict=True))
    shares, held_out_shares = (np.bincount(x[x >= 0]) / (x >= 0).sum() for x in (labels[0], y_held_out))

    def accuracy(features, classifier) -> float:
        if len(np.unique(y[y >= 0])) < 2:
            return float(held_out_shares.max())  # nothing to fit: every pair has the same label
        fit, score = features
        classifier.fit(fit[y >= 0], y[y >= 0])
        return float(classifier.score(score[y_held_out >= 0], y_held_out[y_held_out >= 0]))

    means = np.array([lengths[0][labels[0] == value].mean(0) for value in range(len(shares)) if shares[value]])
    gaps = means[1:] - means[0] if len(means) > 1 else np.full((1, 4), np.nan)
    largest = gaps[np.abs(gaps).argmax(0), range(4)]
    return Leakage(
        label=label,
        pairs=int((labels[0] >= 0).sum()),
        shares=tuple(shares.tolist()),
        length_difference=float(largest[2]),
        first_minus_second=float(largest[3]),
        majority=float(held_out_shares.max()),
        length_only=accuracy(
            [x[:count] for x, count in zip(lengths, pairs, strict=True)],
            HistGradientBoostingClassifier(max_iter=50, random_state=0),
        ),
        bag_of_words=accuracy(
            [_words(rows, limit) for rows, limit in zip(splits, limits, strict=True)],
            LogisticRegression(C=0.1, max_iter=200, tol=1e-3),
        ),
    )


def describe(store, options: RowOptions, batches: Iterable[int] = (), seed: int = 0) -> list[str]:
    """Lines for a person, before training: what the rows hold and drop, and what gives their labels away.

    batches: sizes in rows; what they hold in real tokens is what must be equal where input formats are compared.
    """
    plan = Rows(store, 'train', options, seed).plan(0)
    tokens, a_row = int(plan.pieces.length.sum()), plan.real / len(plan)
    text = tokens + sum(plan.dropped.values())
    held = ''.join(f', {batch * a_row:,.0f} in a batch of {batch:,}' for batch in sorted(batches))
    dropped = ', '.join(f'{reason} {lost:,} ({lost / text:.1%})' for reason, lost in plan.dropped.items())
    line = (
        f'{" + ".join((options.format, *options.labels))}: {len(plan):,} rows an epoch, '
        f'{(len(plan.input_starts) - 1) / len(plan):.2f} inputs a row, {tokens:,} tokens of text; '
        f'{a_row / options.length:.1%} of the slots are no padding{held}; tokens dropped by {dropped}'
    )
    if options.labels and 'validation' not in store.meta['splits']:
        return [line, 'what gives the labels away is not measured: there are no validation documents']
    return [line] + [str(report(store, options, label, seed)) for label in options.labels]
