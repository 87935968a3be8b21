import json
import re
import sys

import pytest
from report_cases import MLM, REFIT, measured, run, stacked, usual

from analysis.report import event_files, forest
from bertx.errors import BadInput
from bertx.report import comparison, power
from experiments import report


def test_every_column_both_arms_have(folders):
    found = comparison.compare(folders, 'sop', 'none')
    assert found.title == 'sop less none' and set(found.cells) == {MLM, REFIT}
    arm, _ = stacked(folders, 'sop', [0, 1, 2], REFIT)
    base, _ = stacked(folders, 'none', [0, 1, 2], REFIT)
    cell = found.cells[REFIT]
    assert cell.difference.value == pytest.approx((arm - base).mean())
    assert cell.mark and cell.p <= cell.p_holm <= 2 * cell.p + 1e-12
    row = dict(zip(found.head, found.rows[list(found.cells).index(REFIT)], strict=True))
    assert re.fullmatch(r'\+0\.\d{3} \[\+0\.\d{3}, \+0\.\d{3}]†', row['difference'])
    assert row['detectable'] == f'{power.detectable(cell.difference):.3f}'
    assert row['seeds to decide'] == f'{power.seeds_to_decide(cell.difference):.0f}'
    assert re.fullmatch(r'\d+%', row["examples' share"]) and row['p'] == f'{cell.p:.3f}'
    assert any('not measured on both arms alike: sop own' in note for note in found.notes)


def test_says_what_is_paired(folders, tmp_path):
    said = comparison.compare(folders, 'sop', 'none').notes[0]
    assert said.startswith('paired: seeds 0, 1, 2 (the same initialisation and order of documents) and test examples')
    assert 'mlm 200' in said and said.endswith('left out of the differences: 3')
    apart = [run(tmp_path / 'b', arm, s, usual(arm, s)) for arm, seeds in (('a', (0, 1)), ('b', (5, 6))) for s in seeds]
    said = comparison.compare(apart, 'a', 'b').notes[0]
    assert 'not paired: seeds, as the arms share none (a: 0, 1; b: 5, 6)' in said and 'seeds 0' not in said


def test_only_the_two_arms_count(folders, tmp_path):
    third = [run(tmp_path, 'third', seed, usual('third', seed), git_commit='ffff') for seed in range(3)]
    with_third = comparison.compare([*folders, *third], 'sop', 'none')
    assert with_third.rows == comparison.compare(folders, 'sop', 'none').rows
    assert 'commit: 0123456789' in with_third.notes
    both = comparison.compare([*folders, *third], 'third', 'none').notes
    assert 'made of runs from different commits: ffff, 0123456789' in both


def test_single_runs_are_not_tested(tmp_path):
    found = comparison.compare([run(tmp_path, arm, 0, usual(arm, 0)) for arm in ('a', 'b')], 'a', 'b')
    assert all(row[4:7] == ['–', '–', '–'] and row[8] == '–' for row in found.rows)
    assert any(note.startswith('one run an arm: no test') for note in found.notes)


def test_bad_input(folders, tmp_path):
    with pytest.raises(BadInput, match="'spo' is unknown; did you mean 'sop'"):
        comparison.compare(folders, 'spo', 'none')
    with pytest.raises(BadInput, match='names one arm twice'):
        comparison.compare(folders, 'sop', 'sop')
    apart = [run(tmp_path / 'b', arm, 0, [measured(c, 0.5, 0)]) for arm, c in (('a', MLM), ('b', REFIT))]
    with pytest.raises(BadInput, match='--compare=a,b: no task on whose test split both were measured'):
        comparison.compare(apart, 'a', 'b')


def test_its_markdown_has_it_all(folders):
    found = comparison.compare(folders, 'sop', 'none')
    text = found.markdown().replace('\\', '')
    assert all(cell in text for row in found.rows for cell in row)
    assert 'paired: seeds 0, 1, 2' in text
    rows = [line for line in found.markdown().splitlines() if line.startswith('|')]
    assert len({len(row) for row in rows}) == 1 and len(rows) == 4


def test_forest_plot(folders, tmp_path):
    found = comparison.compare(folders, 'sop', 'none')
    panel = forest.comparison(found, tmp_path / 'figures' / 'forest.png').axes[0]
    assert [label.get_text() for label in panel.get_yticklabels()] == ['mlm', 'sop refit']
    shown = [text.get_text() for text in panel.texts]
    assert f'{found.cells[REFIT].difference.value:+.3f}†' in shown and 'sop better →' in shown
    assert (tmp_path / 'figures' / 'forest.svg').read_text().startswith('<?xml')


@pytest.fixture
def workdir(folders, tmp_path):
    names = [folder.path.name for folder in folders]
    (tmp_path / 'sweep.json').write_text(json.dumps({'sweep': 'pairs <i>', 'config': {'seed': 0}, 'runs': names}))
    return tmp_path


def test_report_with_a_comparison(workdir, folders, capsys):
    report.write(workdir, folders, compare=('sop', 'none'))
    assert 'sop less none' in capsys.readouterr().out
    content = json.loads((workdir / 'comparison.json').read_text())
    assert content['baseline'] == 'none' and len(content['arms']) == 2
    line = next(c for c in content['cells'] if (c['arm'], c['task'], c['head']) == ('sop', *REFIT))
    assert line['difference'] > 0 and line['p_max_t'] < 0.05 and line['seeds_to_decide'] == 3
    for name in ('comparison.md', 'comparison.csv', 'figures/comparison.png', 'figures/comparison.svg'):
        assert (workdir / name).stat().st_size
    assert 'sop less none' in (workdir / 'report.html').read_text()


def test_the_page_needs_nothing_else(workdir, folders):
    report.write(workdir, folders)
    page = (workdir / 'report.html').read_text()
    assert page.count('<svg') == page.count('</svg>') == 4
    assert '<h1>pairs &lt;i&gt;</h1>' in page and '9 runs: 7 done, 1 failed, 1 not finished' in page
    assert 'loss is\nnan at step 7' in page and 'sop-s4-00000008' in page and '0123456789abcdef' in page
    code = re.sub(r'xmlns(:\w+)?="[^"]*"|<!--.*?-->|<metadata>.*?</metadata>', '', page, flags=re.S)
    assert not re.search(r'https?://|src=|@import|<link|url\((?!#)', code)
    ids = re.findall(r' id="([^"]+)"', page)
    clipped = [name for name in ids if name.startswith('p')]
    assert len(clipped) == len(set(clipped)), 'ids of one figure would be used in another'
    for anchor in re.findall(r'href="#(\w+)"', page.split('<h2', 1)[0]):
        assert anchor in ids


def test_event_files(workdir, folders, monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorboardX', None)
    with pytest.raises(BadInput, match='pip install tensorboardX'):
        event_files.write(workdir / 'tensorboard', folders)
    monkeypatch.undo()
    for _ in range(2):
        event_files.write(report.epath.Path(workdir / 'tensorboard'), folders)
        written = list((workdir / 'tensorboard').glob('*/events*'))
        assert len(written) == len(folders)
    assert b'train/mlm/loss' in next((workdir / 'tensorboard').glob('none*/events*')).read_bytes()
