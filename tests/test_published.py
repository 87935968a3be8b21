"""A paper's contrasts beside ours; the presets of published tables."""

import importlib
import itertools
import json
import math
import pkgutil

import pytest
from etils import epath
from report_cases import measured, run

from bertx import sweep
from bertx.errors import BadInput
from bertx.report import published
from bertx.report.published import of_table
from bertx.report.stats import Estimate
from bertx.report.table import Cell
from configs import papers, sweeps
from experiments import results_page

ABOUT = 'What is it?\n\n    python -m it\n\nOne\nrate.\n'
PRESETS = sorted(name for _, name, _ in pkgutil.iter_modules(sweeps.__path__))
TABLES = [name for name in PRESETS if hasattr(importlib.import_module(f'configs.sweeps.{name}'), 'published')]


@pytest.mark.parametrize('name', TABLES)
def test_published_arms_are_arms_and_their_figures_the_paper_s(name):
    module = importlib.import_module(f'configs.sweeps.{name}')
    arms = {point['arm'] for point in module.sweep()}
    found = module.published()
    assert {p.arm for p in found} | {p.baseline for p in found} <= arms
    assert all(0 < figure < 100 for p in found for figure in p.figures)
    assert len({(p.arm, p.measure) for p in found}) == len(found)


@pytest.mark.parametrize(('name', 'scale'), itertools.product(TABLES, papers.SCALES))
def test_every_scale_of_a_preset_can_be_swept(name, scale):
    module = importlib.import_module(f'configs.sweeps.{name}')
    config = module.get_config(scale)
    for point in module.sweep():
        resolved = sweep.overlay(config, point)
        assert resolved.rows.length in (64, 128, 512)


def test_another_scale_is_refused():
    with pytest.raises(BadInput, match="did you mean 'small'"):
        papers.at('smal')


def test_contrasts_say_what_agrees_and_what_stands_in(tmp_path):
    own = ('nsp', 'own')
    folders = [
        run(tmp_path, arm, seed, [measured(own, value, seed)])
        for seed in range(3)
        for arm, value in (('none', 0.5), ('nsp', 0.9))
    ]
    asked = of_table(('NSP', 'MNLI-m'), 'none', {'none': (52.4, 81.5), 'nsp': (90.5, 81.6)}, own)
    published.record(epath.Path(tmp_path), asked)
    assert published.recorded(epath.Path(tmp_path)) == asked
    (contrast,) = published.contrasts(asked, folders, 'test')
    row = dict(zip(published.HEAD, contrast.row(), strict=True))
    assert row['paper'] == 'NSP 90.5 less 52.4, MNLI-m 81.6 less 81.5'
    assert row['sign agrees'] == 'yes' and row['ours, on'] == 'nsp' and row['significant'] == 'yes'
    assert 'tfds:glue/mnli' in published.report(asked, folders, 'test')
    mixed = of_table(('NSP', 'MNLI-m'), 'none', {'none': (52.4, 81.5), 'nsp': (90.5, 81.4)}, own)
    assert published.contrasts(mixed, folders, 'test')[0].sign_agrees == '1 of 2'
    lacking = of_table(('SOP',), 'none', {'none': (1.0,), 'sop': (2.0,)}, ('sop', 'own'))
    assert published.contrasts(lacking, folders, 'test')[0].row()[2:] == ['–'] * 5


def test_significant_is_after_correction():
    estimate = lambda p: Estimate(0.1, 0.0, 0.2, 3, 10, '', 0.05, 2.0, p)
    said = lambda p, holm: published.Contrast('a', 'b', (), 'x', Cell(estimate(p), estimate(p), p, holm)).significant
    assert (said(0.01, 0.04), said(0.04, 0.08), said(0.2, 0.4), said(math.nan, math.nan)) == (
        'yes', 'uncorrected', 'no', '–',
    )  # fmt: skip


def test_a_page_of_all_sweeps(tmp_path):
    with pytest.raises(BadInput, match='holds no sweep'):
        results_page.write(epath.Path(tmp_path), epath.Path(tmp_path) / 'RESULTS.md')
    work = tmp_path / 'a'
    found = run(work, 'none', 0, [measured(('mlm', 'own'), 0.5, 0)], command=['x', '--flag'], devices=['cpu:0'])
    (work / 'sweep.json').write_text(json.dumps({'sweep': 'a', 'runs': [found.path.name], 'about': ABOUT}))
    (work / 'table.md').write_text('| arm |')
    (work / 'contrasts.md').write_text('| contrast |')
    (work / 'figures').mkdir()
    (work / 'figures' / 'differences.png').write_bytes(b'picture')
    (tmp_path / 'RESULTS.md').write_text('# Results\n\nOld.\n\n## a\n\nold a\n\n### more\n\n## b\n\nold b\n')
    results_page.write(epath.Path(tmp_path), epath.Path(tmp_path) / 'RESULTS.md')
    text = (tmp_path / 'RESULTS.md').read_text()
    assert 'old a' not in text and text.endswith('\n\n## b\n\nold b\n') and text.count('# Results') == 1
    for part in ('## a', 'What is it?\n\nOne rate', '| arm |', '| contrast |', 'python -m experiments.sweep --flag'):
        assert part in text
    assert '1 of 1 runs done' in text and '](analysis/pictures/a_differences.png)' in text
    assert (tmp_path / 'analysis/pictures/a_differences.png').read_bytes() == b'picture'


def test_masked_tokens_and_tasks_of_any_size_stand_in(tmp_path):
    own, era = ('mlm', 'own'), ('era n=20', 'finetuned')
    folders = [
        run(tmp_path, arm, seed, [measured(own, value, seed), measured(era, 1 - value, seed)])
        for seed in range(3)
        for arm, value in (('mlm', 0.5), ('ltr', 0.2))
    ]
    asked = of_table(('MNLI-m', 'MLM'), 'mlm', {'mlm': (83.9, 1.0), 'ltr': (82.1, 2.0)}, ('era', 'finetuned'))
    theirs, masked = (
        dict(zip(published.HEAD, c.row(), strict=True)) for c in published.contrasts(asked, folders, 'test')
    )
    assert theirs['ours, on'].startswith('era n=20') and theirs['difference'].startswith('+')
    assert theirs['sign agrees'] == '1 of 2'
    assert masked['paper'] == masked['sign agrees'] == '–'
    assert masked['difference'].startswith('-') and masked['contrast'] == 'ltr less mlm'
    said = published.report(asked, folders, 'test')
    assert 'MNLI-m (tfds:glue/mnli)' in said and 'MLM (' not in said


def test_real_tasks_are_columns_where_their_data_are(tmp_path, monkeypatch):
    monkeypatch.delenv('BERTX_DATA', raising=False)
    assert [point['use'] for point in papers.downstream()] == [('era',)]
    (tmp_path / 'sst2').mkdir()
    monkeypatch.setenv('BERTX_DATA', str(tmp_path))
    assert [point['use'] for point in papers.downstream()] == [('era',), ('sst2',)]
    assert papers.get_downstream().tasks.sst2.train == f'{tmp_path}/sst2/train.tsv'
