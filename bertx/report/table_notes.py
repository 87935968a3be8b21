"""What stands below a table: how its figures were made, what its signs mean, and what is missing."""

import math

from bertx.report.arms import DEV, DOWNSTREAM, METRIC, Column, metric_of, place
from bertx.report.power import POWER, detectable
from bertx.report.table import ABSENT, ALPHA, FAILED, MARK, Table
from bertx.results import RunFolder, read_json

MARKED = f'{MARK}: p < {ALPHA} after Holm and after max-|t|'  # bertx/report/stats.py, bertx/report/max_t.py
FEW_SEEDS = 5  # MultiBERTs (arXiv:2106.16163) advises at least 5 pretraining seeds for a claim about an objective


def about_cells(table: Table) -> list[str]:
    """What the figures, the marks and the columns are."""
    if not table.cells:
        finished = any(arm.runs for arm in table.arms)
        return ['nothing was measured' if finished else 'no run has finished', *_downstream(table)]
    scores = [cell.score for cell in table.cells.values()]
    runs = {score.runs for score in scores}
    seeds = str(max(runs)) if len(runs) == 1 else f'{min(runs)} to {max(runs)}'
    sizes = {task: cell.score.examples for (_, (task, _)), cell in table.cells.items()}
    examples = ', '.join(f'{task} {n:,}' for task, n in sizes.items())
    methods = ' or '.join(dict.fromkeys(score.method for score in scores))
    metrics = ' or '.join(dict.fromkeys(_metric(table, column) for column in table.columns))
    dev = [head.startswith(DEV) for _, head in table.columns]
    split = 'validation' if all(dev) else table.split
    notes = [
        f'{metrics} on the {split} split, with 95 % intervals over seeds and examples together ({methods}); '
        f'seeds: {seeds}; examples: {examples}'
    ]
    if any(dev):
        notes.append(
            f'{DEV.strip()}: on the validation split, for want of labels on test; checkpoints and settings were chosen '
            'there too, so these figures are too high'
        )
    if 1 in runs:
        notes.append('one run: an interval over examples only; it says nothing of other seeds, so it gets no mark')
    if min(runs) < FEW_SEEDS:
        notes.append(f'exploratory: fewer than {FEW_SEEDS} seeds')
    compared = {key: cell.difference for key, cell in table.cells.items() if cell.difference}
    tested = [key for key in compared if not math.isnan(table.cells[key].p)]
    if compared:
        notes.append(
            f'Δ {table.baseline}: difference to {table.baseline} on the same examples, runs paired by seed (unpaired '
            f'where no seed is shared); {MARKED} over {len(tested)} comparisons'
        )
    notes.append(f'bold: the best of its column, and what is not significantly worse (p ≥ {ALPHA}, uncorrected)')
    least: dict[str, float] = {}
    for key in tested:
        if (found := detectable(compared[key])) > 0:  # 0: no spread at all, hence unknown
            title = table.title(key[1])
            least[title] = max(least.get(title, 0.0), found)
    if least:
        notes.append(
            f'true differences found with {100 * POWER:.0f} % power (p < {ALPHA}, uncorrected) from: '
            + ', '.join(f'{title} {value:.3f}' for title, value in least.items())
        )
    if any(head == 'refit' for _, head in table.columns):
        notes.append(
            'refit: a fresh head on the frozen encoder, fitted alike for every arm: compare arms here; '
            f'own: the head that the arm itself trained, {ABSENT} where it has none'
        )
    causal = [arm.name for arm in table.arms if 'clm' in arm.config.get('objectives', {})]
    if causal and ('mlm', 'refit') in table.columns:
        notes.append(
            f'{", ".join(causal)}: a causal encoder, which sees what is to the left; MLM, where both sides are asked '
            'for, is a use that it was not trained for'
        )
    kinds = {kind for kind, _ in table.references.values()}
    notes += _downstream(table)
    meaning = {
        'unigram': 'the most frequent training token everywhere', 'chance': 'a coin',
        'majority': 'of downstream tasks, the most frequent label, the mean, no entity or no answer',
    }  # fmt: skip
    if said := '; '.join(f'{kind}: {text}' for kind, text in meaning.items() if kind in kinds):
        notes.append(said)
    return notes


