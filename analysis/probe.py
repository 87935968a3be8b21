"""What each layer knows: probes of every run of a sweep, or of any checkpoint, as table, figures and one HTML page.

    python -m analysis.probe --sweep=runs/nsp_vs_sop
    python -m analysis.probe --checkpoint=FOLDER --task=pos,dep --data=DATA/ud_english_ewt --out=probes/minilm

Without --data the tasks need no annotation: they are made from --source (the State of the Union addresses). FOLDER is a
run, or a Hugging Face folder; several with commas between are compared. Writes table.{md,csv}, layers.csv, figures/ and
report.html to --out (of a sweep: DIR/probes). What is measured is kept in --out/cache, so that the same command goes on
where it was stopped.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
from absl import flags
from etils import epath
from rich.console import Console
from rich.progress import track

from analysis.probing import annotated_tasks, conllu, edge, features, plain_tasks, tables
from analysis.probing.annotated_tasks import CONLLU, SPANS
from analysis.probing.engine import Options
from analysis.probing.profiles import KINDS, Pools, Profile, measure
from analysis.probing.tasks import Task
from analysis.report import edge_bars, layer_plots, page
from bertx import results, sweep
from bertx.errors import BadInput, one_of
from bertx.pretrained import Pretrained
from bertx.report.arms import Arm, arms
from bertx.results import RunFolder
from experiments import cli

PLAIN_SENTENCES = 1200  # to train a task without annotation on: all tasks of a sweep's nine runs take minutes
WIDTH = 160  # of the table in a pipe or a file, where no terminal tells


@dataclasses.dataclass(frozen=True)
class Settings:
    """How everything is measured."""

    out: Path
    kind: str
    pools: Pools
    options: Options

    def measure(self, model: Pretrained, task: Task, control: bool = True) -> Profile:
        return measure(model, task, self.pools, self.out / 'cache', self.kind, self.options, control)


def tasks(names: list[str], data: str | None, source: str, sentences: int, examples: int) -> list[Task]:
    """The tasks of --task; by default all that the text can be asked."""
    if data is None:
        names = names or [*plain_tasks.PLAIN, *(plain_tasks.SOTU if source == 'sotu' else {})]
        if annotated := [name for name in names if name in (*CONLLU, *SPANS)]:
            raise BadInput(
                f'--task={annotated[0]} wants --data, annotated files; without: {", ".join(plain_tasks.PLAIN)}'
            )
        texts = plain_tasks.read(source)
        return [plain_tasks.make(name, source, *texts, sentences, sentences // 3) for name in names]
    names, found = names or list(CONLLU), []
    for read, mine in (
        (conllu.read, [name for name in names if name not in SPANS]),
        (conllu.read_spans, [name for name in names if name in SPANS]),
    ):
        text = annotated_tasks.treebank(data, sentences, sentences // 3, read) if mine else ()
        found += [annotated_tasks.make(name, *text) for name in mine]
    return [task.limited(examples, examples // 2) for task in found]


def asked() -> list[Task]:
    """The tasks that the flags name."""
    f: Any = flags.FLAGS
    few = f.data is None and not f['sentences'].present
    return tasks(f.task, f.data, f.source, PLAIN_SENTENCES if few else f.sentences, f.examples)


def models(checkpoints: str) -> tuple[list[Arm], dict[str, dict[int, str]]]:
    """Arms of one checkpoint each, and arm -> seed -> folder."""
    folders = [part.strip().rstrip('/') for part in checkpoints.split(',')]
    for folder in folders:
        if not epath.Path(folder).exists():
            raise BadInput(f'--checkpoint={folder}: there is no such folder; a run or a Hugging Face folder would do')
    names = [folder.rsplit('/', 1)[-1] for folder in folders]
    names = names if len(set(names)) == len(names) else folders
    found = [Arm(name, {0: RunFolder(folder)}) for name, folder in zip(names, folders, strict=True)]
    return found, {name: {0: folder} for name, folder in zip(names, folders, strict=True)}


def measure_all(s: Settings, wanted: list[Task], folders: dict[str, dict[int, str]]):
    """(task -> arm -> seed -> profile, task -> arm -> profile of its untrained encoder)."""
    found: dict[str, dict[str, dict[int, Profile]]] = {task.name: {arm: {} for arm in folders} for task in wanted}
    fresh: dict[str, dict[str, Profile]] = {task.name: {} for task in wanted}
    # The same one for arms of one encoder, whose profile then comes from the cache.
    first = {arm: next(iter(runs.values())) for arm, runs in folders.items()}
    untrained = functools.lru_cache(1)(lambda arm: features.untrained(Pretrained.load(first[arm])))
    jobs = [(arm, seed, task) for arm, runs in folders.items() for seed in (None, *runs) for task in wanted]
    for arm, seed, task in track(jobs, 'probes', console=cli.console):
        if seed is not None:
            found[task.name][arm][seed] = s.measure(Pretrained.load(folders[arm][seed]), task)
        else:
            fresh[task.name][arm] = s.measure(untrained(arm), task, control=False)
    return found, fresh


def panels(found, fresh):
    """What `layer_plots.curves` wants: each task's arms and controls, and bands over examples for single runs."""
    drawn, bands = {}, {}
    for task, by_arm in found.items():
        accuracy = {arm: np.stack([p.accuracy for p in runs.values()]) for arm, runs in by_arm.items()}
        first = next(p for runs in by_arm.values() for p in runs.values())
        majority = np.full(max(x.shape[1] for x in accuracy.values()), first.majority_G.sum() / first.weight_G.sum())
        controls: dict[str, Any] = {'untrained encoder': {arm: p.accuracy for arm, p in fresh[task].items()}}
        if len(first.control_LG):
            control = lambda p: p.control_LG.sum(1) / p.weight_G.sum()
            mean = {arm: np.mean([control(p) for p in runs.values()], axis=0) for arm, runs in by_arm.items()}
            controls['control task'] = mean
        drawn[task] = accuracy, controls | {'majority': majority}
        for arm, runs in by_arm.items():
            if len(runs) == 1:
                e = [tables.estimate(runs, layer) for layer in range(accuracy[arm].shape[1])]
                bands[task, arm] = np.array([x.low for x in e]), np.array([x.high for x in e])
    return drawn, bands


