"""One task asked of one model: accuracy of each layer on test examples, beside its controls."""

import dataclasses
import functools
import hashlib
import io
import json
from pathlib import Path

import numpy as np
from etils import epath

from analysis.probing import engine, features
from analysis.probing.engine import Examples, Fitted, Options
from analysis.probing.probes import Classifier, Edge
from analysis.probing.tasks import Task
from bertx.errors import one_of
from bertx.pretrained import Pretrained
from bertx.results import write_atomically

FORMAT = 3  # of what is kept of a profile
KINDS = ('linear', 'mlp', 'edge')
HIDDEN = 64  # of an MLP probe; SentEval tunes over 50, 100 and 200


@dataclasses.dataclass(frozen=True)
class Profile:
    """Sums over each test group (sentence or document) of what was hit, the mean over probe seeds."""

    weight_G: np.ndarray  # examples of each group
    hit_LG: np.ndarray
    control_LG: np.ndarray  # of the control task; empty where it was not asked
    majority_G: np.ndarray
    dev_L: np.ndarray  # nats: chooses the layer
    norm_L: np.ndarray  # mean length of the vectors, before they are standardised
    group_G: np.ndarray
    mix_L: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))  # of an edge probe that reads all layers
    lost: int = 0  # examples without a vector

    @property
    def best(self) -> int:
        """The layer that dev chose."""
        return int(self.dev_L.argmin())

    @property
    def accuracy(self) -> np.ndarray:
        """[L]"""
        return self.hit_LG.sum(1) / self.weight_G.sum()


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A task's examples over the rows of a model's features."""

    task: Task  # without the examples that have no vector
    x_LND: np.ndarray  # standardised
    rows: np.ndarray  # `at` of the task, in rows
    norm_L: np.ndarray
    lost: int = 0  # examples that have no vector

    def examples(self, split: int, label_N: np.ndarray | None = None) -> Examples:
        label_N = self.task.label_N if label_N is None else label_N
        mine = (self.task.split_N == split) & ((label_N >= 0) | (split == 2))
        return Examples(self.rows[mine], label_N[mine])


@dataclasses.dataclass(frozen=True)
class Pools:
    """Which pieces stand for a word, and what for a sentence."""

    words: str = 'mean'
    sentences: str = 'sentence'

    def check(self) -> 'Pools':
        for flag, value, known in (
            ('word', self.words, features.WORDS),
            ('sentence', self.sentences, features.SENTENCES),
        ):
            one_of(f'--{flag}_pool', value, known)
        return self


def prepare(model: Pretrained, task: Task, pools: Pools, cache: Path) -> Prepared:
    """The vectors that the task reads. Tasks over one annotated text share its cache."""
    plain = task.unit == 'sentences' and not task.annotated
    found = features.compute(model, task.corpus, '' if plain else pools.words, cache)
    row_of = found.rows['words' if task.unit == 'words' else pools.sentences]
    rows = np.where(task.at >= 0, row_of[task.at], -1)
    there = np.asarray(((rows >= 0) | (task.at < 0)).reshape(len(rows), -1).all(1))
    task, rows, lost = task.take(there).check(), rows[there], int((~there).sum())
    used = np.unique(rows[rows >= 0])  # vectors that no example reads stay on disk
    rows = np.where(rows >= 0, np.searchsorted(used, rows), -1)
    x_LND = np.stack([x_ND[used] for x_ND in found.states_LND])
    norm_L = np.linalg.norm(x_LND, axis=-1).mean(1)
    train = rows[task.split_N == 0]
    return Prepared(task, engine.standardised(x_LND, np.unique(train[train >= 0])), rows, norm_L, lost)


def make_probe(kind: str, task: Task) -> Classifier | Edge:
    if kind == 'edge':
        return Edge(len(task.classes), task.at.shape[1])
    return Classifier(len(task.classes), 2 if task.at.ndim == 3 else task.at.shape[1], HIDDEN if kind == 'mlp' else 0)


def spanned(prepared: Prepared, kind: str) -> Prepared:
    """For an edge probe words are spans of one word; for the others a span is its first and its last word."""
    rows = prepared.rows
    if kind == 'edge' and rows.ndim == 2:
        rows = rows[..., None]
    elif kind != 'edge' and rows.ndim == 3:
        last = (rows >= 0).sum(-1, keepdims=True) - 1
        rows = np.concatenate([rows[..., :1], np.take_along_axis(rows, last, -1)], -1)[:, 0]
    return dataclasses.replace(prepared, rows=rows)


def fit(prepared: Prepared, kind: str, options: Options, label_N=None, counts=None) -> Fitted:
    """With the task's labels, or others."""
    rows = spanned(prepared, kind)
    train, dev = rows.examples(0, label_N), rows.examples(1, label_N)
    return engine.fit(make_probe(kind, prepared.task), prepared.x_LND, train, dev, options, counts)


def measure(
    model: Pretrained, task: Task, pools: Pools, cache: Path, kind: str, options: Options, control: bool = True
) -> Profile:
    """From the cache where it was measured before. control: where it asks about words; no two sentences are of a type
    that a probe could memorise."""
    control &= task.unit == 'words'
    labels = hashlib.sha256(b''.join(np.ascontiguousarray(x).tobytes() for x in (task.at, task.label_N, task.split_N)))
    key = [FORMAT, model.content, model.tokenizer.fingerprint, task.corpus.fingerprint, labels.hexdigest(),
           features.longest(model), dataclasses.asdict(pools), kind,
           dataclasses.asdict(options), control, HIDDEN]  # fmt: skip
    file = cache / f'{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]}-{task.name}.npz'
    if file.exists():
        with np.load(file) as arrays:
            return Profile(**dict(arrays, lost=int(arrays['lost'])))
    profile = _measure(prepare(model, task, pools, cache), kind, options, control)
    content = io.BytesIO()
    np.savez(content, **dataclasses.asdict(profile))
    write_atomically(epath.Path(file), content.getvalue())
    return profile


def _measure(p: Prepared, kind: str, options: Options, control: bool) -> Profile:
    test = p.task.split_N == 2
    groups, group_N = np.unique(p.task.group_N[test], return_inverse=True)
    by_group = functools.partial(np.bincount, group_N, minlength=len(groups))

    def hits(fitted: Fitted, label_N) -> np.ndarray:
        hit_LN = fitted.scores(p.x_LND, spanned(p, kind).examples(2, label_N))['hit'].mean(1)
        return np.stack([by_group(weights=hit_N) for hit_N in hit_LN])

    fitted = fit(p, kind, options)
    probe, mix_L = fitted.probe, np.zeros(0)
    if isinstance(probe, Edge):
        mix_L = np.mean([probe.mix({'mix': s_L}, len(s_L) - 1) for s_L in fitted.params['mix'][-1]], axis=0)
    random_N = p.task.control()
    empty = np.zeros((0, len(groups)))
    return Profile(
        by_group().astype(float), hits(fitted, p.task.label_N),
        hits(fit(p, kind, options, random_N), random_N) if control else empty,
        by_group(weights=p.task.majority()[test].astype(float)), fitted.dev_LT.mean(1), p.norm_L, groups, mix_L, p.lost,
    )  # fmt: skip
