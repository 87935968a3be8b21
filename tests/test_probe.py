"""Tables, pictures and the page of probes, from made-up profiles; the command itself on small checkpoints."""

import types

import numpy as np
import pytest
from analysis_cases import model, saved, write_treebank

from analysis import probe
from analysis.probing import plain_tasks, tables
from analysis.probing.engine import Options
from analysis.probing.features import Corpus
from analysis.probing.profiles import Pools, Profile
from analysis.probing.tasks import Example, build
from analysis.report import layer_plots
from bertx.errors import BadInput
from bertx.report.arms import Arm


def profile(accuracy_L, seed, control=0.4, groups=60):
    rng, L = np.random.default_rng(seed), len(accuracy_L)
    accuracy_L1 = np.array(accuracy_L)[:, None]
    hit, other = (rng.binomial(10, p, (L, groups)).astype(float) for p in (accuracy_L1, control))
    majority, dev, norm = np.full(groups, 2.0), 1 - accuracy_L1[:, 0], np.arange(1.0, 1 + L)
    return Profile(np.full(groups, 10.0), hit, other, majority, dev, norm, np.arange(groups))


def task_named(name, kind='syntax'):
    return types.SimpleNamespace(name=name, kind=kind, label_N=np.zeros(3, int), split_N=np.arange(3))


def arms(tmp_path, *names, seeds=3):
    folder = lambda name: types.SimpleNamespace(path=tmp_path / name, read=lambda file: {}, result={})
    return [Arm(name, {seed: folder(f'{name}{seed}') for seed in range(seeds)}) for name in names]


@pytest.fixture
def found():
    """'nsp' knows more of bigram_shift at layer 2 than 'none'; nothing differs in length."""
    tasks = {'sentence_length': {'none': (0.8, 0.6, 0.5), 'nsp': (0.8, 0.6, 0.5)}}
    tasks['bigram_shift'] = {'none': (0.5, 0.6, 0.6), 'nsp': (0.5, 0.6, 0.8)}
    return {
        task: {arm: {seed: profile(curve, 7 * seed + len(arm)) for seed in range(3)} for arm, curve in by_arm.items()}
        for task, by_arm in tasks.items()
    }


def test_the_table_compares_arms_at_the_layer_of_dev(found, tmp_path):
    groups = arms(tmp_path, 'none', 'nsp')
    fresh = {task: dict.fromkeys(('none', 'nsp'), profile((0.5, 0.4, 0.4), 99)) for task in found}
    table = tables.by_task(found, groups, fresh, None)
    shift = table.cells['nsp', ('bigram_shift', tables.BEST)]
    hits = np.concatenate([p.hit_LG[2] for p in found['bigram_shift']['nsp'].values()])
    assert shift.score.value == pytest.approx(hits.sum() / 1800) and shift.score.runs == 3
    assert shift.difference.low > 0.1 and shift.mark and shift.best
    assert not table.cells['nsp', ('sentence_length', tables.BEST)].mark
    text = table.markdown()
    assert 'bigram_shift: layer' in text.replace('\\', '') and 'selectivity +0.4' in text and 'majority 0.200' in text
    s = probe.Settings(tmp_path, 'linear', Pools(), Options())
    wanted = [task_named(task, kind) for task, kind in zip(found, ('surface', 'syntax'), strict=True)]
    probe.write(s, 'Probes', groups, wanted, found, fresh, None)
    page = (tmp_path / 'report.html').read_text()
    assert page.count('data:image/png;base64') == 2 and 'http' not in page
    assert '<td>layer 2</td>' in page.replace('th>', 'td>') and '3.00' in page  # the norms, as numbers
    said = 'surface 0.0, syntax 1.5, surface peaks lower than syntax in 2 of 2 arms'
    assert f'best layer by dev, mean over tasks and arms: {said}' in (tmp_path / 'table.md').read_text()
    assert (tmp_path / 'figures' / 'layers.svg').stat().st_size > 5000
    lines = (tmp_path / 'layers.csv').read_text().splitlines()
    assert sum('bigram_shift,layer 2' in line for line in lines) == 3  # two arms and the untrained encoder
    with pytest.raises(BadInput, match='baseline arm'):
        tables.by_task(found, groups, fresh, 'sop')


