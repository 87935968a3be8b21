"""Data of tasks: reading, encoding, batches, and what is wrong in files."""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from weights import wordpieces

from bertx.errors import BadInput
from bertx.tasks import data, sotu, sources
from bertx.tasks.batches import mixture, padded, plan
from bertx.tasks.classify import encode_texts
from bertx.tasks.qa import QA, Answer, located
from bertx.text import datasets
from configs.finetune import base
from configs.finetune.base import task

SHARED = Path(__file__).parents[2] / 'shared' / 'data'
TOKENIZER = wordpieces()


def rows(spec, header=True):
    counts = Counter()
    return sources.rows(str(spec), 'config.tasks.x.train', header, counts), {k: n for k, n in counts.items() if n}


def load(length=16, examples=0, **tasks):
    config = base.get_config(**tasks).to_dict()
    config['train'] |= {'batch': 4, 'examples': examples}
    return data.load(config | {'length': length, 'buckets': ()}, TOKENIZER)


def test_files(tmp_path):
    (tmp_path / 'a.tsv').write_text('x\ty\n"one\t1\ntwo\n')
    (tmp_path / 'b.csv').write_text('x,y\n"a, ""b""",2\n')
    (tmp_path / 'c.jsonl').write_text('{"x": "c", "y": 3}\n\n')
    with gzip.open(tmp_path / 'd.tsv.gz', 'wt') as file:
        file.write('d\t4\n')
    (tmp_path / 'e.conll').write_text('-DOCSTART- X O\n\nEU NNP B-ORG\nrejects VBZ\n\n\nno NN O')
    assert rows(tmp_path / 'a.tsv') == (
        [{'x': '"one', 'y': '1'}], {'lines with another number of columns, left out': 1}
    )  # fmt: skip
    assert rows(f'{tmp_path}/b.csv + {tmp_path}/c.jsonl')[0] == [{'x': 'a, "b"', 'y': '2'}, {'x': 'c', 'y': 3}]
    assert rows(tmp_path / 'd.tsv.gz', header=False)[0] == [{'0': 'd', '1': '4'}]
    marked = '\ufeff' + (tmp_path / 'c.jsonl').read_text()
    (tmp_path / 'f.jsonl').write_text(marked)  # a byte order mark
    assert rows(tmp_path / 'f.jsonl') == rows(tmp_path / 'c.jsonl')
    assert rows(tmp_path / 'e.conll')[0] == [
        {'words': ['EU', 'rejects'], 'tags': ['B-ORG', 'VBZ']}, {'words': ['no'], 'tags': ['O']}
    ]  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('a.tsv', None, 'config.tasks.t.train: there is no file'),
        ('a.tsv', 'text\tlabel\n', 'has no rows'),
        ('a.tsv', 'txt\tlabel\na\t1\n', "config.tasks.t.columns.text: column 'text' is unknown; did you mean 'txt'"),
        ('a.tsv', 'text\tlabel\na\t\n', 'has no example with a label'),
        ('a.tsv', b'text\tlabel\n\xff\t1\n', 'is not UTF-8'),
        ('a.txt', 'x', "ending 'txt' is unknown"),
        ('a.jsonl', '{"text": ', 'cannot be read'),
        ('a.json', '{"data": [{}]}', "is not in SQuAD's format"),
        ('a.jsonl', '[1]', 'is not an object with named values a line'),
        ('a.tsv.gz', 'text\tlabel\n', 'cannot be read'),
        ('a.tsv.gz', gzip.compress(b'text', mtime=0)[:10] + b'\xff' * 20, 'cannot be read'),
        ('a.json', '[' * 100_000, 'cannot be read'),
        ('a.jsonl', '{"text": "\\ud800", "label": "1"}\n', 'half a character'),
        ('a.csv', 'text,label\n"a,1\nb,2\n', 'a quote that is not closed'),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    with pytest.raises(BadInput, match=message) as error:
        load(t=task('classify', str(path), columns={'text': 'text', 'label': 'label'}))
    assert '\n' not in str(error.value)


