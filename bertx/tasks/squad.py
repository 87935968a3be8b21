"""Exact match and F1 of answers, by the definitions of SQuAD's evaluation (Rajpurkar et al. 2016, 2018)."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_PUNCTUATION = str.maketrans('', '', string.punctuation)
_ARTICLES = re.compile(r'\b(a|an|the)\b', re.UNICODE)


def normalized(text: str) -> str:
    """Lower case, without ASCII punctuation, then without articles, one blank between words."""
    return ' '.join(_ARTICLES.sub(' ', text.lower().translate(_PUNCTUATION)).split())


def exact(gold: str, predicted: str) -> float:
    return float(normalized(gold) == normalized(predicted))


def f1(gold: str, predicted: str) -> float:
    """Of the bags of words. Where one side has none: whether both have none (2.0's rule; 1.1 would give 0 for both
    empty, which no 1.1 answer is)."""
    a, b = normalized(gold).split(), normalized(predicted).split()
    if not a or not b:
        return float(a == b)
    same = sum((Counter(a) & Counter(b)).values())
    return 2 * same / (len(a) + len(b))


def best(golds: Sequence[str], predicted: str) -> tuple[float, float]:
    """(exact match, F1) against the nearest of the answers; without answers the right one is ''.

    As in 2.0's script, answers that are empty once normalised do not count, unless all are.
    """
    golds = [gold for gold in golds if normalized(gold)] or ['']
    return max(exact(gold, predicted) for gold in golds), max(f1(gold, predicted) for gold in golds)


def best_threshold(no_answer: Sequence[float], scores: Sequence[float], answerable: Sequence[bool]) -> float:
    """The threshold above which a question's no-answer score makes its answer '', for the highest mean score.

    no_answer: how much more likely no answer is; scores: of the answer as it stands. Equal means: the lowest one.
    """
    order = sorted(range(len(no_answer)), key=lambda i: no_answer[i])
    value = float(sum(not has for has in answerable))  # all answers withheld
    found = (value, min(no_answer, default=0.0) - 1.0)
    for n, i in enumerate(order):
        value += scores[i] if answerable[i] else -1 + scores[i]
        if n + 1 < len(order) and no_answer[order[n + 1]] == no_answer[i]:
            continue  # equal ones go together
        if value > found[0] + 1e-12:
            found = (value, float(no_answer[i]))
    return found[1]
