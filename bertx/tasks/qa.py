"""Answers as stretches of a context (SQuAD 1.1 and 2.0): where they start and end, over windows of long contexts."""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from bertx.errors import BadInput
from bertx.tasks import squad
from bertx.tasks.base import Inputs, Record, Scores, Task
from bertx.text.tokenizer import Tokenizer

QUESTION = 64  # pieces of a question that are kept (google-research/bert run_squad.py max_query_length)


@dataclasses.dataclass(frozen=True)
class Answer:
    """The best stretch, and by how much no answer is more likely than it."""

    text: str
    no_answer: float


def located(context: str, text: str, start: int) -> int | None:
    """Where the answer stands: at its offset, else at the nearest place that has the same text; None: nowhere."""
    if text and start >= 0 and context.startswith(text, start):
        return start
    places = [i for i in range(len(context)) if context.startswith(text, i)] if text and text in context else []
    return min(places, key=lambda i: abs(i - start), default=None)


class QA(Task):
    """settings: no_answer (2.0), doc_stride (pieces between two windows), the latter google-research/bert's 128."""

    roles = ('question', 'context', 'answers')
    targets = {'start': (np.int32, 0), 'end': (np.int32, 0)}
    metrics = ('f1', 'exact')
    classes = 2
    threshold = 0.0

    def record(self, values: Record, counts: Counter) -> Record:
        try:
            texts = [str(text) for text in values['answers']['text']]
            starts = [int(start) for start in values['answers']['answer_start']]
            answers = list(zip(texts, starts, strict=True))
        except (KeyError, TypeError, ValueError):
            raise BadInput(
                f"{self.key}.columns.answers: SQuAD's 'text' and 'answer_start' lists, of one length, would do"
            ) from None
        for role in ('context', 'question'):
            if not isinstance(values[role], str):
                raise BadInput(f'{self.key}: example {values["id"]} has {values[role]!r} as its {role}; text would do')
        context, found = values['context'], None
        counts['empty contexts, kept'] += not context.strip()
        counts['questions without an answer'] += not texts
        for text, start in answers:
            place = located(context, text, start)
            found = (place, place + len(text)) if found is None and place is not None else found
            counts['answers not at their offset, found elsewhere'] += place not in (start, None)
            counts['answers that the context does not hold'] += place is None
        return values | {'answers': texts, 'span': found}

    def usable(self, record: Record) -> bool:
        """With an answer that stands in the context, or, in 2.0, with none."""
        return record['span'] is not None or self.settings['no_answer'] and not record['answers']

    def group(self, record: Record) -> Hashable:
        return record['context']

    def gold(self, record: Record) -> Any:
        return record['answers']

    def encode(self, records: Sequence[Record], tokenizer: Tokenizer, length: int, split: str) -> Inputs:
        """[CLS] question [SEP] window [SEP]. Where a window lacks the answer, it starts and ends at [CLS]."""
        stride, counts = self.settings['doc_stride'], self.counts.setdefault(split, Counter())
        contexts = list(dict.fromkeys(record['context'] for record in records))
        pieces = dict(zip(contexts, tokenizer.spans(contexts), strict=True))
        rows, of = [], []
        for i, (record, (question, _)) in enumerate(
            zip(records, tokenizer.encode([record['question'] for record in records]), strict=True)
        ):
            counts[f'questions cut to {QUESTION} pieces'] += len(question) > QUESTION
            question = question[:QUESTION]
            ids, spans = pieces[record['context']]
            room, before = length - len(question) - 3, len(question) + 2
            if room < 1 or stride < 1:
                raise BadInput(f'config.length {length} and {self.key}.doc_stride {stride} leave no room for contexts')
            starts = [0]
            while starts[-1] + room < len(ids):
                starts.append(starts[-1] + min(stride, room))
            counts['windows beyond the first of a context'] += len(starts) - 1
            answer, whole = _pieces_of(record['span'], spans), False
            for at in starts:
                window = ids[at : at + room]
                tokens = np.array([tokenizer.cls_id, *question, tokenizer.sep_id, *window, tokenizer.sep_id], np.int32)
                first, last = 0, 0
                if answer and at <= answer[0] and answer[1] < at + len(window):
                    first, last, whole = answer[0] - at + before, answer[1] - at + before, True
                type_ids = (np.arange(len(tokens)) >= before).astype(np.int32)
                spans_L = np.zeros((len(tokens), 2), np.int64)
                spans_L[before : before + len(window)] = spans[at : at + room]
                rows.append({'tokens': tokens, 'type_ids': type_ids, 'start': first, 'end': last, 'spans': spans_L})
                of.append(i)
            counts['answers that no window holds whole, read as none'] += record['span'] is not None and not whole
        return Inputs(rows, np.array(of))

    def predict(self, outputs, inputs, records):
        """outputs: the best stretch of each window and its score, and the score of [CLS]. As transformers does it, the
        score of no answer is that of the window where it is least."""
        found: dict[int, tuple[float, str]] = {}
        null: dict[int, float] = {}
        for output, row, i in zip(outputs, inputs.rows, inputs.example_N.tolist(), strict=True):
            score, (first, last) = float(output['score']), (int(output['start']), int(output['end']))
            text = records[i]['context'][row['spans'][first, 0] : row['spans'][last, 1]]
            found[i] = max(found.get(i, (-np.inf, '')), (score, text), key=lambda x: x[0])
            null[i] = min(null.get(i, np.inf), float(output['null']))
        return [Answer(found[i][1], null[i] - found[i][0]) for i in range(len(records))]

    def says(self, prediction: Answer) -> str:
        return '' if self.settings['no_answer'] and prediction.no_answer > self.threshold else prediction.text

    def tune(self, records, predictions) -> None:
        if self.settings['no_answer']:
            which = ('exact', 'f1').index(self.metric)  # of what squad.best returns
            scores = [squad.best(r['answers'], p.text)[which] for r, p in zip(records, predictions, strict=True)]
            answerable = [bool(record['answers']) for record in records]
            self.threshold = squad.best_threshold([p.no_answer for p in predictions], scores, answerable)

    def score(self, records, predictions, spread=True) -> Scores:
        pairs = [squad.best(r['answers'], self.says(p)) for r, p in zip(records, predictions, strict=True)]
        exact_N, f1_N = np.array(pairs, float).reshape(-1, 2).T
        one_N, has_N = np.ones(len(pairs)), np.array([bool(record['answers']) for record in records], float)
        scores = {'f1': (f1_N, one_N), 'exact': (exact_N, one_N)}
        if self.settings['no_answer'] and 0 < has_N.sum() < len(has_N):
            scores |= {'f1_answerable': (f1_N * has_N, has_N), 'f1_unanswerable': (f1_N * (1 - has_N), 1 - has_N)}
        return self.ordered(scores)

    def baseline(self, train, records):
        """No answer; for questions that all have one, the whole context."""
        return [Answer('' if self.settings['no_answer'] else record['context'], -np.inf) for record in records]


def _pieces_of(span: tuple[int, int] | None, spans_N2: np.ndarray) -> tuple[int, int] | None:
    """First and last piece that share a character with the span."""
    if span is None:
        return None
    touched = np.flatnonzero((spans_N2[:, 1] > span[0]) & (spans_N2[:, 0] < span[1]))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None