def test_a_column_that_is_named_must_be_there(tmp_path):
    (tmp_path / 'a.jsonl').write_text('{"text": "a", "other": "b", "label": "1"}\n' * 3)
    columns = {'text': 'text', 'label': 'label'}
    for role in ('pair', 'id'):
        with pytest.raises(BadInput, match=f"columns.{role}: column 'othr' is unknown; did you mean 'other'"):
            load(t=task('classify', str(tmp_path / 'a.jsonl'), columns=columns | {role: 'othr'}))


@pytest.mark.parametrize(
    ('kind', 'line', 'message'),
    [
        ('qa', {'question': 'q', 'context': None, 'answers': {'text': [], 'answer_start': []}}, 'None as its context'),
        ('qa', {'question': 'q', 'context': 'c', 'answers': {'text': ['c'], 'answer_start': []}}, 'of one length'),
        ('tag', {'words': None, 'tags': ['O']}, 'None as its words; a list would do'),
    ],
)
def test_values_of_the_wrong_kind(tmp_path, kind, line, message):
    (tmp_path / 'a.jsonl').write_text(json.dumps(line) + '\n')
    with pytest.raises(BadInput, match=message):
        load(t=task(kind, str(tmp_path / 'a.jsonl'), columns={key: key for key in line}))


def test_texts_pairs_and_what_is_cut():
    t = TOKENIZER
    records = [{'text': 'ab', 'pair': 'c'}, {'text': 'abcdef', 'pair': 'ghi'}, {'text': '', 'pair': None}]
    counts = Counter()
    found = encode_texts(records, t, 9, counts)
    piece = t.vocabulary
    assert found[0]['tokens'].tolist() == [t.cls_id, piece['a'], piece['##b'], t.sep_id, piece['c'], t.sep_id]
    assert found[0]['type_ids'].tolist() == [0, 0, 0, 0, 1, 1]
    assert len(found[1]['tokens']) == 9 and found[1]['type_ids'].sum() == 4  # 3 of abcdef, ghi and [SEP]
    assert found[2]['tokens'].tolist() == [t.cls_id, t.sep_id]
    assert counts['texts cut to config.length'] == 1


def test_odd_examples_are_counted(tmp_path):
    (tmp_path / 'train.tsv').write_text('text\tlabel\na\tx\n\tx\nb\ty\nc\t\n')
    (tmp_path / 'dev.tsv').write_text('text\tlabel\na\tz\nb\ty\nc\t\n')
    (tmp_path / 'one.tsv').write_text('text\tlabel\na\tx\nb\tx\n')
    columns = {'text': 'text', 'label': 'label'}
    found = load(t=task('classify', f'{tmp_path}/train.tsv', f'{tmp_path}/dev.tsv', columns=columns))
    lines = '\n'.join(found.about())
    for said in (
        'empty texts, kept: 1',
        'without a label, not trained on: 1',
        'that training has not, counted as errors: 1',
    ):
        assert said in lines
    assert found.tasks['t'].labels == ['x', 'y']
    dev = found.records['t', 'dev']
    scores = found.tasks['t'].score(dev, ['x', 'y', 'x'], spread=False)
    assert scores['accuracy'][0] == [0.5]  # z is an error, what has no label is not counted
    assert 'a single one' in '\n'.join(load(t=task('classify', f'{tmp_path}/one.tsv', columns=columns)).about())
    with pytest.raises(BadInput, match="'x' is not a finite number"):
        load(t=task('regress', f'{tmp_path}/one.tsv', columns=columns))
    balanced = load(t=task('classify', f'{tmp_path}/train.tsv', f'{tmp_path}/dev.tsv', columns=columns,
                           class_weights='balanced'))  # fmt: skip
    np.testing.assert_allclose(balanced.class_weights['t'], [3 / 4, 3 / 2])


