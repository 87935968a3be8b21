import csv
import io
import json
import re

import numpy as np
import pytest
import scipy.stats
from report_cases import MLM, OWN, REFIT, WEIGHT, N, measured, run, stacked, usual
from rich.console import Console

from bertx import sweep
from bertx.errors import BadInput
from bertx.report import power, stats, tables
from bertx.report.arms import arms
from bertx.report.latex import latex
from bertx.report.table import COLUMNS
from bertx.report.table import OWN as ALONE
from bertx.results import RunFolder
from experiments import cli, report


def printed(table, width):
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_a_cell_is_the_mean_over_seeds_with_its_interval(folders):
    table = tables.make(folders)
    hits, weight = stacked(folders, 'none', range(4), MLM)
    cell = table.cells['none', MLM]
    assert cell.score.value == pytest.approx(np.mean([h.sum() / weight.sum() for h in hits]), rel=1e-12)
    assert cell.score.runs == 4 and cell.score.examples == N
    direct = stats.mean(hits, weight)
    assert (cell.score.low, cell.score.high) == pytest.approx((direct.low, direct.high), rel=1e-12)
    assert cell.difference is None and not cell.mark


def test_differences_pair_the_seeds_that_both_arms_have(folders):
    cell = tables.make(folders).cells['sop', REFIT]
    common = [0, 1, 2]  # 3 failed; the folders of `none` come in another order
    arm, ones = stacked(folders, 'sop', common, REFIT)
    base, _ = stacked(folders, 'none', common, REFIT)
    direct = stats.difference(arm, base, ones)
    assert cell.difference.value == pytest.approx((arm - base).mean(), rel=1e-12)
    assert cell.difference.runs == 3
    assert (cell.difference.low, cell.difference.high, cell.p) == pytest.approx((direct.low, direct.high, direct.p))
    wrong = stats.difference(arm, stacked(folders, 'none', [2, 0, 1], REFIT)[0], ones)
    assert wrong.low != pytest.approx(direct.low)


def test_runs_without_spread_over_examples_give_the_paired_t_test(tmp_path):
    rates = {'none': [0.50, 0.52, 0.55, 0.51], 'sop': [0.53, 0.56, 0.56, 0.53]}
    found = [
        run(tmp_path, arm, seed, [measured(REFIT, rate, seed, constant=True)])
        for arm, values in rates.items()
        for seed, rate in enumerate(values)
    ]
    cell = tables.make(found).cells['sop', REFIT]
    expected = scipy.stats.ttest_rel(rates['sop'], rates['none'])
    interval = expected.confidence_interval()
    assert cell.p == pytest.approx(expected.pvalue, rel=1e-4)  # the stored predictions are float32
    assert (cell.difference.low, cell.difference.high) == pytest.approx((interval.low, interval.high), rel=1e-4)


def test_marks_follow_holm_over_all_cells_of_the_table(tmp_path):
    rng = np.random.default_rng(3)
    one = lambda column, gain, seed: measured(column, 0.5 + gain + rng.normal(0, 0.01), seed, constant=True)
    found = [
        run(tmp_path, arm, seed, [one(REFIT, gain, seed), one(MLM, gain, seed)])
        for arm, gain in (('none', 0), ('a', 0.014), ('b', 0.03), ('c', 0.1), ('d', 0.002))
        for seed in range(5)
    ]
    table = tables.make(found)
    tested = [cell for cell in table.cells.values() if cell.difference]
    assert len(tested) == 8
    largest = 0.0
    for rank, cell in enumerate(sorted(tested, key=lambda cell: cell.p)):
        largest = max(largest, min(1.0, cell.p * (len(tested) - rank)))
        assert cell.p_holm == pytest.approx(largest)
        assert cell.mark == ('†' if max(largest, cell.p_max_t) < 0.05 else '')
    assert any(cell.p < 0.05 and not cell.mark for cell in tested), 'no cell shows what the correction does'
    assert any(cell.mark for cell in tested)


