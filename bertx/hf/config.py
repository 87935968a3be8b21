"""config.json of transformers, to and from `EncoderConfig`.

What transformers assumes where a key is absent is assumed here; what bertx has no encoder for is refused.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bertx.encoder_config import EXECUTION, EncoderConfig
from bertx.errors import BadInput, unknown
from bertx.families import FAMILIES

# The first name of a function is the one that is written.
ACTIVATIONS = {
    'gelu': 'gelu',
    'gelu_python': 'gelu',
    'gelu_new': 'gelu_tanh',
    'gelu_fast': 'gelu_tanh',
    'gelu_pytorch_tanh': 'gelu_tanh',
    'relu': 'relu',
    'tanh': 'tanh',
}
_WRITTEN = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
MOST = 2**31  # beyond any size of a model
# No weights depend on these, and transformers has no word for them.
UNSPOKEN = ('family', 'place_gain', 'value_gain', 'precision', 'mask_decoder', *EXECUTION)


class Settings:
    """The keys of a config.json. Errors name the file, the key and its value."""

    def __init__(self, content: dict[str, Any], where: str = 'config.json'):
        self.content, self.where = content, where

    @classmethod
    def load(cls, file: Path) -> 'Settings':
        try:
            content = json.loads(file.read_text('utf-8'))
        except FileNotFoundError:
            raise BadInput(f'there is no {file}; a Hugging Face folder has one') from None
        except OSError as error:
            raise BadInput(f'{file} cannot be read ({error.strerror}); a file that you may read would do') from None
        except ValueError as error:
            raise BadInput(f'{file} is no JSON ({error}); copy the folder again') from None
        if not isinstance(content, dict):
            raise BadInput(f'{file} holds no keys; copy the folder again')
        return cls(content, str(file))

    def get(self, key: str, default: Any = None) -> Any:
        value = self.content.get(key)
        return default if value is None else value

    def number(self, key: str, default: float | None = None) -> Any:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not -MOST < value < MOST:
            raise BadInput(f'{self.where}: {key} is {str(value)[:40]!r}; a number below 2**31 would do')
        return value

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.number(key, default)
        if value != int(value) or value < least:
            raise BadInput(f'{self.where}: {key} is {value}; a whole number from {least} on would do')
        return int(value)

    def activation(self, key: str, default: str) -> str:
        name = self.get(key, default)
        if not isinstance(name, str) or name not in ACTIVATIONS:
            raise unknown(f'{self.where}: {key}', str(name), ACTIVATIONS)
        return ACTIVATIONS[name]

    def must(self, key: str, *wanted: Any, default: Any = None) -> None:
        """Raises BadInput unless it has one of these values; where it is absent, the default."""
        value = self.get(key, wanted[0] if default is None else default)
        if value not in wanted:
            raise BadInput(f'{self.where}: {key} is {value!r}; bertx has no such encoder, {wanted[0]!r} would do')

    def names(self, key: str) -> list[str]:
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(x, str) for x in value):
            raise BadInput(f'{self.where}: {key} is {value!r}; a list of names would do')
        return value

    @property
    def architecture(self) -> str:
        return (self.names('architectures') or [''])[0]


class Spelling(NamedTuple):
    """How a `model_type` calls the fields of an EncoderConfig."""

    family: str
    keys: dict[str, str]  # field -> key
    defaults: dict[str, Any]  # of keys that may be absent, transformers' own
    read: Callable[[Settings], dict[str, Any]] = lambda _: {}  # fields that are not one key
    write: Callable[[EncoderConfig, int], dict[str, Any]] = lambda *_: {}  # and their keys, given the id of [PAD]


SIZES = {
    'vocab_size': 'vocab_size',
    'layers': 'num_hidden_layers',
    'width': 'hidden_size',
    'heads': 'num_attention_heads',
    'mlp_width': 'intermediate_size',
    'max_positions': 'max_position_embeddings',
    'std': 'initializer_range',
    'activation': 'hidden_act',
    'norm_eps': 'layer_norm_eps',
    'type_vocab': 'type_vocab_size',
}
DEFAULTS = {'initializer_range': 0.02, 'hidden_act': 'gelu', 'layer_norm_eps': 1e-12, 'type_vocab_size': 2}


def _read_roberta(settings: Settings) -> dict[str, Any]:
    """Positions begin behind the id of [PAD]: fairseq's make_positions."""
    offset = settings.whole('pad_token_id', 1, least=0) + 1
    return {'position_offset': offset, 'max_positions': settings.whole('max_position_embeddings') - offset}


def _write_roberta(c: EncoderConfig, pad_id: int) -> dict[str, Any]:
    return {'max_position_embeddings': c.max_positions + pad_id + 1}


