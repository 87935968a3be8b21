"""What a sweep takes beside its steps alone: 16 runs, four learning rates x four seeds, of the main job's NSP arm.

    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python tests/sweep_cost.py [STEPS] [TOGETHER]

The variable is what a command sets by itself. STEPS of each run, 200 by default; TOGETHER: as --vmap_runs, 1 by
default. Prints the number of training steps that were compiled, and last the ratio: wall time of the 16 runs,
compilation apart but with all that surrounds the steps (data, initial state, log, validation on 256 rows, checkpoint,
evaluation on 512), over 16 x STEPS times the time of a step on a batch that is always the same. Runs and such steps
take turns.
"""

import contextlib
import pathlib
import statistics
import sys
import tempfile
import time

from absl import flags
from etils import epath

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
flags.FLAGS.mark_as_parsed()  # grain asks absl for a flag

from bertx import benchmark, parallel, sweep, train  # noqa: E402
from bertx.scheduling import engine  # noqa: E402
from bertx.sweep import arm, prod, seeds  # noqa: E402
from configs.sweeps import nsp_vs_sop  # noqa: E402

RATES = (1e-3, 1.5e-3, 2e-3, 3e-3)


@contextlib.contextmanager
def silent(*_):
    yield lambda *_: None


def main(workdir: epath.Path, steps: int = 200, together: int = 1) -> None:
    config = nsp_vs_sop.get_config()
    config.train.update(steps=steps, validate_every=steps, checkpoint_every=steps)
    config.evaluation.update(tasks=('mlm',), validation_rows=256, test_rows=512)
    config.evaluation.refit.tasks = ()
    one = arm('nsp', objectives={'mlm': {}, 'nsp': {}})
    rates = [{'optimizer.learning_rate': rate} for rate in RATES]
    compiles = sweep.plan(config, prod(one, [{'seed': seed} for seed in range(100, 100 + together)]), workdir / 'first')
    planned = sweep.plan(config, prod(one, rates, seeds(4)), workdir)
    alone = benchmark.Training(planned[0].run, planned[0].store, parallel.mesh_of(config.train))
    size = max(together, 4)
    groups = [planned[n : n + size] for n in range(0, len(planned), size)]
    seconds, step_s = 0.0, []
    for group in [compiles, *groups]:
        begun = time.perf_counter()
        worker = engine.Engine(silent)
        if together > 1:
            worker.in_groups(group, together)
        assert not worker(group), 'a run failed'
        seconds += (time.perf_counter() - begun) * (group is not compiles)
        step_s += [1 / rate for rate in benchmark.turns({'step': alone}, rounds=1)['step']]
    steps_s = len(planned) * steps * statistics.mean(step_s)
    print(f'{len(planned)} runs, {train.compilations()} training steps compiled, {together} runs in a program')
    print(f'{seconds:.1f} s, of which steps alone {steps_s:.1f} s; ratio {seconds / steps_s:.3f}')


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as folder:
        main(epath.Path(folder), *map(int, sys.argv[1:]))