def test_bold_is_the_best_and_what_is_not_significantly_worse(tmp_path):
    rates = {'none': 0.5, 'good': 0.7, 'as good': 0.69}
    noise = np.random.default_rng(5).normal(0, 0.01, (3, 4))
    found = [
        run(tmp_path, arm, seed, [measured(REFIT, rate + noise[i, seed], seed, constant=True)])
        for i, (arm, rate) in enumerate(rates.items())
        for seed in range(4)
    ]
    table = tables.make(found)
    score = np.array([*rates.values()])[:, None] + noise
    assert scipy.stats.ttest_rel(score[0], score[1]).pvalue < 0.05 < scipy.stats.ttest_rel(score[2], score[1]).pvalue
    assert [table.cells[arm, REFIT].best for arm in rates] == [False, True, True]
    assert '**0.' in table.markdown() and r'\textbf{0.' in latex(table)


def test_columns_lines_and_what_an_arm_has_not(folders):
    table = tables.make(folders)
    assert table.columns == [MLM, REFIT, OWN]  # mlm first, though it came second
    assert [table.title(column) for column in table.columns] == ['mlm', 'sop refit', 'sop own']
    assert ('none', OWN) not in table.cells and table.cells['sop', OWN].difference is None
    assert [line.label for line in table.lines] == ['none', 'sop', 'Δ none', 'unigram / chance']
    assert table.lines[0].cells[2].text == '–'
    unigram = stacked(folders, 'none', [0], ('mlm', 'unigram'))
    assert table.references[MLM][1].value == pytest.approx(unigram[0].sum() / unigram[1].sum())
    assert table.references[REFIT][0] == 'chance' and table.references[REFIT][1].value == 0.5


def test_tasks_of_one_arm_alone_share_a_column(tmp_path):
    for name in ('sbo', 'clm'):
        for seed in (0, 1):
            run(tmp_path, name, seed, [*usual(name, seed), measured((name, 'own'), 0.3, seed)])
    table = tables.make([RunFolder(path) for path in sorted((tmp_path / 'runs').iterdir())], 'sbo')
    assert table.printed == [MLM, REFIT, ALONE]
    texts = [line.cells[-1].text for line in table.lines]
    assert re.fullmatch(r'clm 0\.\d{3} \[.*]', texts[0])
    assert any(re.fullmatch(r'sbo 0\.\d{3} \[.*]', text) for text in texts)
    assert {('clm', 'own'), ('sbo', 'own')} <= {column for _, column in table.cells}  # csv has them apart
    assert '| own task' in re.sub(' +', ' ', table.markdown())
    assert latex(table).count('own task') == 1


def test_failed_and_unfinished_runs_are_counted(folders):
    table = tables.make(folders)
    assert table.lines[1].seeds == '3 ✗1'
    notes = '\n'.join(table.notes)
    assert 'sop-s3-00000007 failed: FloatingPointError: loss is nan at step 7' in notes
    assert '1 not finished: sop-s4-00000008' in notes
    assert 'exploratory: fewer than 5 seeds' in notes


def test_an_arm_whose_runs_all_failed_has_a_line(tmp_path):
    found = [run(tmp_path, 'none', 0, usual('none', 0)), run(tmp_path, 'bad', 0, reason='boom')]
    table = tables.make(found)
    line = next(line for line in table.lines if line.label == 'bad')
    assert line.seeds == '0 ✗1' and {s.text for s in line.cells} == {'–'}
    assert 'bad,,,,,,0,' in table.csv()
    notes = tables.make(found, baseline='bad').notes
    assert 'no run of the baseline bad has finished: nothing is compared' in notes


def test_nothing_finished_still_gives_a_table(tmp_path):
    table = tables.make([run(tmp_path, 'none', 0, reason='boom'), run(tmp_path, 'sop', 0)])
    assert 'boom' in table.markdown() and 'boom' in latex(table) and 'none' in printed(table, 80)
    assert tables.make([]).csv().startswith('arm,')


def test_the_notes_tell_the_least_detectable_difference(folders):
    table = tables.make(folders)
    cell = table.cells['sop', REFIT]
    assert f'sop refit {power.detectable(cell.difference):.3f}' in '\n'.join(table.notes)


def test_commits(tmp_path):
    one = [run(tmp_path, 'none', seed, usual('none', seed)) for seed in range(2)]
    assert 'commit: 0123456789' in tables.make(one).notes
    other = run(tmp_path, 'none', 2, usual('none', 2), git_commit='ffff', git_diff=' bertx/train.py | 2 +-')
    notes = tables.make([*one, other]).notes
    assert 'made of runs from different commits: 0123456789, ffff with uncommitted changes' in notes


