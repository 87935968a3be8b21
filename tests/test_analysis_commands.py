"""The commands of analysis/, from their flags to their files, on a tiny encoder and a tiny treebank."""

import csv
import json
import logging
import runpy
import shutil
import sys

import pytest
from absl import flags
from analysis_cases import model, saved, treebank, write_treebank

from analysis.report import page, published

FAST = ('--seeds=1', '--penalties=1e-3')


@pytest.fixture(scope='module')
def place(tmp_path_factory):
    """A folder with two checkpoints, m0 and m1, a treebank and text."""
    place = tmp_path_factory.mktemp('place')
    for seed in (0, 1):
        saved(model(seed), place / f'm{seed}')
    saved(model(1, max_positions=200), place / 'long')
    saved(model(1, layers=3), place / 'deep')
    write_treebank(place / 'trees', train=90, dev=30, test=40)
    texts = [' '.join(s.words) for s in treebank(300)]
    (place / 'text.txt').write_text('\n\n'.join('\n'.join(texts[i : i + 10]) for i in range(0, 300, 10)))
    return place


@pytest.fixture
def command(monkeypatch, place):
    """Runs a command; what it wrote comes back as text by name."""

    def run(name, *arguments, code=0):
        before, handlers = set(flags.FLAGS), logging.root.handlers[:]
        out = place / f'{name}{len(list(place.iterdir()))}'
        monkeypatch.setattr(sys, 'argv', [name, f'--out={out}', *arguments])
        try:
            with pytest.raises(SystemExit) as stop:
                runpy.run_module(f'analysis.{name}', run_name='__main__')
        finally:
            for flag in set(flags.FLAGS) - before:
                delattr(flags.FLAGS, flag)
            logging.root.handlers[:] = handlers
        assert stop.value.code == code
        return out

    return run


def lines(text, start):
    return [line.split('|')[1:-1] for line in text.splitlines() if line.startswith(f'| {start}')]


def test_tasks_without_annotation_take_fewer_sentences_unless_told(command, place, monkeypatch):
    taken = []
    monkeypatch.setattr('analysis.probing.plain_tasks.make', lambda *given: taken.append(given[-2:]) or exit(0))
    for given in ((), ('--sentences=2000',)):
        command('probe', f'--checkpoint={place}/m1', f'--source=text:{place}/text.txt', *given)
    assert taken == [(1200, 400), (2000, 666)]


def test_probe_of_checkpoints_of_different_depth(command, place):
    both = f'--checkpoint={place}/m1,{place}/deep'
    out = command('probe', both, f'--data={place}/trees', '--task=pos', *FAST)
    deep = [row for row in csv.reader((out / 'layers.csv').open()) if row[2] == 'layer 3']
    assert [row[0] for row in deep] == ['deep']
    text = (out / 'table.md').read_text()
    assert len(lines(text, 'untrained m1')) == 1 and 'deep: untrained ' in text
    assert {file.stem for file in (out / 'figures').glob('*.png')} == {'layers', 'norms'}


def test_structural(command, place):
    out = command('structural', f'--checkpoint={place}/m0', f'--data={place}/trees', '--sentences=60')
    rows = list(csv.reader((out / 'structure.csv').open()))
    assert rows[0][:3] == ['layer', 'UUAS', 'less untrained'] and [len(row) for row in rows] == [8] * 5
    assert rows[-1][0] == 'chain' and sum('(dev)' in row[0] for row in rows) == 1
    assert '20 test sentences of 2 to 32 words, 0 of all sentences left out' in (out / 'structure.md').read_text()
    assert 'data:image/png' in (out / 'report.html').read_text()


def test_mdl(command, place, capsys):
    given = f'--checkpoint={place}/m0', f'--data={place}/trees', '--task=pos', '--penalties=1e-3'
    out = command('mdl', *given)
    text = (out / 'mdl.md').read_text()
    assert text.startswith('pos: ') and len(lines(text, '')) == 5
    compression, control = (float(x) for x in lines(text, '2')[0][4:6])
    assert compression > 2 and control > 0
    command('mdl', *given, '--seeds=3', code=2)
    assert '--seeds is not for description lengths' in capsys.readouterr().err


def test_scatter(command, place):
    out = command(
        'scatter', f'--checkpoint={place}/m0', f'--data={place}/trees', '--task=pos', '--method=pca', '--examples=200'
    )
    scores = [float(x) for x in lines((out / 'scatter.md').read_text(), 'NMI')[0][1:]]
    assert len(scores) == 3 and all(0 <= x <= 1 for x in scores) and (out / 'figures' / 'pos_pca.png').exists()


def test_similarity(command, place):
    out = command(
        'similarity', f'--checkpoint={place}/m0,{place}/m1', f'--source=text:{place}/text.txt', '--sentences=60'
    )
    text = (out / 'similarity.md').read_text()
    assert 'm0 and m1' in text and 'one run alone: with itself, so that seeds are no floor' in text
    assert 'between its seeds' not in text and (out / 'figures' / 'floor.png').exists()


