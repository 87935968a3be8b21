"""When does each objective learn what? The probes of `analysis.probe` at every checkpoint that runs have kept.

    python -m analysis.over_training --sweep=runs/nsp_vs_sop --task=bigram_shift,sentence_length

Runs keep the last `config.train.keep_checkpoints`. The layer is the one that dev chooses at each step. Writes
over_training.{md,csv} and figures/over_training to --out.
"""

from typing import Any

import numpy as np
from absl import flags
from etils import epath
from rich.progress import track

from analysis import features, layer_plots, page, probe, probe_table
from analysis.probing import Profile
from bertx import results
from bertx.errors import BadInput
from experiments import cli

Found = dict[str, dict[str, dict[int, dict[int, Profile]]]]  # task -> arm -> step -> seed


def steps_in_common(folders: dict[str, dict[int, str]]) -> list[int]:
    """Steps of which every run has a checkpoint."""
    found = [set(features.steps_of(folder)) for runs in folders.values() for folder in runs.values()]
    steps = sorted(set.intersection(*found)) if found else []
    if len(steps) < 2:
        raise BadInput(
            f'the runs share checkpoints at steps {steps}; two or more would do (config.train.keep_checkpoints)'
        )
    return steps


def measure(s: probe.Settings, wanted, folders: dict[str, dict[int, str]], steps: list[int]) -> Found:
    found: Found = {task.name: {arm: {step: {} for step in steps} for arm in folders} for task in wanted}
    jobs = [(arm, seed, step) for arm, runs in folders.items() for seed in runs for step in steps]
    for arm, seed, step in track(jobs, 'checkpoints', console=cli.console):
        model = features.at_step(folders[arm][seed], step)
        for task in wanted:
            found[task.name][arm][step][seed] = s.measure(model, task, control=False)
    return found


def main() -> int:
    f: Any = flags.FLAGS
    s, _, folders = probe.settings()
    steps = steps_in_common(folders)
    wanted = probe.tasks(f.task, f.data, f.source, f.sentences, f.examples)
    found = measure(s, wanted, folders, steps)
    rows = [['task', 'arm', 'step', 'layer', 'accuracy', 'low', 'high', 'seeds']]
    panels: dict[str, Any] = {}
    for task, by_arm in found.items():
        curves = {}
        for arm, by_step in by_arm.items():
            layers = {step: probe_table.chosen(runs) for step, runs in by_step.items()}
            curves[arm] = np.array(
                [[by_step[step][seed].accuracy[layers[step]] for step in steps] for seed in folders[arm]]
            )
            for step, runs in by_step.items():
                e = probe_table.estimate(runs, layers[step])
                numbers = [f'{x:.4f}' for x in (e.value, e.low, e.high)]
                rows.append([task, arm, str(step), str(layers[step]), *numbers, str(e.runs)])
        panels[task] = curves, {}
    note = 'accuracy at the layer that dev chose at that step; band: 95 % t interval over seeds'
    layer_plots.curves(panels, s.out / 'figures' / 'over_training', note, xlabel='step', ticks=steps)
    results.write_atomically(epath.Path(s.out / 'over_training.md'), page.markdown(rows))
    results.write_atomically(epath.Path(s.out / 'over_training.csv'), '\n'.join(','.join(row) for row in rows) + '\n')
    print(page.markdown(rows))
    return cli.DONE


if __name__ == '__main__':
    probe.define_flags()
    cli.run(main, required=())