def test_other_test_examples_are_not_compared(found):
    runs = found['bigram_shift']
    other = {0: profile((0.5, 0.6, 0.8), 1, groups=50)}
    assert tables.compare(runs['nsp'], other, 2, 2) is None
    assert tables.compare(runs['nsp'], runs['none'], 2, 2).value > 0.1


def test_arms_of_other_examples_have_no_best(found, tmp_path):
    other = {seed: profile((0.5, 0.6, 0.9), seed, groups=50) for seed in range(3)}
    fresh = dict.fromkeys(('none', 'nsp'), profile((0.5, 0.4, 0.4), 99))
    runs = {'none': found['bigram_shift']['none'], 'nsp': other}
    table = tables.by_task({'bigram_shift': runs}, arms(tmp_path, 'none', 'nsp'), {'bigram_shift': fresh}, None)
    assert [cell.difference or cell.best for cell in table.cells.values()] == [False, False]


PAIRS = np.random.default_rng(0).choice(['old', 'young', 'tall', 'small', 'lovely'], (600, 2))
SAID = 'the {0} cat saw a {1} dog near some {0} trees , and then it ran from him .'
TEXTS = [(f'd{n // 20}', SAID.format(*pair).split()) for n, pair in enumerate(PAIRS)]


@pytest.mark.parametrize('name', plain_tasks.PLAIN)
def test_tasks_without_annotation(name):
    rng = np.random.default_rng(0)
    made = list(plain_tasks.PLAIN[name][0](TEXTS, rng))
    assert made and len({label for _, _, label in made}) > (0 if name in ('sentence_length', 'word_content') else 1)
    for i, words, label in made:
        own = TEXTS[i][1]
        changed = words != own
        assert changed == (label in ('shifted', 'replaced', 'inverted')), (words, label)
        if label in ('shifted', 'inverted'):
            assert sorted(words) == sorted(own)
        if label == 'replaced':
            assert sum(a != b for a, b in zip(words, own, strict=True)) == 1


def test_a_sentence_in_which_nothing_can_be_replaced_is_of_no_class():
    odd = [(f'd{n}', f'word{n} more{n} yet{n} all{n} alone .'.split()) for n in range(50)]
    made = list(plain_tasks.odd_man_out([*TEXTS, *odd], np.random.default_rng(0)))
    assert max(i for i, _, _ in made) < len(TEXTS)
    assert 0.4 < np.mean([label == 'replaced' for _, _, label in made]) < 0.6


def test_documents_lie_in_one_split():
    texts = [(f'd{n // 4}', words) for n, (_, words) in enumerate(TEXTS)]  # documents enough for three splits
    task = plain_tasks.make('bigram_shift', 'text:x', texts, [], 300, 60)
    assert max((task.split_N == n).sum() for n in (1, 2)) <= 60
    for group in np.unique(task.group_N):
        assert len(set(task.split_N[task.group_N == group])) == 1
    with pytest.raises(BadInput, match="'bigram_shift'"):
        plain_tasks.make('bigram_shif', 'text:x', TEXTS, [], 300, 60)
    with pytest.raises(BadInput, match='one: all training labels'):
        build('one', 'surface', 'words', Corpus([['a']]), [Example([0], 'x', n, 'a') for n in range(3)], lambda n: n)


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch):
    """Two checkpoints, a treebank, all the way to the page; the second time from the cache."""
    folders = [saved(model(seed), tmp_path / f'm{seed}') for seed in range(2)]
    write_treebank(tmp_path / 'data', train=150, dev=40, test=60)
    s = probe.Settings(tmp_path / 'out', 'linear', Pools(), Options(seeds=1, penalties=(1e-3,)))
    groups, where = probe.models(','.join(folders))
    wanted = probe.tasks(['pos', 'dep'], str(tmp_path / 'data'), 'sotu', 150, 2000)
    found, fresh = probe.measure_all(s, wanted, where)
    probe.write(s, 'Probes', groups, wanted, found, fresh, None)
    assert 'm1' in (tmp_path / 'out' / 'table.md').read_text()
    monkeypatch.setattr('analysis.probing.features._write', None)
    again, _ = probe.measure_all(s, wanted, where)
    np.testing.assert_array_equal(again['pos']['m0'][0].hit_LG, found['pos']['m0'][0].hit_LG)