def test_settings_that_differ_between_arms_are_told(tmp_path):
    found = [
        run(tmp_path, arm, 0, usual(arm, 0), config={'optimizer': {'learning_rate': rate}})
        for arm, rate in (('none', 1e-3), ('sop', 2e-3))
    ]
    assert 'learning rate: none 0.001, sop 0.002' in tables.make(found).notes
    assert 'steps a run: 100' in tables.make(found).notes


def test_what_was_tuned_is_told(tmp_path):
    found = [run(tmp_path, 'none', 0, usual('none', 0))]
    arms = {'none': {'chosen': 0.1, 'tried': {'0.01': 3.0, '0.1': 2.5}, 'at the edge': True}}
    about = {'key': 'optimizer.weight_decay', 'metric': 'loss', 'seeds': [7], 'arms': arms}
    (tmp_path / 'tune.json').write_text(json.dumps(about))
    said = 'optimizer.weight_decay, chosen by loss on validation data with seeds 7: none 0.1 of 0.01, 0.1, an end of'
    assert any(note.startswith(said) for note in tables.make(found).notes)


def test_arms_with_other_token_stores_are_not_compared(tmp_path):
    found = [run(tmp_path, arm, seed, usual(arm, seed), corpus=arm) for arm in ('none', 'sop') for seed in range(2)]
    assert tables.make(found).cells['sop', REFIT].difference is None


def test_a_single_run_gets_no_mark(tmp_path):
    found = [run(tmp_path, 'none', 0, usual('none', 0)), run(tmp_path, 'sop', 0, usual('sop', 1, 0.3))]
    cell = tables.make(found).cells['sop', REFIT]
    assert cell.difference.p < 0.001 and np.isnan(cell.p) and not cell.mark


def test_arms_evaluated_on_other_rows_are_not_compared(tmp_path):
    found = [
        run(tmp_path, arm, seed, usual(arm, seed), config={'rows': {'length': length}})
        for arm, length in (('none', 64), ('long', 128))
        for seed in range(2)
    ]
    table = tables.make(found)
    assert table.cells['long', REFIT].difference is None
    assert 'measured on other examples than none, so not compared: long' in table.notes
    assert not any(table.cells[arm, REFIT].best for arm in ('none', 'long'))


def test_arms_without_a_common_seed_are_compared_unpaired(tmp_path):
    found = [run(tmp_path, 'none', seed, usual('none', seed)) for seed in range(3)]
    found += [run(tmp_path, 'sop', seed, usual('sop', seed, 0.1)) for seed in (5, 6)]
    arm, ones = stacked(found, 'sop', [5, 6], REFIT)
    base, _ = stacked(found, 'none', range(3), REFIT)
    assert tables.make(found).cells['sop', REFIT].p == stats.difference(arm, base, ones, paired=False).p


def test_runs_of_one_name_with_other_settings_are_arms_of_their_own(tmp_path):
    found = [
        run(tmp_path, 'run', seed, usual('run', seed), config={'objectives': {'mlm': {'rate': rate}}, 'train': extra})
        for rate, extra in ((0.15, {'devices': 1}), (0.3, {'devices': 2}))  # devices: changes no number
        for seed in range(2)
    ]
    assert [arm.name for arm in arms(found)] == ['run rate=0.15', 'run rate=0.3']
    again = run(tmp_path, 'run', 0, usual('run', 0), config={'objectives': {'mlm': {'rate': 0.3}}})
    with pytest.raises(BadInput, match="'run rate=0.3' has two runs with seed 0"):
        arms([*found, again])


def test_bad_input_says_what_would_do(folders):
    with pytest.raises(BadInput, match="baseline arm 'spo' is unknown; did you mean 'sop'"):
        tables.make(folders, baseline='spo')
    with pytest.raises(BadInput, match="split 'validation' is unknown; known: test"):
        tables.make(folders, split='validation')
    next((folders[0].path / 'predictions').glob('sop-refit*')).unlink()
    with pytest.raises(BadInput, match='sop-refit-test-accuracy.npz is missing'):
        tables.make(folders)


