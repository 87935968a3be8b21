"""Six Chinese sentences with spaces between their words, each of them a document and a row; a vocabulary of 16 words.

    python -m experiments.pretrain --config=configs/chinese.py --workdir=runs/chinese
    python -m experiments.fill_mask --from=runs/chinese/runs/FOLDER --text='我 喜欢 [MASK] 学习'

The two likeliest words are 深度 and 机器, with about half of the probability each.
40 s on two CPU cores in other use, of which the steps take 3 and their compilation 23.
"""

from configs import base


def get_config(size: str = 'tiny'):
    config = base.get_config(size)
    config.data.source = 'text:configs/chinese.txt'
    config.data.language = 'zh'
    config.data.vocabulary = 'words'
    config.data.vocab_size = 21  # with the special tokens
    config.data.words = 'spaces'
    config.data.validation = config.data.test = 0.0  # too few to keep any back
    config.rows.format = 'doc_sentences'
    config.rows.length = 8
    config.rows.short_probability = 0.0
    # A word in four, on average one of a sentence, and always [MASK]: that is what is asked of it afterwards.
    config.objectives = {'mlm': {'select': {'rate': 0.25}, 'replace_by': {'mask': 1.0, 'random': 0.0}}}
    config.optimizer.learning_rate = 1e-3
    config.optimizer.warmup = 0.1
    config.train.batch = 24
    config.train.steps = 200
    config.train.dropout = config.train.attention_dropout = 0.0
    config.train.log_every = 50
    config.evaluation.tasks = ('mlm',)
    config.evaluation.refit.tasks = ()
    return config