def gravities(found) -> dict[str, edge.Gravity]:
    """'task, arm' -> where edge probes find it, whose layer l is a mix of layers 0 to l; over an arm's runs."""
    places = {}
    for task, by_arm in found.items():
        for arm, runs in by_arm.items():
            stack = lambda name: np.stack([getattr(p, name) for p in runs.values()])  # noqa: B023 - called at once
            hit_RLG, dev_RL, mix_RL = map(stack, ('hit_LG', 'dev_L', 'mix_L'))
            weight_G = next(iter(runs.values())).weight_G
            places[f'{task}, {arm}'] = edge.gravity(hit_RLG, weight_G, dev_RL.mean(0), mix_L=mix_RL.mean(0))
    return places


def edge_note(name: str, g: edge.Gravity) -> str:
    """A line."""
    known = g.expected == g.expected
    said = f'{g.expected:.2f} [{g.low:.2f}, {g.high:.2f}]' if known else 'not said: within noise'
    return f'{name}: expected layer {said}; headroom {page.interval(g.headroom, "+")}; centre of gravity {g.centre:.2f}'


def unseen(task: Task) -> str:
    """A line on labels that training has not; '' where there are none."""
    dev, test = (int(((task.label_N < 0) & (task.split_N == n)).sum()) for n in (1, 2))
    said = f'{task.name}: labels that training has not: {dev} dev examples left out, {test} test examples missed'
    return said if dev + test else ''


def write(s: Settings, title: str, groups: list[Arm], wanted: list[Task], found, fresh, baseline: str | None) -> None:
    """Table, figures and page; prints the table."""
    table = tables.by_task(found, groups, fresh, baseline)
    kinds = {task.name: task.kind for task in wanted}
    notes = ['kinds: ' + ', '.join(f'{name} {kind}' for name, kind in kinds.items()), tables.depth(found, kinds)]
    places = gravities(found) if s.kind == 'edge' else {}
    notes += [*map(unseen, wanted), *(edge_note(*x) for x in places.items())]
    table = dataclasses.replace(table, notes=(*table.notes, *filter(None, notes)))
    layer = 'layers 0 to {}' if s.kind == 'edge' else 'layer {}'
    by_layer = {name: tables.by_layer(name, found[name], groups, fresh[name], baseline, layer) for name in found}
    out = epath.Path(s.out)
    out.mkdir(parents=True, exist_ok=True)
    results.write_atomically(out / 'table.md', table.markdown())
    results.write_atomically(out / 'table.csv', table.csv())
    lines = [t.csv().split('\n', 1) for t in by_layer.values()]
    results.write_atomically(out / 'layers.csv', lines[0][0] + '\n' + ''.join(body for _, body in lines))
    drawn, bands = panels(found, fresh)
    note = layer_plots.meaning([len(arm.runs) for arm in groups], 'over test sentences')
    picture = layer_plots.curves(drawn, s.out / 'figures' / 'layers', note, bands, xlabel=layer.format('l'))
    norms = {arm: np.stack([p.norm_L for p in runs.values()]) for arm, runs in next(iter(found.values())).items()}
    said = 'mean length of the vectors, before they are standardised'
    norm_picture = layer_plots.curves({'norm': (norms, {})}, s.out / 'figures' / 'norms', said, ylabel='length')
    deepest = max(x.shape[1] for x in norms.values())
    lengths = [[name, *(f'{v:.2f}' for v in x.mean(0)), *[''] * (deepest - x.shape[1])] for name, x in norms.items()]
    lengths = [['arm', *(f'layer {n}' for n in range(deepest))], *lengths]
    sections = [page.Section('Best layers', table=table), page.Section('Layers', pictures=[picture])]
    if places:
        rows = [['task', 'arm', 'expected layer', 'low', 'high', 'centre of gravity']]
        for name, g in places.items():
            numbers = ('' if x != x else f'{x:.2f}' for x in (g.expected, g.low, g.high, g.centre))
            rows.append([*name.split(', ', 1), *numbers])
        page.write_csv(s.out / 'edge.csv', rows)
        bars = edge_bars.draw(places, s.out / 'figures' / 'edge')
        sections.append(page.Section('Expected layers', pictures=[bars]))
    sections += [page.Section(name.replace('_', ' '), table=t) for name, t in by_layer.items()]
    sections += [page.Section('Norms', f'{said}, the mean over runs', rows=lengths, pictures=[norm_picture])]
    page.write(s.out / 'report.html', title, sections)
    console = Console()
    (console if console.is_terminal else Console(width=WIDTH)).print(table)


