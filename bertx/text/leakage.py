"""What gives a pair's label away without reading it as a language model would: a report before training.

Released NSP and SOP data have such leaks (google-research/bert#180, albert#234, brightmart/albert_zh#83): an objective
that a bag of words solves teaches an encoder little.
"""

import dataclasses

import numpy as np
from scipy import sparse

from bertx.text.rows import RowOptions, Rows


@dataclasses.dataclass(frozen=True)
class Leakage:
    """Of one label. Accuracies are on rows of other documents than those that were fitted; chance is `majority`."""

    label: str
    rows: int
    balance: float  # share of label 1 in the training rows
    length_difference: float  # mean tokens of A and B together, label 1 minus label 0
    first_minus_second: float  # the same for tokens of A minus tokens of B
    majority: float
    length_only: float
    bag_of_words: float

    def __str__(self) -> str:
        return (
            f'{self.label} labels of {self.rows:,} rows: {self.balance:.1%} are 1; mean length differs by '
            f'{self.length_difference:+.2f} tokens, A minus B by {self.first_minus_second:+.2f}; on held-out documents '
            f'a length-only classifier gets {self.length_only:.3f}, a bag of words {self.bag_of_words:.3f}, '
            f'the majority {self.majority:.3f}'
        )


def _lengths(rows: Rows, numbers: np.ndarray) -> np.ndarray:
    plan = rows.plan(0)
    a, b = plan.a.length[numbers], plan.b.length[numbers]
    return np.stack([a, b, a + b, a - b], axis=1).astype(np.float64)


def _words(rows: Rows, numbers: np.ndarray) -> sparse.csr_matrix:
    """Counts of each token in A, in B, and in both (the smaller count), so that shared vocabulary is seen too."""
    example, width = rows.batch(numbers), rows.tokenizer.vocab_size
    ordinary = rows.tokenizer.ordinary()[example.tokens] & (example.segment_ids > 0)

    def count(side: int) -> sparse.csr_matrix:
        row, at = np.nonzero(ordinary & (example.type_ids == side))
        ones = np.ones(len(row))
        return sparse.csr_matrix((ones, (row, example.tokens[row, at])), shape=(len(numbers), width))

    a, b = count(0), count(1)
    return sparse.hstack([a, b, a.minimum(b)]).tocsr()


def report(store, options: RowOptions, label: str, seed: int = 0, most: int = 5000) -> Leakage:
    """Fits on up to `most` rows of the training split and scores on as many of the validation split."""
    # Imported here: it takes seconds that commands with nothing to report need not wait for.
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    train, held_out = Rows(store, 'train', options, seed), Rows(store, 'validation', options, seed)
    numbers = [np.arange(min(most, len(rows))) for rows in (train, held_out)]
    y, y_held_out = (r.plan(0).labels[label][n] for r, n in zip((train, held_out), numbers, strict=True))

    share = float(np.mean(y_held_out[y_held_out >= 0]))
    majority = max(share, 1 - share)

    def accuracy(features, classifier) -> float:
        if len(np.unique(y[y >= 0])) < 2:
            return majority  # nothing to fit: every pair has the same label
        classifier.fit(features(train, numbers[0])[y >= 0], y[y >= 0])
        known = y_held_out >= 0
        return float(classifier.score(features(held_out, numbers[1])[known], y_held_out[known]))

    lengths, all_labels = _lengths(train, np.arange(len(train))), train.plan(0).labels[label]
    sides = [lengths[all_labels == value] for value in (0, 1)]
    gap = sides[1].mean(0) - sides[0].mean(0) if all(map(len, sides)) else np.full(4, np.nan)
    return Leakage(
        label=label,
        rows=int((all_labels >= 0).sum()),
        balance=float((all_labels == 1).sum() / (all_labels >= 0).sum()),
        length_difference=float(gap[2]),
        first_minus_second=float(gap[3]),
        majority=majority,
        length_only=accuracy(_lengths, HistGradientBoostingClassifier(max_iter=50, random_state=0)),
        bag_of_words=accuracy(_words, LogisticRegression(C=0.1, max_iter=200)),
    )


def describe(store, options: RowOptions, seed: int = 0) -> list[str]:
    """Lines for a person, before training: what the rows hold and drop, and what gives their labels away."""
    counts = Rows(store, 'train', options, seed).plan(0).counts
    text = counts['tokens'] + counts['truncated_tokens'] + counts.get('lone_tokens', 0)
    share = lambda tokens: f'{tokens:,} ({tokens / text:.1%})'
    name = '+'.join(options.labels) or 'ordered'
    line = (
        f'{name} rows: {counts["rows"]:,} an epoch, {counts["tokens"]:,} tokens of text; truncation drops '
        f'{share(counts["truncated_tokens"])}, lone last sentences {share(counts.get("lone_tokens", 0))}'
    )
    return [line] + [str(report(store, options, label, seed)) for label in options.labels]