def _downstream(table: Table) -> list[str]:
    """What downstream figures are, and how many of their runs failed."""
    notes = []
    for column in [column for column in table.columns if column[1] in DOWNSTREAM]:
        metric, at = _metric(table, column), place(column, table.split)
        values = [v for arm in table.arms for result in arm.results.values() for v in result['values']]
        mine = [v for v in values if (v['task'], v['head'], v['split'], v['metric']) == (*at, metric)]
        seeds = sorted({v.get('fine_tuning_seeds', 1) for v in mine})
        rates = sorted({f'{v["learning_rate"]:g}' for v in mine if 'learning_rate' in v})
        chosen = f'; learning rate {" or ".join(rates)}' if rates else ''
        notes.append(
            f'{table.title(column)}: {metric}, fine-tuning seeds a run: {" or ".join(map(str, seeds))}{chosen}'
        )
    found = [
        folder.read('downstream.json') or folder.result or {} for arm in table.arms for folder in arm.runs.values()
    ]
    count = lambda key: sum(x if isinstance(x := result.get(key, 0), int) else bool(x) for result in found)
    # a fine-tuning run of its own says what collapsed, if it stopped too
    stopped = count('failed') + sum('collapsed' in (f.result or {}) for arm in table.arms for f in arm.failed)
    if notes or stopped:
        notes.append(
            f'fine-tuning runs that failed: {stopped} stopped; {count("collapsed")} say the same of every example, and '
            'are in the figures'
        )
    reasons = dict.fromkeys(reason for result in found for reason in result.get('reasons', {}).values())
    notes += [f'{FAILED} fine-tuning: {" ".join(reason.split())[:200]}' for reason in reasons]
    return notes


def _metric(table: Table, column: Column) -> str:
    """What the column shows."""
    found = (metric_of(r.get('values', ()), column, table.split) for arm in table.arms for r in arm.results.values())
    return next(filter(None, found), METRIC)


def about_runs(table: Table, folders: list[RunFolder]) -> list[str]:
    """What was trained, from which code, and what is missing."""
    finished = {name for name, _ in table.cells}
    against = {column for name, column in table.cells if name == table.baseline}
    apart = dict.fromkeys(
        name
        for (name, column), cell in table.cells.items()
        if name != table.baseline and column in against and not cell.difference
    )
    notes = []
    if apart:
        notes.append(f'measured on other examples than {table.baseline}, so not compared: {", ".join(apart)}')
    if finished and table.baseline not in finished:
        notes.append(f'no run of the baseline {table.baseline} has finished: nothing is compared')
    notes += _agreed('steps a run', table, lambda arm: {f'{result["step"]:,}' for result in arm.results.values()})
    notes += _agreed('tokens a run', table, lambda arm: {f'{result["tokens"]:,}' for result in arm.results.values()})
    notes += _agreed('learning rate', table, lambda arm: {str(arm.config.get('optimizer', {}).get('learning_rate'))})
    notes += _tuned(folders)
    records = [folder.read('provenance.json') for arm in table.arms for folder in arm.runs.values()]
    records = [each for record in records for each in (record, *record.get('resumed', []))]
    commits = dict.fromkeys(
        f'{record["git_commit"]:.10}'
        + ' with uncommitted changes' * bool(record.get('git_diff') or record.get('git_untracked'))
        for record in records
        if record.get('git_commit')
    )
    if commits:
        made = 'made of runs from different commits' if len(commits) > 1 else 'commit'
        notes.append(f'{made}: {", ".join(commits)}')
    for folder in (folder for arm in table.arms for folder in arm.failed):
        reason = ' '.join(str((folder.result or {}).get('reason')).split())
        notes.append(f'{FAILED} {folder.path.name} failed: {reason[:200]}')
    unfinished = [folder.path.name for folder in folders if folder.result is None]
    if unfinished:
        notes.append(f'{len(unfinished)} not finished: {", ".join(unfinished)}')
    return notes


def _tuned(folders: list[RunFolder]) -> list[str]:
    """What `config.tune` chose for each arm, of what."""
    workdirs = {folder.path.parent.parent for folder in folders}
    notes = []
    for file in (workdir / 'tune.json' for workdir in workdirs):
        if file.exists():
            found = read_json(file)
            said = (
                f'{arm} {tried["chosen"]:g} of {", ".join(f"{float(value):g}" for value in tried["tried"])}'
                + ', an end of the range' * tried['at the edge']
                for arm, tried in found['arms'].items()
            )
            seeds = ', '.join(map(str, found['seeds']))
            notes.append(
                f'{found["key"]}, chosen by {found["metric"]} on validation data with seeds {seeds}: {"; ".join(said)}'
            )
    return notes


def _agreed(what: str, table: Table, values) -> list[str]:
    """One value where all arms agree, else each arm's."""
    found = {arm.name: ' or '.join(sorted(values(arm))) for arm in table.arms if arm.runs}
    if len(set(found.values())) > 1:
        return [f'{what}: ' + ', '.join(f'{name} {value}' for name, value in found.items())]
    return [f'{what}: {value}' for value in set(found.values())]