def settings() -> tuple[Settings, list[Arm], dict[str, dict[int, str]]]:
    """What the flags say: how to measure, the arms, and arm -> seed -> folder."""
    f: Any = flags.FLAGS
    if bool(f.sweep) == bool(f.checkpoint):
        raise BadInput('give --sweep=DIR, or --checkpoint=FOLDER, and not both')
    one_of('--probe', f.probe, KINDS)
    if f.sweep and not (epath.Path(f.sweep) / 'sweep.json').exists():
        raise BadInput(f'--sweep={f.sweep} holds no sweep.json; the folder of a sweep would do')
    if f.sweep and '://' in f.sweep and not f.out:
        raise BadInput(f'--sweep={f.sweep}: give --out, too, a folder on this machine')
    if f.sweep:
        groups = [arm for arm in arms(sweep.runs_of(epath.Path(f.sweep))) if arm.runs]
        if not groups:
            raise BadInput(f'--sweep={f.sweep}: none of its runs has finished')
        folders = {arm.name: {seed: str(run.path) for seed, run in arm.runs.items()} for arm in groups}
    else:
        groups, folders = models(f.checkpoint)
    if f.baseline:
        one_of('--baseline', f.baseline, folders)
    options = Options(seeds=f.seeds, penalties=penalties(f.penalties)).check()
    out = page.folder(f.out or (f'{f.sweep}/probes' if f.sweep else 'probes'))
    return Settings(out, f.probe, Pools(f.word_pool, f.sentence_pool).check(), options), groups, folders


def penalties(given: list[str]) -> tuple[float, ...]:
    try:
        return tuple(float(x) for x in given)
    except ValueError:
        raise BadInput(f'--penalties={",".join(given)}: numbers with commas between would do') from None


def main() -> int:
    f: Any = flags.FLAGS
    s, groups, folders = settings()
    wanted = asked()
    found, fresh = measure_all(s, wanted, folders)
    write(s, f'Probes of {f.sweep or f.checkpoint}', groups, wanted, found, fresh, f.baseline)
    cli.console.print(f'{s.out}/report.html')
    return cli.DONE


def define_flags() -> None:
    flags.DEFINE_string('sweep', None, 'Folder of a finished sweep.')
    flags.DEFINE_string('checkpoint', None, 'Folders of runs or Hugging Face models, commas between.')
    flags.DEFINE_list('task', [], 'Names of tasks; all by default.')
    flags.DEFINE_string('data', None, 'CoNLL-U or BIO files: a folder, or files with commas between.')
    flags.DEFINE_string('source', 'sotu', 'Text for tasks without annotation, as config.data.source.')
    flags.DEFINE_string('out', None, 'Where everything is written; DIR/probes for a sweep.')
    flags.DEFINE_string('baseline', None, 'The arm that the others are compared with; the first one by default.')
    flags.DEFINE_string('probe', 'linear', 'linear, mlp or edge.')
    flags.DEFINE_string('word_pool', 'mean', 'first, mean or last: the piece that stands for a word.')
    flags.DEFINE_string('sentence_pool', 'sentence', 'cls, or sentence: the mean over its pieces.')
    said = 'Training sentences at most, a third of dev and test; of tasks without annotation {:,} where none is given.'
    flags.DEFINE_integer('sentences', 2000, said.format(PLAIN_SENTENCES), lower_bound=3)
    flags.DEFINE_integer(
        'examples', 20_000, 'Training examples (words, arcs) at most; as many of dev and test together.', lower_bound=3
    )
    flags.DEFINE_integer('seeds', 3, 'Of the probes.')
    flags.DEFINE_list('penalties', ['1e-5', '1e-4', '1e-3', '1e-2'], 'Of the squared weights; dev chooses.')


if __name__ == '__main__':
    define_flags()
    cli.run(main, required=())