def test_attention(command, place, capsys):
    given = f'--checkpoint={place}/long', f'--data={place}/trees', '--sentences=40'
    out = command('attention', *given, f'--text={"the cat " * 80}', code=2)
    assert 'shows texts of up to 128 tokens' in capsys.readouterr().err and not out.exists()
    out = command('attention', *given)
    text = (out / 'attention.md').read_text()
    assert 'heads and offsets chosen on 30 dev sentences' in text and 'probe on all heads' in text
    assert len(lines(text, '1')) == 2  # shares, and importance
    assert 'Attention viewer' in (out / 'report.html').read_text()


def test_minimal_pairs(command, place):
    pair = {'UID': 'p', 'linguistics_term': 't', 'sentence_good': 'the cat sees .', 'sentence_bad': 'cat the sees .'}
    (place / 'b.jsonl').write_text(''.join(json.dumps(pair) + '\n' for _ in range(5)))
    out = command('minimal_pairs', f'--checkpoint={place}/m0', f'--data={place}/b.jsonl')
    share = float(lines((out / 'blimp.md').read_text(), '- p')[0][1].split()[0])
    assert share in (0, 1) and (out / 'blimp.npz').exists()


def test_over_training(command, place, capsys):
    runs = place / 'steps'
    for seed in (0, 1):
        folder = runs / f'r{seed}'
        shutil.copytree(place / f'm{seed}', folder)
        shutil.copytree(place / f'm{1 - seed}' / 'checkpoints' / '0', folder / 'checkpoints' / '5')
    given = f'--data={place}/trees', '--task=pos', *FAST
    out = command('over_training', f'--checkpoint={runs}/r0,{runs}/r1', *given)
    rows = list(csv.reader((out / 'over_training.csv').open()))
    assert [row[1:3] for row in rows[1:]] == [
        ['r0', '0'], ['r0', '5'], ['r1', '0'], ['r1', '5'],
        ['untrained r0', '0'], ['untrained r1', '0'], ['majority', ''],
    ]  # fmt: skip
    assert rows[1][8] == '' and rows[3][8].startswith(('+', '-')) and float(rows[-1][4]) < 0.5
    assert (out / 'over_training.html').exists()
    command('over_training', f'--checkpoint={runs}/none', *given, code=2)
    assert f'--checkpoint={runs}/none: there is no such folder' in capsys.readouterr().err


def test_presets_and_what_was_typed_wins(command, place):
    given = f'--checkpoint={place}/m0', f'--data={place}/trees'
    out = command('presets', '--preset=tenney2019', *given, '--task=pos', *FAST)
    text = (out / 'table.md').read_text()
    assert (
        'pos, m0: expected layer' in text and 'dep' not in text and 'layers 0 to 2' in (out / 'layers.csv').read_text()
    )
    ((_, task, *_),) = csv.reader((out / 'edge.csv').read_text().splitlines()[1:])
    assert lines((out / 'published.md').read_text(), f'{task} ') and '1.76' in (out / 'published.md').read_text()


def test_published_figures_stand_beside_ours(tmp_path):
    write = lambda name, *rows: page.write_csv(tmp_path / f'{name}.csv', [list(row) for row in rows])
    head = 'arm', 'task', 'head', 'mean'
    write(
        'layers',
        head,
        ('x', 'tense', 'layer 0', '.5'),
        ('x', 'tense', 'layer 1', '.75'),
        ('untrained', 'tense', 'layer 1', '.6'),
    )
    write('edge', ('task', 'arm', 'expected'), ('pos', 'x', '1.5'), ('dep', 'x', '2.5'))
    write('relations', [''] * 8, ('obj', '9', '1-1', '0.700 [0.6, 0.8]', '+1', '0.300', '', ''))
    write('attention_probe', [''] * 3, ('probe on all heads', '0.500 [0.4, 0.6]', ''))
    structure = ('layer', 'UUAS', 'DSpr', 'root', 'NSpr')
    write('structure', structure, ('1', '', '', '', ''), ('2 (dev)', '0.7 [0.6, 0.8]', '0.5', '0.4', '0.3'))
    write('mdl_pos', [''] * 7, ('0', '90.1', '', '', '5.2', '', ''))
    for preset, want in {
        'jawahar2019': ['tense, x', '75.0', *[''] * 11],
        'tenney2019': ['x', '1.5', '', '', '2.5', '', ''],
        'clark2019': ['obj(dobj)', '0.868', '0.400', '0.700', '0.300'],
        'hewitt2019': ['ours: 2 (dev)', '0.7', '0.5', '0.4', '0.3'],
        'voita2020': ['ours: layer 0', '90.1', '5.2', ''],
    }.items():
        _, rows = published.beside(preset, tmp_path)
        assert want in rows and {len(row) for row in rows} == {len(rows[0])}, preset
