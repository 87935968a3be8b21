"""A paper's analysis of a checkpoint, and what the paper printed.

    python -m analysis.presets --preset=hewitt2019 --checkpoint=FOLDER --data=DATA/ud_english_ewt

jawahar2019   sentence tasks by layer, [CLS] and an MLP   (with --data those of a treebank; without it the plain ones)
              with --task=chunks and --data of spans: their pictures too (`analysis.scatter`)
tenney2019    edge probes of POS and relations over prefixes of layers: expected layer
clark2019     attention heads and dependency relations, a probe on all heads
hewitt2019    structural probe
voita2020     description length of POS
objectives    the layer profile of every arm of --sweep side by side, with differences
"""

from typing import Any

from absl import flags
from etils import epath

from analysis import attention, mdl, probe, scatter, structural
from analysis.probing.annotated_tasks import CONLLU, SPANS
from analysis.report import page, published
from bertx import results
from bertx.errors import BadInput, one_of
from experiments import cli

SENTENCE_TASKS = [name for name, (_, _, unit) in CONLLU.items() if unit == 'sentences']


def jawahar() -> int:
    """With pictures where spans are among the tasks."""
    code = probe.main()
    return scatter.main() if set(flags.FLAGS.task) & set(SPANS) else code


# preset -> (what runs it, what it needs, flags that it sets)
PRESETS: dict[str, tuple[Any, tuple[str, ...], dict[str, Any]]] = {
    'jawahar2019': (jawahar, ('checkpoint',), {'probe': 'mlp', 'sentence_pool': 'cls'}),
    'tenney2019': (probe.main, ('checkpoint', 'data'), {'probe': 'edge', 'task': ['pos', 'dep'], 'seeds': 1}),
    'clark2019': (attention.main, ('checkpoint', 'data'), {}),
    'hewitt2019': (structural.main, ('checkpoint', 'data'), {}),
    'voita2020': (mdl.main, ('checkpoint', 'data'), {'task': ['pos']}),
    'objectives': (probe.main, ('sweep',), {}),
}


def main() -> int:
    f: Any = flags.FLAGS
    one_of('--preset', f.preset, PRESETS)
    run, needs, settings = PRESETS[f.preset]
    for name in needs:
        if not f[name].value:
            raise BadInput(f'--preset={f.preset} wants --{name}')
    f.out = f.out or (None if f.sweep else f'probes/{f.preset}')
    for name, value in settings.items():
        if not f[name].present:
            f[name].value = value
    if f.preset == 'jawahar2019' and f.data and not f.task:
        f.task = SENTENCE_TASKS
    code = run()
    if f.preset in published.TABLES:
        out = page.folder(f.out)
        note, rows = published.beside(f.preset, out)
        text = f'Published: {note}\n\n{page.markdown(rows)}'
        results.write_atomically(epath.Path(out / 'published.md'), text)
        print(text)
    return code


if __name__ == '__main__':
    probe.define_flags()
    flags.DEFINE_string('preset', None, f'One of {", ".join(PRESETS)}.')
    flags.DEFINE_string('text', None, 'A text for the attention viewer.')
    scatter.define_method()
    cli.run(main, required=('preset',))