def _read_albert(settings: Settings) -> dict[str, Any]:
    settings.must('inner_group_num', 1)
    groups, layers = settings.whole('num_hidden_groups', 1), settings.whole('num_hidden_layers')
    if layers % groups:
        raise BadInput(f'{settings.where}: num_hidden_groups is {groups}; a divisor of {layers} layers would do')
    return {'groups': groups}


def _write_albert(c: EncoderConfig, _: int) -> dict[str, Any]:
    return {'num_hidden_groups': c.groups or c.layers, 'inner_group_num': 1}


def _read_deberta(settings: Settings) -> dict[str, Any]:
    width = settings.whole('hidden_size')
    settings.must('relative_attention', True, default=False)
    settings.must('position_biased_input', False, default=True)
    kinds = settings.get('pos_att_type', [])
    if isinstance(kinds, str):
        kinds = [x.strip() for x in kinds.lower().split('|')]
    if not isinstance(kinds, list) or sorted(map(str, kinds)) != ['c2p', 'p2c']:
        raise BadInput(f"{settings.where}: pos_att_type is {kinds!r}; bertx has no such encoder, 'c2p|p2c' would do")
    settings.must('max_relative_positions', -1, 0, settings.whole('max_position_embeddings'))
    settings.must('attention_head_size', width // settings.whole('num_attention_heads'))
    for key in ('embedding_size', 'pooler_hidden_size'):
        settings.must(key, width)
    settings.must('talking_head', False)
    settings.must('conv_kernel_size', 0)
    if settings.get('model_type') == 'deberta':
        settings.must('norm_rel_ebd', 'none')
        settings.must('position_buckets', -1, 0)
        return {}
    settings.must('share_att_key', True, default=False)
    settings.must('norm_rel_ebd', 'layer_norm', default='none')
    return {'relative_buckets': max(0, settings.whole('position_buckets', -1, least=-1))}


def _write_deberta(c: EncoderConfig, _: int) -> dict[str, Any]:
    shared = {'position_buckets': c.relative_buckets or -1, 'share_att_key': True, 'norm_rel_ebd': 'layer_norm'}
    return {
        'relative_attention': True,
        'position_biased_input': False,
        'pos_att_type': ['c2p', 'p2c'],
        'max_relative_positions': -1,
    } | (shared if c.relative_shared else {})


def _read_modernbert(settings: Settings) -> dict[str, Any]:
    """Either as it was published (a number of layers, two thetas) or as transformers 5 writes it (lists and dicts)."""
    settings.must('decoder_bias', True)
    bias = settings.get('attention_bias', False)
    for key in ('mlp_bias', 'norm_bias', 'classifier_bias'):
        settings.must(key, bias, default=False)
    settings.must('classifier_activation', settings.get('hidden_activation', 'gelu'), default='gelu')
    every, layers = settings.whole('global_attn_every_n_layers', 0, least=0), settings.whole('num_hidden_layers')
    kinds = settings.names('layer_types')
    if not every:
        whole = [i for i, kind in enumerate(kinds) if i and kind == 'full_attention']
        every = (whole or [layers])[0] if kinds else 3
    pattern = ['sliding_attention' if i % every else 'full_attention' for i in range(layers)]
    if kinds and kinds != pattern:
        raise BadInput(
            f'{settings.where}: layer_types is {kinds}; every nth layer full_attention, from the first, would do'
        )
    pooler = settings.activation('classifier_activation', 'gelu')
    fields = {'bias': bias, 'global_every': every, 'pooler': pooler}
    for field, key, kind, default in (
        ('rotary_base', 'global_rope_theta', 'full_attention', 160_000.0),
        ('local_rotary_base', 'local_rope_theta', 'sliding_attention', 10_000.0),
    ):
        parameters = settings.get('rope_parameters', {})
        if not isinstance(parameters, dict) or not isinstance(own := parameters.get(kind) or {}, dict):
            raise BadInput(
                f'{settings.where}: rope_parameters is {parameters!r}; an object for each layer type would do'
            )
        rope = Settings(own, f'{settings.where}: rope_parameters.{kind}')
        rope.must('rope_type', 'default')
        if field == 'local_rotary_base' and settings.content.get(key, default) is None:
            default = fields['rotary_base']  # transformers before 5: as the global one
        fields[field] = float(rope.number('rope_theta', settings.number(key, default)))
    settings.must('rope_scaling', None, {})
    return fields


def _write_modernbert(c: EncoderConfig, _: int) -> dict[str, Any]:
    """As published, which every version of transformers reads."""
    return {
        'global_attn_every_n_layers': c.global_every,
        'global_rope_theta': c.rotary_base,
        'local_rope_theta': c.local_rotary_base,
        'classifier_activation': _WRITTEN[c.pooler],
        'classifier_pooling': 'cls',
        'decoder_bias': True,
    } | {f'{layer}_bias': c.bias for layer in ('attention', 'mlp', 'norm', 'classifier')}


_WITH_EMBEDDING = SIZES | {'embedding_width': 'embedding_size'}
_DEBERTA = SIZES | {'pooler': 'pooler_hidden_act'}
_DEBERTA_DEFAULTS = DEFAULTS | {'type_vocab_size': 0, 'layer_norm_eps': 1e-7, 'pooler_hidden_act': 'gelu'}
_DISTILBERT = {'layers': 'n_layers', 'width': 'dim', 'heads': 'n_heads', 'mlp_width': 'hidden_dim'}
_DISTILBERT |= {'activation': 'activation'}

SPELLINGS = {
    'bert': Spelling('bert', SIZES, DEFAULTS),
    'roberta': Spelling('roberta', SIZES, DEFAULTS, _read_roberta, _write_roberta),
    'albert': Spelling(
        'albert', _WITH_EMBEDDING, DEFAULTS | {'embedding_size': 128, 'hidden_act': 'gelu_new'},
        _read_albert, _write_albert,
    ),
    'electra': Spelling('electra', _WITH_EMBEDDING, DEFAULTS | {'embedding_size': 128}),
    'distilbert': Spelling(
        'distilbert', {k: v for k, v in (SIZES | _DISTILBERT).items() if k not in ('type_vocab', 'norm_eps')},
        {'initializer_range': 0.02, 'activation': 'gelu'},
    ),
    'deberta': Spelling('deberta', _DEBERTA, _DEBERTA_DEFAULTS, _read_deberta, _write_deberta),
    'deberta-v2': Spelling('deberta_v3', _DEBERTA, _DEBERTA_DEFAULTS, _read_deberta, _write_deberta),
    'modernbert': Spelling(
        'modernbert',
        {k: v for k, v in SIZES.items() if k != 'type_vocab'}
        | {'activation': 'hidden_activation', 'norm_eps': 'norm_eps', 'local_window': 'local_attention'},
        {'initializer_range': 0.02, 'hidden_activation': 'gelu', 'norm_eps': 1e-5, 'local_attention': 128},
        _read_modernbert, _write_modernbert,
    ),
}  # fmt: skip
MODEL_TYPES = {spelling.family: name for name, spelling in SPELLINGS.items()} | {'spanbert': 'bert'}


def read(settings: Settings) -> EncoderConfig:
    """Raises BadInput for what bertx cannot express."""
    kind = str(settings.get('model_type', ''))
    if kind not in SPELLINGS:
        raise unknown(f'{settings.where}: model_type', str(kind), SPELLINGS)
    spelling = SPELLINGS[kind]
    for key in ('is_decoder', 'add_cross_attention'):
        settings.must(key, False)
    settings.must('position_embedding_type', 'absolute')
    settings.must('pruned_heads', {})
    settings.must('quantization_config', {})
    fields: dict[str, Any] = {}
    for field, key in spelling.keys.items():
        if field in ('activation', 'pooler'):
            fields[field] = settings.activation(key, spelling.defaults[key])
        elif field in ('std', 'norm_eps'):
            fields[field] = settings.number(key, spelling.defaults[key])
        else:
            fields[field] = settings.whole(key, spelling.defaults.get(key), least=int(field != 'type_vocab'))
    fields |= spelling.read(settings)
    if fields.get('embedding_width') == fields['width']:
        fields['embedding_width'] = 0
    if fields['width'] % fields['heads']:
        raise BadInput(
            f'{settings.where}: {fields["heads"]} attention heads do not divide a width of {fields["width"]}'
        )
    return EncoderConfig(family=spelling.family, **FAMILIES[spelling.family] | fields)


def write(c: EncoderConfig, kind: str, pad_id: int, pooled: bool) -> dict[str, Any]:
    """The keys of a config.json of a model_type. pooled: whether there is a head that `pooler` matters to.

    They are read again; raises BadInput for a field that does not come back.
    """
    spelling = SPELLINGS[kind]
    settings = {'model_type': kind}
    for field, key in spelling.keys.items():
        value: Any = c.table_width if field == 'embedding_width' else getattr(c, field)
        settings[key] = _WRITTEN[value] if field in ('activation', 'pooler') else value
    settings |= spelling.write(c, pad_id) | {'pad_token_id': pad_id}
    found = read(Settings(settings))
    unspoken = (*UNSPOKEN, *(() if pooled else ('pooler',)))
    for name in (field.name for field in dataclasses.fields(c)):
        ours, back = getattr(c, name), getattr(found, name)
        if name == 'embedding_width':
            ours, back = c.table_width, found.table_width
        if ours != back and name not in unspoken:
            raise BadInput(
                f'the encoder has {name}={ours!r}, which the {kind} of transformers has not; {back!r} would do'
            )
    return settings