@pytest.mark.parametrize('labels', [('²', '1'), ('--1', '1')])
def test_labels_that_are_nearly_numbers(tmp_path, labels):
    (tmp_path / 'a.tsv').write_text('text\tlabel\n' + ''.join(f'a\t{label}\n' for label in labels * 2))
    found = load(t=task('classify', f'{tmp_path}/a.tsv', columns={'text': 'text', 'label': 'label'}))
    assert found.tasks['t'].labels == sorted(labels)


def test_passages_of_a_query_and_questions_on_a_context_stay_together(tmp_path):
    lines = [f'q{i // 5}\tp{i}\t{int(i % 5 == 0)}' for i in range(40)]
    (tmp_path / 'a.tsv').write_text('\n'.join(['text\tpair\tlabel', *lines]) + '\n')
    qa = {'id': 1, 'question': 'q', 'answers': [{'text': 'a', 'answer_start': 0}]}
    paragraphs = [{'context': f'a {c}', 'qas': [qa] * 5} for c in range(8)]
    (tmp_path / 'a.json').write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
    for kind, file, names, role in (
        ('rank', 'a.tsv', ('text', 'pair', 'label'), 'query'),
        ('qa', 'a.json', ('question', 'context', 'answers'), 'context'),
    ):
        spec, columns = f'{tmp_path}/{file}', {name: name for name in names}
        config = base.get_config(t=task(kind, spec, test=spec, columns=columns)).to_dict() | {'buckets': ()}
        config['evaluation']['examples'] = 12
        found = data.load(config, TOKENIZER).records
        count = {split: Counter(record[role] for record in found['t', split]) for split in ('train', 'dev', 'test')}
        assert {split: list(n.values()) for split, n in count.items()} == {'train': [5] * 7, 'dev': [5], 'test': [5, 5]}
        assert not count['train'].keys() & count['dev'].keys()


def test_one_class_is_reported_of_every_split(tmp_path):
    (tmp_path / 'two.tsv').write_text('text\tlabel\na\tx\nb\ty\n')
    (tmp_path / 'one.tsv').write_text('text\tlabel\na\tx\nb\tx\n')
    columns = {'text': 'text', 'label': 'label'}
    lines = load(
        t=task('classify', f'{tmp_path}/two.tsv', f'{tmp_path}/one.tsv', f'{tmp_path}/two.tsv', columns)
    ).about()
    assert ['a single one' in line for line in lines] == [False, True, False]


def test_tags_without_entities_want_another_metric(tmp_path):
    (tmp_path / 'a.conll').write_text('the DT\ndog NN\n\n' * 3)
    columns = {'words': 'words', 'tags': 'tags'}
    with pytest.raises(BadInput, match="tasks.t.metric: no tag begins with B- or I-; metric='accuracy' would do"):
        load(t=task('tag', f'{tmp_path}/a.conll', columns=columns))
    assert load(t=task('tag', f'{tmp_path}/a.conll', columns=columns, metric='accuracy')).tasks['t'].labels


def test_tags_go_to_first_pieces(tmp_path):
    (tmp_path / 'a.conll').write_text('abc B-x\n\u200b O\nde O\nfg I-x\n')
    spec, columns = f'{tmp_path}/a.conll', {'words': 'words', 'tags': 'tags'}
    found = load(6, t=task('tag', spec, spec, columns=columns))
    (row,) = found.inputs['t', 'train'].rows
    t = found.tasks['t']
    assert t.labels == ['B-x', 'I-x', 'O']
    assert row['label'].tolist() == [-1, 0, -1, -1, 2, -1]  # [CLS] a ##b ##c d [SEP]
    [tags] = t.predict([np.array([2, 1, 2, 2, 0, 2])], found.inputs['t', 'train'], found.records['t', 'train'])
    assert tags == ['I-x', 'O', 'B-x', 'O']
    assert 'tagged O: 2' in '\n'.join(found.about())  # one without a piece, one behind the end


