"""When does each objective learn what? The probes of `analysis.probe` at every checkpoint that runs have kept.

    python -m analysis.over_training --sweep=runs/nsp_vs_sop --task=bigram_shift,sentence_length

Runs keep the last `config.train.keep_checkpoints`; arms are compared at the steps that all have kept. The layer is the
one that dev chooses at each step. Beside the arms an untrained encoder, and the most frequent label. Writes
over_training.{md,csv}, figures/over_training and over_training.html to --out.
"""

from typing import Any

import numpy as np
from absl import flags
from rich.progress import track

from analysis import probe
from analysis.probing import features, tables
from analysis.probing.profiles import Profile
from analysis.report import layer_plots, page
from bertx.errors import BadInput
from bertx.pretrained import Pretrained
from experiments import cli

Found = dict[str, dict[str, dict[int, dict[int, Profile]]]]  # task -> arm -> step -> seed
Fresh = dict[str, dict[str, Profile]]  # task -> arm


def steps_in_common(folders: dict[str, dict[int, str]]) -> list[int]:
    """Steps of which every run has a checkpoint."""
    found = [set(features.steps_of(folder)) for runs in folders.values() for folder in runs.values()]
    steps = sorted(set.intersection(*found)) if found else []
    if len(steps) < 2:
        raise BadInput(
            f'the runs share checkpoints at steps {steps}; two or more would do (config.train.keep_checkpoints)'
        )
    return steps


def measure(s: probe.Settings, wanted, folders: dict[str, dict[int, str]], steps: list[int]) -> tuple[Found, Fresh]:
    found: Found = {task.name: {arm: {step: {} for step in steps} for arm in folders} for task in wanted}
    fresh: Fresh = {task.name: {} for task in wanted}
    jobs = [(arm, seed, step) for arm, runs in folders.items() for seed in runs for step in steps]
    for arm, seed, step in track(jobs, 'checkpoints', console=cli.console):
        model = Pretrained.of_run(folders[arm][seed], step)
        for task in wanted:
            found[task.name][arm][step][seed] = s.measure(model, task, control=False)
            if arm not in fresh[task.name]:
                fresh[task.name][arm] = s.measure(features.untrained(model), task, control=False)
    return found, fresh


def main() -> int:
    f: Any = flags.FLAGS
    s, groups, folders = probe.settings()
    steps = steps_in_common(folders)
    wanted = probe.asked()
    found, fresh = measure(s, wanted, folders, steps)
    baseline = f.baseline or next(iter(folders))
    rows = [['task', 'arm', 'step', 'layer', 'accuracy', 'low', 'high', 'seeds', f'less {baseline}']]
    panels: dict[str, Any] = {}
    for task, by_arm in found.items():
        curves = {}
        chosen = {(arm, step): tables.chosen(runs) for arm, by in by_arm.items() for step, runs in by.items()}
        for arm, by_step in by_arm.items():
            accuracy = lambda seed, step: by_step[step][seed].accuracy[chosen[arm, step]]  # noqa: B023 - called at once
            curves[arm] = np.array([[accuracy(seed, step) for step in steps] for seed in folders[arm]])
            for step, runs in by_step.items():
                e = tables.estimate(runs, chosen[arm, step])
                layers = chosen[arm, step], chosen[baseline, step]
                less = None if arm == baseline else tables.compare(runs, by_arm[baseline][step], *layers)
                numbers = [f'{x:.4f}' for x in (e.value, e.low, e.high)]
                said = page.interval(less, '+') if less else ''
                rows.append([task, arm, str(step), str(layers[0]), *numbers, str(e.runs), said])
        one = fresh[task][baseline]
        majority = one.majority_G.sum() / one.weight_G.sum()
        level = {arm: p.accuracy[p.best] for arm, p in fresh[task].items()}
        for arm, p in fresh[task].items():
            rows.append([task, f'untrained {arm}', '0', str(p.best), f'{level[arm]:.4f}', *[''] * 4])
        rows.append([task, 'majority', '', '', f'{majority:.4f}', *[''] * 4])
        untrained = {arm: np.full(len(steps), x) for arm, x in level.items()}
        panels[task] = curves, {'untrained encoder': untrained, 'majority': np.full(len(steps), majority)}
    bands = layer_plots.meaning([len(arm.runs) for arm in groups])
    note = f'accuracy at the layer that dev chose at that step; {bands}'
    picture = layer_plots.curves(panels, s.out / 'figures' / 'over_training', note, xlabel='step', ticks=steps)
    sections = [page.Section('Over training', note, rows=rows, pictures=[picture])]
    title = f'Probes over training, {f.sweep or f.checkpoint}'
    page.finish(s.out, 'over_training', title, page.markdown(rows), sections, html='over_training')
    page.write_csv(s.out / 'over_training.csv', rows)
    return cli.DONE


if __name__ == '__main__':
    probe.define_flags()
    cli.run(main, required=())