def test_runs_of_an_arm_must_have_seen_the_same_rows(tmp_path):
    found = [run(tmp_path, 'none', s, [measured(MLM, 0.4, s, np.roll(WEIGHT, s))]) for s in range(2)]
    with pytest.raises(BadInput, match="arm 'none' were evaluated on different rows of mlm"):
        tables.make(found)


def test_another_baseline_turns_the_sign(folders):
    there, back = tables.make(folders), tables.make(folders, baseline='sop')
    assert back.cells['none', REFIT].difference.value == pytest.approx(-there.cells['sop', REFIT].difference.value)


def test_csv_has_full_precision(folders):
    table = tables.make(folders)
    read = list(csv.DictReader(io.StringIO(table.csv())))
    assert tuple(read[0]) == COLUMNS
    line = next(line for line in read if (line['arm'], line['task'], line['head']) == ('sop', *REFIT))
    cell = table.cells['sop', REFIT]
    numbers = (cell.score.value, cell.score.low, cell.difference.high, cell.p_holm)
    assert tuple(float(line[key]) for key in ('mean', 'low', 'diff_high', 'p_holm')) == numbers
    assert (line['n_seeds'], line['n_examples'], line['mark'], line['method']) == ('3', '200', '†', 'two-way t')
    assert not any('nan' in value for line in read for value in line.values())


def test_json_is_what_the_csv_is(folders):
    table = tables.make(folders)
    content = json.loads(table.json())
    read = list(csv.DictReader(io.StringIO(table.csv())))
    assert [{k: '' if v is None else str(v) for k, v in cell.items()} for cell in content['cells']] == read
    assert content['arms'][1]['failed'] == ['sop-s3-00000007'] and len(content['arms'][0]['runs']) == 4
    assert (content['split'], content['baseline'], tuple(content['notes'])) == ('test', 'none', table.notes)
    cell = table.cells['sop', REFIT]
    line = next(c for c in content['cells'] if (c['arm'], c['head']) == ('sop', 'refit'))
    assert (line['diff_error'], line['diff_df']) == (cell.difference.standard_error, cell.difference.df)
    assert line['seeds_to_decide'] == power.seeds_to_decide(cell.difference)


def test_markdown_is_a_table_and_aligned(folders):
    lines = tables.make(folders).markdown().splitlines()
    rows = [line for line in lines if line.startswith('|')]
    assert len({len(row) for row in rows}) == 1 and len(rows) == 6
    assert re.search(r'\| {2,}\+0\.\d{3} \[\+0\.\d{3}, \+0\.\d{3}\]† \|', rows[4])
    assert re.search(r'\*\*0\.\d{3}\*\* \[0\.\d{3}, 0\.\d{3}\]', rows[3])


def test_markdown_escapes(tmp_path):
    table = tables.make([run(tmp_path, 'a|b*', 0, usual('a', 0)), run(tmp_path, 'x', 0, reason='<b> [x](y)')])
    assert r'| a\|b\*' in table.markdown() and r'\<b\> \[x\](y)' in table.markdown()


def test_latex_escapes_and_balances(tmp_path):
    odd = r'50%_of $x$ & #1 {a} \b ~^<>" ü 中'
    found = [run(tmp_path, arm, s, usual(arm, s, own=True)) for arm in ('none', odd) for s in range(2)]
    text = latex(tables.make([*found, run(tmp_path, odd, 2, reason='100% & more_')], split='test'))
    assert r'50\%\_of \$x\$ \& \#1 \{a\} \textbackslash{}b \textasciitilde{}\textasciicircum{}$<$$>$' in text
    assert "'' ü [U+4E2D]" in text and r'100\% \& more\_' in text
    code = re.sub(r'\\[\\&%$#_{}]', '', re.sub(r'(?m)^%.*$', '', text))
    assert code.count('{') == code.count('}') and code.count('$') % 2 == 0
    body = text[text.index(r'\toprule') : text.index(r'\bottomrule')]
    rows = [line.removesuffix(r'\\') for line in body.splitlines() if line.endswith(r'\\')]
    spans = [len(re.findall(r'(?<!\\)&', row)) + 1 for row in rows]
    assert spans == [4, 5, 5, 5, 5, 5]  # the first has two columns under sop
    assert text.isascii() or set(text) - set(map(chr, range(128))) == {'ü'}


