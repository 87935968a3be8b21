"""Every key of fine-tuning; other configs name their data.

    python -m experiments.finetune --config=configs/finetune/base.py --workdir=runs/era --init_from=FOLDER

FOLDER is a run of `experiments.pretrain` or a Hugging Face folder. As it stands: whose time a paragraph of the State of
the Union addresses is of, with BERT's recipe.
"""

from ml_collections import ConfigDict

from configs import base


def task(kind: str, train: str, dev: str = '', test: str = '', columns: dict[str, str] | None = None, **settings):
    """One data set. kind: classify, regress, qa, tag or rank. Data: see bertx/tasks/sources.py."""
    names = {'text': '', 'pair': '', 'label': '', 'query': '', 'words': '', 'tags': '', 'question': '', 'context': ''}
    usual = {
        'header': True,  # of tsv and csv; without it columns are called '0', '1', ...
        'metric': '',  # what the best checkpoint is chosen by; '': the kind's first (bertx/tasks/)
        'labels': (),  # of classify; (): those of the training examples
        'positive': '',  # the label that F1 is of; '': the last
        'class_weights': '',  # or 'balanced': a class weighs as much as any other in the loss
        'no_answer': False,  # SQuAD 2.0: some questions have none
        'doc_stride': 128,  # pieces from the start of a window to the next one's
        'longest_answer': 30,  # pieces
    }
    columns = names | {'answers': '', 'id': ''} | (columns or {})
    return {'kind': kind, 'train': train, 'dev': dev, 'test': test, 'columns': columns} | usual | settings


ERA = task(
    'classify', 'sotu:era?split=train', 'sotu:era?split=validation', 'sotu:era?split=test',
    {'text': 'text', 'label': 'label', 'id': 'id'},
)  # fmt: skip


def get_config(**tasks) -> ConfigDict:
    return ConfigDict(
        {
            'seed': 0,  # of heads, order, dropout; the training subset is the same for all
            'init_from': '',  # a run, or a Hugging Face folder
            'random': False,  # its encoder and tokenizer with fresh weights
            'tokenizer': '',  # a tokenizer.json, vocab.txt or folder: without init_from, or to add pieces to its own
            'encoder': base.get_config('tiny').encoder,
            'tasks': tasks or {'era': ERA},  # name -> data; dev='': the last tenth of the training examples
            'use': (),  # names of tasks that are trained together, on one encoder; (): all
            'mix': {'shares': (), 'alpha': 1.0},  # of several tasks: shares of the steps, or size ** alpha
            'features': '',  # '': all is trained; else what heads read of a frozen encoder (bertx/tasks/heads.py)
            'length': 128,
            'buckets': (32, 64),  # further lengths: a batch has the shortest that holds its rows
            'optimizer': {
                'name': 'adamw',
                'schedule': 'join',  # see bertx/optim.py
                'bias_correction': True,  # without it small data sets fail often (Zhang et al. 2021)
                'learning_rate': 5e-5,
                'warmup': 0.1,  # below 1: share of the steps; else: steps
                'b1': 0.9,
                'b2': 0.999,
                'eps': 1e-6,
                'weight_decay': 0.01,
                'clip': 1.0,
                'layer_decay': 1.0,  # of the learning rate, from layer to layer; ELECTRA: 0.8
                'layer_rule': 'paper',  # or electra: its code's exponents (bertx/tasks/layer_rates.py)
            },
            'train': {
                'batch': 32,
                'epochs': 3,
                'steps': 0,  # 0: as many as the epochs have
                'examples': 0,  # a fixed random subset of each task's; 0: all
                'dropout': 0.1,
                'attention_dropout': 0.1,
                'reinit_layers': 0,  # of the top, with fresh weights (Zhang et al. 2021)
                'evaluate_every': 0,  # steps; 0: once an epoch
                'patience': 0,  # evaluations without a better one before it ends; 0: never early
                'keep': 'best',  # on dev; or last
                'log_every': 10,
                'save_weights': True,
            },
            'evaluation': {'batch': 64, 'examples': 0},  # examples of dev and test, at most; 0: all
        }
    )
