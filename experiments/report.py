"""The tables and figures of a sweep, from its finished runs.

    python -m experiments.report --workdir=runs/nsp_vs_sop
    python -m experiments.report --workdir=runs/nsp_vs_sop --compare=nsp,sop

Writes results.csv, table.{md,csv,tex,json}, figures/*.{png,svg} and report.html, one page that needs no network, into
the sweep's folder and prints the table; half a minute at most. Another arm to compare with: --baseline=nsp. --compare
prints two arms beside each other in its place, and writes comparison.{md,csv,json} too. Where the sweep has published
figures, contrasts.md has them beside ours. --all writes a section of RESULTS.md for each sweep in the folder.
"""

from collections.abc import Callable, Sequence
from typing import Any

from absl import flags
from etils import epath
from rich.console import Console
from rich.markdown import Markdown

from analysis.report import compute, event_files, forest, plots, sweep_page
from bertx import results, sweep
from bertx.errors import BadInput
from bertx.report import comparison, published, tables
from bertx.report.latex import latex
from bertx.report.table import Table
from bertx.results import RunFolder
from experiments import cli, results_page

WIDTH = 160  # of the table in a pipe or a file, where no terminal tells
FIGURES = {
    'Differences': (forest.differences, 'differences'),
    'Arms by tasks': (plots.matrix, 'matrix'),
    'Learning curves': (None, 'learning_curves'),
    'Compute against score': (compute.scores, 'compute'),
}


def write(
    workdir,
    folders: Sequence[RunFolder],
    baseline: str | None = None,
    split: str = 'test',
    compare: Sequence[str] = (),
) -> Table:
    """Tables, figures and page of these runs, in their order; prints the table, or the comparison of two arms.

    Replaces what an earlier call wrote. Raises BadInput on unknown arms or an unknown split.
    """
    workdir = epath.Path(workdir)
    table = tables.make(folders, baseline, split)
    texts = {'md': table.markdown(), 'csv': table.csv(), 'tex': latex(table), 'json': table.json()}
    texts = {f'table.{kind}': text for kind, text in texts.items()}
    texts['results.csv'] = results.csv_text(results.COLUMNS, results.rows(folders))
    compared = comparison.compare(folders, compare[0], compare[1], split) if compare else None
    if compared:
        texts |= {'comparison.md': compared.markdown(), 'comparison.json': compared.table.json()}
        texts['comparison.csv'] = compared.table.csv()
    for name, text in texts.items():
        results.write_atomically(workdir / name, text)
    if table.cells:
        _page(workdir, folders, table, compared)
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    console.print(Markdown(compared.markdown()) if compared else table)
    if found := published.recorded(workdir):
        text = published.report(found, folders, split)
        results.write_atomically(workdir / 'contrasts.md', text)
        console.print("the paper's contrasts", Markdown(text))
    return table


def _page(workdir, folders, table, compared) -> None:
    """Figures, and report.html with them."""
    place = lambda name: workdir / 'figures' / f'{name}.svg'
    for draw, name in FIGURES.values():
        draw(table, place(name)) if draw else plots.learning_curves(folders, place(name))
    if compared:
        forest.comparison(compared, place('comparison'))
    recorded = workdir / 'sweep.json'
    about = results.read_json(recorded) if recorded.exists() else {}
    figures = {title: place(name) for title, (_, name) in FIGURES.items()}
    both = (compared, place('comparison')) if compared else None
    title, config = about.get('sweep', workdir.name), about.get('config', table.arms[0].config)
    sweep_page.write(workdir / 'report.html', title, config, table, folders, figures, both)


def main(
    baseline: str | None = None,
    split: str = 'test',
    compare: Sequence[str] = (),
    tensorboard: bool = False,
    all: bool = False,  # noqa: A002 - the flag's name
) -> int:
    workdir = epath.Path(cli.workdir())
    if all:
        results_page.write(workdir, epath.Path('RESULTS.md'))
        return cli.DONE
    if compare and len(compare) != 2:
        raise BadInput(f'--compare={",".join(compare)}: two arms would do, as in --compare=nsp,sop')
    folders = sweep.runs_of(workdir)
    if not any(folder.done for folder in folders):
        raise BadInput(f'none of the {len(folders)} runs in {workdir} has finished')
    write(workdir, folders, baseline, split, compare)
    if tensorboard:
        event_files.write(workdir / 'tensorboard', folders)
    return cli.DONE


if __name__ == '__main__':
    flags.DEFINE_string('baseline', None, 'The arm that the others are compared with; the first one by default.')
    flags.DEFINE_string('split', 'test', 'The split whose results are shown.')
    flags.DEFINE_list('compare', [], 'Two arms: the first less the second on every task.')
    flags.DEFINE_bool('all', False, 'Write RESULTS.md, of all sweeps whose workdirs lie in --workdir.')
    flags.DEFINE_bool('tensorboard', False, "Write the runs' curves as TensorBoard event files too.")
    names = ('baseline', 'split', 'compare', 'tensorboard', 'all')
    values: Callable[[], Any] = lambda: {name: flags.FLAGS[name].value for name in names}
    cli.run(lambda: main(**values()), required=('workdir',))
