"""The tables and figures of a sweep, from its finished runs.

    python -m experiments.report --workdir=runs/nsp_vs_sop

Writes results.csv, table.md, table.csv, table.tex and figures/*.png into the sweep's folder and prints the table; a few
seconds. Another arm to compare with: --baseline=nsp.
"""

from collections.abc import Sequence

from absl import flags
from etils import epath
from rich.console import Console

from analysis import plots
from bertx import results, sweep, tables
from bertx.errors import BadInput
from bertx.latex import latex
from bertx.results import RunFolder
from bertx.table import Table
from experiments import cli

WIDTH = 160  # of the table in a pipe or a file, where no terminal tells


def write(workdir, folders: Sequence[RunFolder], baseline: str | None = None, split: str = 'test') -> Table:
    """Tables and figures of these runs, in their order; prints the table. Replaces what an earlier call wrote."""
    workdir = epath.Path(workdir)
    table = tables.make(folders, baseline, split)
    texts = {'table.md': table.markdown(), 'table.csv': table.csv(), 'table.tex': latex(table)}
    texts['results.csv'] = results.csv_text(results.COLUMNS, results.rows(folders))
    for name, text in texts.items():
        results.write_atomically(workdir / name, text)
    if table.cells:
        plots.learning_curves(folders, workdir / 'figures' / 'learning_curves.png')
        plots.matrix(table, workdir / 'figures' / 'matrix.png')
        plots.differences(table, workdir / 'figures' / 'differences.png')
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    console.print(table)
    return table


def main() -> int:
    workdir = epath.Path(cli.workdir())
    folders = sweep.runs_of(workdir)
    if not any(folder.done for folder in folders):
        raise BadInput(f'none of the {len(folders)} runs in {workdir} has finished')
    write(workdir, folders, flags.FLAGS.baseline, flags.FLAGS.split)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('baseline', None, 'The arm that the others are compared with; the first one by default.')
    flags.DEFINE_string('split', 'test', 'The split whose results are shown.')
    cli.run(main, required=('workdir',))
