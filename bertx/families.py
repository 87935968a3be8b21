"""The families of encoders that were published, as settings of the one encoder."""

from typing import Any

from bertx.encoder_config import EncoderConfig
from bertx.errors import one_of

_DEBERTA = {'positions': 'relative', 'type_vocab': 0, 'norm_eps': 1e-7, 'pooler': 'gelu'}

# What differs from BERT (Devlin et al. 2019), from the config files of the released weights.
FAMILIES: dict[str, dict[str, Any]] = {
    'bert': {},
    'roberta': {'position_offset': 2, 'type_vocab': 1, 'norm_eps': 1e-5},  # Liu et al. 2019; fairseq's padding id + 1
    'albert': {'embedding_width': 128, 'groups': 1, 'activation': 'gelu_tanh'},  # Lan et al. 2020
    'electra': {'pooler': 'gelu'},  # Clark et al. 2020
    'spanbert': {},  # Joshi et al. 2020
    'distilbert': {'type_vocab': 0, 'pooler': 'relu'},  # Sanh et al. 2019
    'deberta': _DEBERTA,  # He et al. 2021
    'deberta_v3': _DEBERTA | {'relative_buckets': 256, 'relative_shared': True},  # He et al. 2023
    'modernbert': {  # Warner et al. 2024
        'positions': 'rotary',
        'local_window': 128,
        'global_every': 3,
        'prenorm': True,
        'bias': False,
        'gated': True,
        'max_positions': 8192,
        'type_vocab': 0,
        'norm_eps': 1e-5,
        'pooler': 'gelu',
        'pooler_norm': True,
    },
}

# layers, width, heads, MLP width. Base and large: Devlin et al. 2019; the small ones: Turc et al. 2019. Every family
# has them all, so that a sweep can cross families at one size.
SIZES = {
    'tiny': (2, 128, 2, 512),
    'mini': (4, 256, 4, 1024),
    'small': (4, 512, 8, 2048),
    'medium': (8, 512, 8, 2048),
    'base': (12, 768, 12, 3072),
    'large': (24, 1024, 16, 4096),
}

# Sizes that a family was published with and that differ from these.
OWN_SIZES = {
    'albert': {'xlarge': (24, 2048, 16, 8192), 'xxlarge': (12, 4096, 64, 16384)},
    'electra': {'small': (12, 256, 4, 1024)},
    'distilbert': {'base': (6, 768, 12, 3072)},
    'deberta_v3': {'xsmall': (12, 384, 6, 1536), 'small': (6, 768, 12, 3072)},
    'modernbert': {'base': (22, 768, 12, 1152), 'large': (28, 1024, 16, 2624)},
}
OWN_EMBEDDINGS = {('electra', 'small'): 128}


def sizes(family: str) -> dict[str, tuple[int, int, int, int]]:
    return SIZES | OWN_SIZES.get(family, {})


def encoder_of(family: str, size: str, vocab_size: int, **changes) -> EncoderConfig:
    """A family's encoder at one of its sizes. Raises BadInput for names that there are not."""
    one_of('config.encoder.family', family, FAMILIES)
    one_of('config.encoder.size', size, sizes(family))
    layers, width, heads, mlp_width = sizes(family)[size]
    settings = {'layers': layers, 'width': width, 'heads': heads, 'mlp_width': mlp_width} | FAMILIES[family]
    if (family, size) in OWN_EMBEDDINGS:
        settings['embedding_width'] = OWN_EMBEDDINGS[family, size]
    return EncoderConfig(family=family, vocab_size=vocab_size, **settings | changes)