def test_windows(tmp_path):
    context = 'a bb c d e f g h'
    qa = {'id': 1, 'question': 'q', 'answers': [{'text': 'f g', 'answer_start': 11}]}
    gone = {'id': 2, 'question': 'q', 'answers': [{'text': 'zz', 'answer_start': 0}]}
    moved = {'id': 3, 'question': 'q', 'answers': [{'text': 'bb', 'answer_start': 0}]}
    paragraphs = [{'context': context, 'qas': [qa, gone, moved]}]
    (tmp_path / 'a.json').write_text(json.dumps({'data': [{'paragraphs': paragraphs}]}))
    columns = {name: name for name in ('question', 'context', 'answers')}
    spec = f'{tmp_path}/a.json'
    found = load(9, t=task('qa', spec, spec, columns=columns, doc_stride=3))
    inputs, records, t = found.inputs['t', 'train'], found.records['t', 'train'], found.tasks['t']
    assert [record['answers'] for record in records] == [['f g'], ['bb']]  # the lost one is not trained on
    assert len(found.records['t', 'dev']) == 3  # but counts as an error
    lines = '\n'.join(found.about())
    assert 'does not hold: 1' in lines and 'found elsewhere: 1' in lines
    # [CLS] q [SEP] and five pieces: a b ##b c d, c d e f g, f g h
    assert [len(row['tokens']) for row in inputs.rows[:3]] == [9, 9, 7]
    assert [(row['start'], row['end']) for row in inputs.rows[:3]] == [(0, 0), (6, 7), (3, 4)]
    assert (inputs.rows[3]['start'], inputs.rows[3]['end']) == (4, 5)
    outputs = [{'score': s, 'start': a, 'end': b, 'null': n} for s, a, b, n in
               [(1, 3, 3, 5), (9, 6, 7, 8), (2, 3, 3, 9), (7, 4, 5, 1), (1, 3, 3, 2), (1, 3, 3, 3)]]  # fmt: skip
    said = t.predict(outputs, inputs, records)
    assert said == [Answer('f g', 5 - 9), Answer('bb', 1 - 7)]
    long = {'id': 4, 'question': 'q' * 65, 'answers': [{'text': context, 'answer_start': 0}]}
    (tmp_path / 'a.json').write_text(json.dumps({'data': [{'paragraphs': [{'context': context, 'qas': [long] * 2}]}]}))
    data._load.cache_clear()
    lines = load(72, t=task('qa', spec, spec, columns=columns)).about()
    assert all('questions cut to 64 pieces: 2' in line for line in lines)
    assert all('answers that no window holds whole, read as none: 2' in line for line in lines)


def test_located():
    assert located('ab ab ab', 'ab', 3) == 3
    assert located('ab ab ab', 'ab', 5) == 6
    assert located('ab abx', 'ab', -3) == 0
    assert located('ab', 'zz', 0) is None and located('ab', '', 0) is None


def test_no_answer_follows_the_threshold_of_dev():
    t = QA('t', task('qa', '', no_answer=True))
    records = [{'answers': ['x']}, {'answers': []}, {'answers': ['y']}]
    said = [Answer('x', -2.0), Answer('z', 3.0), Answer('y', 1.0)]
    t.tune(records, said)
    assert [t.says(x) for x in said] == ['x', '', 'y']
    scores = {name: sums.sum() / weights.sum() for name, (sums, weights) in t.score(records, said).items()}
    assert scores == {'f1': 1, 'exact': 1, 'f1_answerable': 1, 'f1_unanswerable': 1}
    assert t.score(records, [Answer('', 0), Answer('z', -9), Answer('y', 0)])['f1'][0].tolist() == [0, 0, 1]


def test_the_threshold_is_chosen_by_the_metric():
    records = [{'answers': ['x y']}, {'answers': []}]
    said = [Answer('x', 0.0), Answer('z', 0.0)]  # half an answer is worth as much as half of no answer
    for metric, kept in (('f1', 'x'), ('exact', '')):
        t = QA('t', task('qa', '', no_answer=True, metric=metric))
        t.tune([records[0]] * 2 + [records[1]], [said[0]] * 2 + [said[1]])
        assert t.says(said[0]) == kept


