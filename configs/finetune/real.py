"""Data sets that are there as files: GLUE's, entities, answers.

    python -m experiments.finetune --config=configs/finetune/real.py:sst2,FOLDER --workdir=runs/sst2 --init_from=FOLDER

The argument names the data set, and the folder that has one folder for each of them.
"""

from bertx.errors import one_of
from configs.finetune import base
from configs.finetune.base import task

PAIR = {'text': 'sentence1', 'pair': 'sentence2'}


def data_sets(root: str):
    at = lambda name, *files: [f'{root}/{name}/{file}' for file in files]
    dev, out = at('cola', 'in_domain_dev.tsv', 'out_of_domain_dev.tsv')
    answers = {'question': 'question', 'context': 'context', 'answers': 'answers', 'id': 'id'}
    return {
        'sst2': task(
            'classify', *at('sst2', 'train.tsv', 'dev.tsv', 'test.tsv'), {'text': 'sentence', 'label': 'label'}
        ),
        'mrpc': task(
            'classify', *at('mrpc', 'train.tsv', 'val.tsv', 'test.tsv'), PAIR | {'label': 'label'}, positive='1'
        ),
        'cola': task(  # no labelled test set: the in-domain dev set chooses, the out-of-domain one is the test
            'classify', *at('cola', 'in_domain_train.tsv'), dev, out, {'text': '3', 'label': '1'}, header=False,
            metric='matthews',
        ),
        'stsb': task('regress', *at('stsb', 'train.tsv', 'dev.tsv', 'test.tsv'), PAIR | {'label': 'score'}),
        'rte': task(
            'classify', *at('rte', 'train.tsv'), test=at('rte', 'dev.tsv')[0], columns=PAIR | {'label': 'label'}
        ),
        'wnut17_ner': task(
            'tag', *at('wnut17_ner', 'train.conll', 'dev.conll', 'test.conll'), {'words': 'words', 'tags': 'tags'}
        ),
        # its train file could not be had: the test file is trained on, its last tenth chooses, dev is the test
        'policyqa': task(
            'qa', *at('policyqa', 'test.json.gz'), test=at('policyqa', 'dev.json.gz')[0], columns=answers
        ),
    }  # fmt: skip


def get_config(which: str = 'sst2,data'):
    name, _, root = which.partition(',')
    found = data_sets(root or 'data')
    one_of('the data set', name, found)
    config = base.get_config(**{name: found[name]})
    config.buckets = (16, 32, 48, 64, 96)  # a third less padding than the usual two, for three more compilations
    if name == 'policyqa':
        config.length, config.buckets = 256, (128, 192)
    return config
