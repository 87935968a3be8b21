"""Minimum description length: how many bits tell the labels, given the vectors? (Voita & Titov 2020, online code)

    python -m analysis.mdl --checkpoint=FOLDER --task=pos --data=DATA/ud_english_ewt --out=probes/mdl

Training examples are sent in portions: the first at log2 K bits each, every other one by a probe fitted on all before
it. All layers x portions are fitted in one program. Dev chooses penalty and round, and is not charged. Beside each
layer: an untrained encoder and, of tasks about words, the control task. `nats_compat` is the figure as the paper's code
prints it, which adds nats of the later portions to the bits of the first one.
"""

import dataclasses
import math
from typing import Any

import numpy as np
from absl import flags

from analysis import probe
from analysis.probing import features, profiles
from analysis.probing.engine import Options
from analysis.probing.profiles import Pools, Prepared
from analysis.probing.tasks import Task
from analysis.report import layer_plots, page
from bertx.errors import BadInput, one_of
from bertx.pretrained import Pretrained
from experiments import cli

SHARES = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)  # theirs, section 3.2.2
KBIT = 1024  # bits, as theirs


@dataclasses.dataclass(frozen=True)
class Code:
    """Code lengths of the training labels at each layer."""

    bits_L: np.ndarray
    nats_compat_L: np.ndarray
    uniform: float  # bits, at log2 K a label

    @property
    def compression_L(self) -> np.ndarray:  # noqa: N802 - its shape
        return self.uniform / self.bits_L


def portions(examples: int, classes: int) -> np.ndarray:
    """Ends of the portions; those too small for a probe to start with are joined."""
    ends = np.unique(np.maximum(np.round(np.array(SHARES) * examples).astype(int), classes))
    return ends[ends <= examples]


def code_lengths(loss_LTN: np.ndarray, ends: np.ndarray, classes: int) -> Code:
    """loss_LTN: nats of example n, by the probe of layer l that saw the first ends[t] examples."""
    first = ends[0] * math.log2(classes)
    nats_L = sum(loss_LTN[:, t, ends[t] : ends[t + 1]].sum(1) for t in range(len(ends) - 1))
    return Code(first + nats_L / math.log(2), first + nats_L, ends[-1] * math.log2(classes))


def online(prepared: Prepared, kind: str, options: Options, label_N: np.ndarray | None = None) -> Code:
    """Of the training labels in an order that is random but for sentences, which stay together."""
    task, labels = prepared.task, prepared.task.label_N if label_N is None else label_N
    train = np.flatnonzero(task.split_N == 0)
    order = np.random.default_rng(0).permutation(task.group_N.max() + 1)[task.group_N[train]]
    index = np.concatenate([train[np.argsort(order, kind='stable')], np.flatnonzero(task.split_N != 0)])
    shuffled = dataclasses.replace(prepared, task=task.take(index), rows=prepared.rows[index])
    ends = portions(len(train), len(task.classes))
    if len(ends) < 2:
        raise BadInput(f'task {task.name}: {len(train)} training examples are too few to be sent in portions')
    fitted = profiles.fit(shuffled, kind, options, labels[index], counts=ends[:-1])
    loss_LTN = fitted.scores(prepared.x_LND, profiles.spanned(shuffled, kind).examples(0, labels[index]))['loss']
    return code_lengths(loss_LTN, ends, len(task.classes))


def lines(codes: dict[str, Code], task: Task) -> list[list[str]]:
    """A line a layer."""
    code, own = codes[task.name], {'compression': codes[task.name]}
    compared = own | ({'control compression': codes['control']} if 'control' in codes else {})
    rows = [['layer', *(f'{name}, kbit' for name in codes), *compared, 'nats_compat, kbit']]
    for n in range(len(code.bits_L)):
        sizes = [f'{c.bits_L[n] / KBIT:.2f}' for c in codes.values()]
        ratios = [f'{c.compression_L[n]:.2f}' for c in compared.values()]
        rows.append([str(n), *sizes, *ratios, f'{code.nats_compat_L[n] / KBIT:.2f}'])
    return rows


def main() -> int:
    f: Any = flags.FLAGS
    for name in ('sweep', 'baseline', 'seeds'):
        if f[name].present:
            raise BadInput(f'--{name} is not for description lengths: one checkpoint, one order of its examples')
    one_of('--probe', f.probe, profiles.KINDS)
    out, pools = page.folder(f.out or 'probes/mdl'), Pools(f.word_pool, f.sentence_pool).check()
    options = Options(penalties=probe.penalties(f.penalties)).check()
    model = Pretrained.load(f.checkpoint)
    sections, text = [], ''
    for task in probe.asked():
        own, fresh = (profiles.prepare(m, task, pools, out / 'cache') for m in (model, features.untrained(model)))
        codes = {task.name: online(own, f.probe, options)}
        if own.task.unit == 'words':  # sentences have no types to memorise
            codes['control'] = online(own, f.probe, options, own.task.control())
        codes['untrained'] = online(fresh, f.probe, options)
        rows = lines(codes, task)
        count, uniform = (own.task.split_N == 0).sum(), codes[task.name].uniform / KBIT
        note = f'{count:,} labels of {len(task.classes)} classes; {uniform:.1f} kbit at log2 K each'
        arms = {name: code.bits_L[None] / KBIT for name, code in codes.items()}
        picture = layer_plots.curves({task.name: (arms, {})}, out / 'figures' / f'mdl_{task.name}', note, ylabel='kbit')
        sections.append(page.Section(task.name, note, rows=rows, pictures=[picture]))
        page.write_csv(out / f'mdl_{task.name}.csv', rows)
        text += f'{task.name}: {note}\n\n{page.markdown(rows)}\n'
    page.finish(out, 'mdl', f'Description lengths, {f.checkpoint}', text, sections)
    return cli.DONE


if __name__ == '__main__':
    probe.define_flags()
    cli.run(main, required=('checkpoint',))