def test_batches_hold_each_row_once_and_have_few_shapes():
    rng = np.random.default_rng(0)
    lengths = rng.integers(2, 65, 333)
    for order in (rng, None):
        found = plan(lengths, (16, 32, 64), 8, order)
        assert sorted(np.concatenate(found)) == list(range(333))
        assert sum(len(rows) < 8 for rows in found) <= 1
        waste = sum(8 * next(b for b in (16, 32, 64) if b >= lengths[rows].max()) for rows in found) / lengths.sum()
        assert waste < 1.5
    assert [list(x) for x in plan(lengths, (64,), 8, np.random.default_rng(1))] != [list(x) for x in found]


def test_a_short_batch_is_filled_with_what_weighs_nothing():
    t = type('T', (), {'targets': {'label': (np.int32, -1)}})
    row = {'tokens': np.array([7, 8, 9]), 'type_ids': np.array([0, 0, 1]), 'label': np.array([-1, 4, -1])}
    batch = padded(data.Inputs([row], np.zeros(1)), np.array([0]), t, (4, 8), 2, pad=5)
    assert batch['tokens'].tolist() == [[7, 8, 9, 5], [5] * 4] and batch['weight'].tolist() == [1, 0]
    assert batch['label'].tolist() == [[-1, 4, -1, -1], [-1] * 4]
    assert batch['segment_ids'].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]


def test_mixtures():
    np.testing.assert_allclose(mixture({'a': 1, 'b': 9}, (), 0.5), [0.25, 0.75])
    np.testing.assert_allclose(mixture({'a': 1, 'b': 9}, (3, 1), 0.5), [0.75, 0.25])
    with pytest.raises(BadInput, match='config.mix.shares'):
        mixture({'a': 1, 'b': 9}, (1,), 1.0)


def test_the_addresses_are_split_by_document():
    by_split = {split: sotu.paragraphs('era', 'k', split) for split in ('train', 'validation', 'test')}
    names = [{row['id'].split('#')[0] for row in found} for found in by_split.values()]
    assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
    assert {row['label'] for row in by_split['test']} == {name for _, name in sotu.ERAS}
    first = next(row for row in by_split['train'] if row['id'].startswith('17'))
    assert first['label'] == 'to 1860'
    with pytest.raises(BadInput, match="did you mean 'party'"):
        sotu.paragraphs('partly', 'k')


@pytest.mark.parametrize(
    ('name', 'odd'), [('covidqa/200423_covidQA', 234), ('cmrc2018/cmrc2018_trial', 5), ('xquad/xquad.en', 0)]
)
def test_real_answers_that_do_not_stand_at_their_offset(name, odd):
    path = SHARED / f'{name}.json.gz'
    if not path.exists():
        pytest.skip('the data are not there')
    t = QA('t', task('qa', str(path), columns={n: n for n in ('question', 'context', 'answers')}))
    t.load('train')
    counts = t.counts['train']
    moved = counts['answers not at their offset, found elsewhere']
    assert moved + counts['answers that the context does not hold'] == odd


def test_the_named_data_set_is_there():
    from configs.finetune import real, tfds

    with pytest.raises(BadInput, match="data set 'mprc' is unknown; did you mean 'mrpc'"):
        real.get_config('mprc,DATA')
    assert 'split=validation_mismatched' in tfds.get_config('glue/mnli,').tasks['glue-mnli'].test