@pytest.mark.parametrize('width', (60, 80, 120, 200))
def test_the_terminal_shows_every_number_whatever_its_width(folders, width):
    table = tables.make(folders)
    text = printed(table, width)
    assert all(len(line) <= width for line in text.splitlines()) and '…' not in text
    for line in table.lines:
        for shown in line.cells:
            assert shown.text in text
    rows = [line for line in text.split('accuracy on')[0].splitlines() if ']' in line]
    ends = {found.end() for line in rows for found in re.finditer(r'\]', line)}
    assert len(ends) <= len(table.columns)  # as a mark or the lack of one moves no number


def test_report_writes_everything_and_again(folders, tmp_path, capsys):
    (tmp_path / 'sweep.json').write_text(json.dumps({'runs': [folder.path.name for folder in folders]}))
    found = sweep.runs_of(RunFolder(tmp_path).path)
    assert [folder.path for folder in found] == [folder.path for folder in folders]
    report.write(tmp_path, found)
    names = ['results.csv', 'report.html', *(f'table.{kind}' for kind in ('md', 'csv', 'tex', 'json'))]
    figures = ('matrix', 'learning_curves', 'differences', 'compute')
    names += [f'figures/{name}.{kind}' for name in figures for kind in ('png', 'svg')]
    before = {name: (tmp_path / name).read_bytes() for name in names}
    assert 'Δ none' in capsys.readouterr().out
    report.write(tmp_path, found)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert 'failed' in (tmp_path / 'results.csv').read_text()
    assert not list(tmp_path.rglob('*.partial'))
    assert 'Δ sop' in (report.write(tmp_path, found, baseline='sop')).markdown()


def test_report_refuses_what_is_no_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(cli, 'workdir', lambda: str(tmp_path))
    with pytest.raises(BadInput, match='holds no sweep.json'):
        report.main()
    failed = run(tmp_path, 'none', 0, reason='boom')
    (tmp_path / 'sweep.json').write_text(json.dumps({'runs': [failed.path.name]}))
    with pytest.raises(BadInput, match='none of the 1 runs in .* has finished'):
        report.main()
    report.write(tmp_path, [RunFolder(p) for p in (tmp_path / 'runs').iterdir()])  # as a sweep does at its end
    assert 'boom' in (tmp_path / 'table.md').read_text()


def compared(tmp_path, column, rows, evaluation, objectives=({}, {})):
    """The difference on the column of two arms whose configs have these in turn."""
    found = []
    for arm, rate, r, o in zip('ab', (0.5, 0.7), rows, objectives, strict=True):
        config = {'rows': r, 'evaluation': evaluation, 'objectives': o}
        found += [run(tmp_path, arm, seed, [measured(column, rate, seed)], config=config) for seed in range(3)]
    return tables.make(found).cells['b', column]


def test_rows_of_another_format_are_compared_where_evaluation_has_one_of_its_own(tmp_path):
    rows = {'format': 'segment_pair', 'length': 64}, {'format': 'full_sentences', 'length': 64}
    assert compared(tmp_path / '1', MLM, rows, {'tasks': ['mlm']}).difference is None
    own = {'tasks': ['mlm'], 'format': 'segment_pair'}
    assert compared(tmp_path / '2', MLM, rows, own).difference.value == pytest.approx(0.2, abs=0.05)
    longer = rows[0], rows[1] | {'length': 128}
    assert compared(tmp_path / '3', MLM, longer, own).difference is None


def test_own_tasks_are_compared_where_their_examples_are_the_same(tmp_path):
    rows, evaluation = ({}, {}), {'tasks': ['mlm']}
    alike = {'sbo': {}}, {'sbo': {}}
    assert compared(tmp_path / '1', ('sbo', 'own'), rows, evaluation, alike).difference
    elsewhere = {'mine:gone': {}}, {'mine:gone': {}}  # of a module that is not here
    assert compared(tmp_path / '4', ('mine:gone', 'own'), rows, evaluation, elsewhere).difference
    apart = {'sbo': {}}, {'sbo': {'select': {'rate': 0.3}}}
    assert compared(tmp_path / '2', ('sbo', 'own'), rows, evaluation, apart).difference is None
    fakes = compared(tmp_path / '3', ('electra', 'own'), rows, evaluation, ({'electra': {}}, {'electra': {}}))
    assert fakes.difference is None and not fakes.best, 'each generator makes fakes of its own'
