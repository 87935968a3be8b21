"""Data sets of tfds that lie prepared in a folder: all of GLUE, squad, xquad, conll2003.

    python -m experiments.finetune --config=configs/finetune/tfds.py:glue/rte,DATA --workdir=runs/rte --init_from=FOLDER

DATA is tfds' folder. GLUE hides its test labels: results are those of dev, where the best epoch is chosen too, as
published dev figures are; MNLI is chosen on its matched dev set and tested on the mismatched one. squad/v2.0 has
questions without an answer. xquad has no training split: its English test questions are trained on, for trying out.
"""

from configs.finetune import base
from configs.finetune.base import task

ONE, TWO = {'text': 'sentence'}, {'text': 'sentence1', 'pair': 'sentence2'}
GLUE = {  # columns, kind, main metric (Wang et al. 2019)
    'cola': (ONE, 'classify', 'matthews'),
    'sst2': (ONE, 'classify', 'accuracy'),
    'mrpc': (TWO, 'classify', 'f1'),
    'qqp': ({'text': 'question1', 'pair': 'question2'}, 'classify', 'f1'),
    'stsb': (TWO, 'regress', 'pearson'),
    'mnli': ({'text': 'premise', 'pair': 'hypothesis'}, 'classify', 'accuracy'),
    'qnli': ({'text': 'question', 'pair': 'sentence'}, 'classify', 'accuracy'),
    'rte': (TWO, 'classify', 'accuracy'),
    'wnli': (TWO, 'classify', 'accuracy'),
}
ANSWERS = {'question': 'question', 'context': 'context', 'answers': 'answers', 'id': 'id'}


def data_set(name: str, folder: str):
    kind, _, part = name.partition('/')
    where = f'&data_dir={folder}' if folder else ''
    train = f'tfds:{name}?split=train{where}'
    dev = f'tfds:{name}?split=validation{"_matched" if part == "mnli" else ""}{where}'
    if kind == 'glue' and part in GLUE:
        columns, kind, metric = GLUE[part]
        positive = {'mrpc': 'equivalent', 'qqp': 'duplicate'}.get(part, '')
        out = f'tfds:{name}?split=validation_mismatched{where}' if part == 'mnli' else ''
        return task(kind, train, dev, out, columns | {'label': 'label'}, metric=metric, positive=positive)
    if kind == 'conll2003':
        dev, out = (f'tfds:{name}?split={split}{where}' for split in ('dev', 'test'))
        return task('tag', train, dev, out, columns={'words': 'tokens', 'tags': 'ner'})
    if kind == 'xquad':
        return task('qa', f'tfds:{name}?split=test{where}', columns=ANSWERS)
    return task('qa', train, dev, columns=ANSWERS, no_answer=part.startswith('v2'))


def get_config(which: str = 'glue/mrpc,'):
    name, _, folder = which.partition(',')
    config = base.get_config(**{name.replace('/', '-'): data_set(name, folder)})
    if name.startswith(('squad', 'xquad')):
        config.length, config.buckets = 384, (192, 256)
    return config
