"""What a token objective teaches: thirteen of them on the same text, judged on the same tasks.

    python -m experiments.sweep --config=configs/sweeps/token_objectives.py --workdir=runs/token_objectives

Three seeds of 1.0 M tokens for each arm. MLM and the detection of replaced tokens are measured by heads that are fitted
on the frozen encoder, alike for all arms; for the causal one that is a use it was not trained for. The encoder is
ModernBERT's: at this size BERT's learned positions take more than these tokens before any of it uses context.

ELECTRA's Table 5 (Clark et al. 2020) has the order ELECTRA 85.0, All-Tokens MLM 84.3, Replace MLM 82.4, ELECTRA 15 %
82.4, BERT 82.2 in GLUE, after a training 100,000 times as long.
"""

from bertx.sweep import Sweep, arm, chain, prod, seeds
from configs.sweeps import nsp_vs_sop


def get_config(size: str = 'tiny'):
    config = nsp_vs_sop.get_config(size)
    config.encoder.family = 'modernbert'
    config.train.batch = 32
    config.train.steps = 500
    config.evaluation.tasks = config.evaluation.refit.tasks = ('mlm', 'random_token')
    return config


def sweep() -> Sweep:
    arms = chain(
        arm('mlm', objectives={'mlm': {}}),
        arm('words', objectives={'mlm': {'select': {'name': 'whole_words'}}}),
        arm('ngrams', objectives={'mlm': {'select': {'name': 'ngrams'}}}),
        arm('sbo', objectives={'sbo': {}}),
        arm('electra', objectives={'electra': {}}),
        arm('electra 15 %', objectives={'electra': {'loss': 'masked'}}),
        arm('replace mlm', objectives={'replace_mlm': {}}),
        arm('all tokens mlm', objectives={'all_tokens_mlm': {}}),
        arm('clm', objectives={'clm': {}}),
        arm('shuffled', objectives={'shuffled_token': {}}),
        arm('random', objectives={'random_token': {}}),
        arm('token type', objectives={'token_type': {}}),
        arm('first char', objectives={'first_char': {}}),
    )
    return prod(arms, seeds(3))