def test_a_plus_in_a_folder_is_one():
    assert datasets.query('x?data_dir=/a+b%20c', 'x', ('data_dir',)) == ('x', {'data_dir': '/a+b c'})


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
    """Data sets with the features that tfds documents for glue, conll2003, squad and xquad."""
    tfds = pytest.importorskip('tensorflow_datasets')
    folder, f = tmp_path_factory.mktemp('tfds'), tfds.features

    def build(dataset, config, features, examples, splits=('train', 'validation')):
        split = lambda self: iter(enumerate(examples))
        members = {
            'name': dataset, 'VERSION': tfds.core.Version('1.0.0'),
            '_info': lambda self: tfds.core.DatasetInfo(builder=self, features=f.FeaturesDict(features)),
            '_split_generators': lambda self, _: {name: split(self) for name in splits},
            '_generate_examples': split,
        }  # fmt: skip
        if config:
            members['BUILDER_CONFIGS'] = [tfds.core.BuilderConfig(name=config)]
        with tfds.core.registered.skip_registration():
            builder = type(dataset, (tfds.core.GeneratorBasedBuilder,), members)
        made = builder(data_dir=folder, **({'config': config} if config else {}), file_format='array_record')
        made.download_and_prepare()

    two = f.ClassLabel(names=['not_equivalent', 'equivalent'])
    pair = {'sentence1': f.Text(), 'sentence2': f.Text(), 'idx': np.int32}
    build('glue', 'mrpc', pair | {'label': two}, [
        {'sentence1': 'é a', 'sentence2': 'b', 'idx': i, 'label': (i % 3) - 1} for i in range(9)
    ])  # fmt: skip
    build('glue', 'stsb', pair | {'label': np.float32}, [
        {'sentence1': 'a', 'sentence2': 'b', 'idx': i, 'label': i / 2 - (i == 0)} for i in range(9)
    ])  # fmt: skip
    tags = f.Sequence(f.ClassLabel(names=['O', 'B-PER', 'I-PER']))
    build('conll2003', '', {'tokens': f.Sequence(f.Text()), 'ner': tags}, [
        {'tokens': ['U', 'N'], 'ner': ['B-PER', 'O']} for _ in range(9)
    ], ('train', 'dev', 'test'))  # fmt: skip
    answers = f.Sequence({'text': f.Text(), 'answer_start': np.int32})
    squad = {'id': f.Text(), 'title': f.Text(), 'context': f.Text(), 'question': f.Text(), 'answers': answers}
    some = [{'id': str(i), 'title': 't', 'context': 'é bc' + ' d' * (i > 4), 'question': 'q', 'answers':
             {'text': ['bc'], 'answer_start': [2]}} for i in range(9)]  # fmt: skip
    build('squad', 'v1.1', squad, some)
    build('xquad', 'en', squad, some, ('test', 'translate-dev'))
    return folder


@pytest.mark.parametrize(
    ('name', 'expected'),
    [
        ('glue/mrpc', ('é a', 'b', 'equivalent')),
        ('glue/stsb', ('a', 'b', 0.5)),
        ('conll2003', (['U', 'N'], ['B-PER', 'O'])),
        ('squad', ('é bc', ['bc'], (2, 4))),  # whose first configuration is v1.1
        ('xquad/en', ('é bc d', ['bc'], (2, 4))),  # the questions on 'é bc' are cut off for dev
    ],
)
def test_tensorflow_datasets_without_tensorflow(prepared, name, expected):
    from configs.finetune import tfds

    config = tfds.get_config(f'{name},{prepared}').to_dict()
    found = data.load(config | {'length': 16, 'buckets': ()}, TOKENIZER)
    (records,) = [records for (_, split), records in found.records.items() if split == 'train']
    keys = {'conll2003': ('words', 'tags'), 'glue': ('text', 'pair', 'label')}
    keys = keys.get(name.split('/')[0], ('context', 'answers', 'span'))
    assert 'tensorflow' not in sys.modules
    assert expected in [tuple(record[key] for key in keys) for record in records]
    if name == 'glue/stsb':
        found_too, _ = rows(f'tfds:{name}:1.0.0?data_dir={prepared}')
        assert [row['label'] for row in found_too].count(None) == 1
    if name.startswith('glue'):
        hidden = 3 if name == 'glue/mrpc' else 1
        assert f'without a label, not trained on: {hidden}' in '\n'.join(found.about())