def test_arms_of_different_depth_stand_in_one_table_and_picture(found, tmp_path, figures, monkeypatch):
    found = {'bigram_shift': found['bigram_shift'] | {'deep': {0: profile((0.5, 0.6, 0.7, 0.9), 3)}}}
    small, large = profile((0.5, 0.4, 0.4), 99), profile((0.5, 0.4, 0.4, 0.4), 98)
    fresh = {'bigram_shift': {'none': small, 'nsp': small, 'deep': large}}
    groups = [*arms(tmp_path, 'none', 'nsp'), *arms(tmp_path, 'deep', seeds=1)]
    table = tables.by_layer('bigram_shift', found['bigram_shift'], groups, fresh['bigram_shift'], None)
    assert [column for name, column in table.cells if name == 'deep'][-1] == ('bigram_shift', 'layer 3')
    assert ('none', ('bigram_shift', 'layer 3')) not in table.cells
    drawn, _ = probe.panels(found, fresh)
    _, controls = drawn['bigram_shift']
    assert [len(x) for x in controls['control task'].values()] == [3, 3, 4]
    layer_plots.curves(drawn, tmp_path / 'x', 'note')
    labels = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert labels == ['none', 'nsp', 'deep', 'untrained encoder', 'control task', 'majority']
    monkeypatch.undo()
    probe.write(
        probe.Settings(tmp_path, 'linear', Pools(), Options()), 'Probes', groups, [task_named('bigram_shift')],
        found, fresh, None,
    )  # fmt: skip
    text = (tmp_path / 'table.md').read_text().replace('\\', '')
    assert '| untrained none |' in text and 'deep: untrained 0.' in text


def test_prefixes_of_layers_are_called_so(found, tmp_path):
    by_arm = found['bigram_shift']
    fresh = dict.fromkeys(by_arm, profile((0.5, 0.4, 0.4), 99))
    table = tables.by_layer('b', by_arm, arms(tmp_path, 'none', 'nsp'), fresh, None, 'layers 0 to {}')
    assert table.title(table.columns[2]) == 'layers 0 to 2'


def test_many_arms_look_different_and_legends_and_notes_fit(tmp_path, figures):
    names = [f'an arm with a long name {n}' for n in range(20)]
    layer_plots.curves({'x': ({name: np.random.rand(2, 4) for name in names}, {})}, tmp_path / 'x', 'a note ' * 40)
    (figure,) = figures
    looks = {(line.get_color(), line.get_marker()) for line in figure.axes[0].lines}
    figure.canvas.draw()
    box = figure.legends[0].get_window_extent()
    assert len(looks) == 20 and box.x0 >= figure.bbox.x0 and box.x1 <= figure.bbox.x1
    assert layer_plots.meaning([2, 1], 'over x') == (
        'line: mean; band of two seeds: their range; band of one run: 95 % over x'
    )


def test_what_cannot_be_probed_is_said_at_once(tmp_path, monkeypatch):
    folder = saved(model(), tmp_path / 'm')
    given = {
        'sweep': None, 'checkpoint': folder, 'baseline': None, 'out': None, 'probe': 'linear', 'seeds': 1,
        'penalties': ['1e-3'], 'word_pool': 'mean', 'sentence_pool': 'cls',
    }  # fmt: skip
    for change, says in (
        ({'probe': 'liner'}, "--probe 'liner' is unknown; did you mean 'linear'"),
        ({'baseline': 'n'}, "--baseline 'n' is unknown"),
        ({'checkpoint': f'{folder}/none'}, 'there is no such folder'),
        ({'checkpoint': None, 'sweep': 'nope'}, '--sweep=nope holds no sweep.json'),
        ({'out': f'{folder}/encoder.json'}, '--out=.*encoder.json is no folder'),
        ({'out': 'gs://x/y'}, '--out=gs://x/y: analyses are written to this machine'),
    ):
        monkeypatch.setattr(probe.flags, 'FLAGS', types.SimpleNamespace(**given | change))
        with pytest.raises(BadInput, match=says):
            probe.settings()


def test_labels_that_training_lacks_are_told():
    task = task_named('pos')
    task.label_N[1:] = -1
    assert probe.unseen(task) == ('pos: labels that training has not: 1 dev examples left out, 1 test examples missed')
