"""config.json of transformers: what the published ones say, what is refused, and that all of ours come back."""

import dataclasses

import pytest

from bertx.config import EXECUTION as OF_RUNS
from bertx.encoder_config import EXECUTION
from bertx.errors import BadInput
from bertx.families import FAMILIES, encoder_of, sizes
from bertx.hf import config as hf_config
from bertx.hf.config import MODEL_TYPES, Settings

BASE = {
    'hidden_size': 768, 'intermediate_size': 3072, 'num_attention_heads': 12, 'num_hidden_layers': 12,
    'max_position_embeddings': 512, 'hidden_act': 'gelu', 'initializer_range': 0.02,
}  # fmt: skip
DEBERTA = BASE | {
    'layer_norm_eps': 1e-7, 'type_vocab_size': 0, 'relative_attention': True, 'max_relative_positions': -1,
    'position_biased_input': False, 'pooler_hidden_size': 768, 'pooler_hidden_act': 'gelu',
}  # fmt: skip
V3 = {'position_buckets': 256, 'norm_rel_ebd': 'layer_norm', 'share_att_key': True}
MODERN = {
    'model_type': 'modernbert', 'vocab_size': 50368, 'hidden_size': 768, 'intermediate_size': 1152,
    'num_attention_heads': 12, 'num_hidden_layers': 22, 'max_position_embeddings': 8192, 'hidden_activation': 'gelu',
    'norm_eps': 1e-5, 'layer_norm_eps': 1e-5, 'local_attention': 128, 'attention_bias': False, 'mlp_bias': False,
    'norm_bias': False, 'classifier_bias': False, 'decoder_bias': True, 'classifier_activation': 'gelu',
    'classifier_pooling': 'mean', 'position_embedding_type': 'absolute', 'pad_token_id': 50283,
}  # fmt: skip
OLD = {'global_attn_every_n_layers': 3, 'global_rope_theta': 160000.0, 'local_rope_theta': 10000.0}
KINDS = ['sliding_attention' if i % 3 else 'full_attention' for i in range(22)]
NEW = {
    'layer_types': KINDS,
    'rope_parameters': {
        'full_attention': {'rope_theta': 160000.0, 'rope_type': 'default'},
        'sliding_attention': {'rope_theta': 10000.0, 'rope_type': 'default'},
    },
}
# What the folders of the released weights have in them, as far as it matters; some keys are absent there too.
PUBLISHED = [
    ('bert', 'base', BASE | {'model_type': 'bert', 'vocab_size': 30522, 'layer_norm_eps': 1e-12}),
    (
        'roberta', 'base',
        BASE | {'model_type': 'roberta', 'vocab_size': 50265, 'layer_norm_eps': 1e-5, 'type_vocab_size': 1}
        | {'max_position_embeddings': 514, 'pad_token_id': 1},
    ),
    (
        'albert', 'base',
        BASE | {'model_type': 'albert', 'vocab_size': 30000, 'embedding_size': 128, 'hidden_act': 'gelu_new'}
        | {'inner_group_num': 1, 'num_hidden_groups': 1, 'gap_size': 0},
    ),
    (
        'electra', 'small',
        BASE | {'model_type': 'electra', 'vocab_size': 30522, 'embedding_size': 128, 'hidden_size': 256}
        | {'intermediate_size': 1024, 'num_attention_heads': 4},
    ),
    (
        'distilbert', 'base',
        {'model_type': 'distilbert', 'vocab_size': 30522, 'dim': 768, 'hidden_dim': 3072, 'n_heads': 12, 'n_layers': 6}
        | {'activation': 'gelu', 'max_position_embeddings': 512, 'sinusoidal_pos_embds': False},
    ),
    ('deberta', 'base', DEBERTA | {'model_type': 'deberta', 'vocab_size': 50265, 'pos_att_type': 'c2p|p2c'}),
    (
        'deberta_v3', 'base',
        DEBERTA | V3 | {'model_type': 'deberta-v2', 'vocab_size': 128100, 'pos_att_type': ['p2c', 'c2p']},
    ),
    ('modernbert', 'base', MODERN | OLD),
    ('modernbert', 'base', MODERN | NEW),
    ('modernbert', 'base', MODERN | OLD | {'layer_types': KINDS}),
]  # fmt: skip
BY_TYPE = {content['model_type']: content for _, _, content in PUBLISHED}


@pytest.mark.parametrize(('family', 'size', 'content'), PUBLISHED)
def test_published(family, size, content):
    assert hf_config.read(Settings(content)) == encoder_of(family, size, content['vocab_size'])


@pytest.mark.parametrize('family', FAMILIES)
def test_all_of_ours_come_back(family):
    for size in sizes(family):
        ours = encoder_of(family, size, 1000, std=0.05)
        written = hf_config.write(ours, MODEL_TYPES[family], 1, pooled=True)
        found = hf_config.read(Settings(written))
        if ours.width == ours.embedding_width:
            ours = dataclasses.replace(ours, embedding_width=0)
        assert dataclasses.replace(found, family=family) == ours


def test_how_an_encoder_is_run_is_no_matter():
    assert {name.removeprefix('encoder.') for name in OF_RUNS if name.startswith('encoder.')} <= set(EXECUTION)
    ours = encoder_of('bert', 'tiny', 1000, attention='cudnn', unroll=7, remat=True, precision='bfloat16')
    assert hf_config.read(Settings(hf_config.write(ours, 'bert', 0, pooled=True))) == encoder_of('bert', 'tiny', 1000)


REFUSED = [
    ('bert', {'vocab_size': int('9' * 400)}, ['vocab_size', '999', 'below']),
    ('bert', {'hidden_size': 1e300}, ['hidden_size', '1e+300', 'below']),
    ('deberta', {'pos_att_type': 5}, ['pos_att_type', '5']),
    ('modernbert', {'layer_types': 5, 'global_attn_every_n_layers': None}, ['layer_types is 5']),
    ('bert', {'is_decoder': True}, ['is_decoder', 'True']),
    ('bert', {'hidden_act': 'swish'}, ['hidden_act', "'swish'"]),
    ('bert', {'position_embedding_type': 'relative_key'}, ['position_embedding_type', 'relative_key']),
    ('bert', {'num_attention_heads': 7}, ['7 attention heads']),
    ('bert', {'hidden_size': '768'}, ['hidden_size', "'768'"]),
    ('bert', {'vocab_size': None}, ['vocab_size', 'None']),
    ('bert', {'model_type': 'gpt2'}, ['model_type', "'gpt2'"]),
    ('bert', {'pruned_heads': {'1': [0]}}, ['pruned_heads']),
    ('albert', {'inner_group_num': 2}, ['inner_group_num', '2']),
    ('albert', {'num_hidden_groups': 5}, ['num_hidden_groups', '5']),
    ('deberta', {'talking_head': True}, ['talking_head']),
    ('deberta', {'pos_att_type': 'c2p'}, ['pos_att_type', "'c2p'"]),
    ('deberta', {'position_biased_input': None}, ['position_biased_input', 'True']),
    ('deberta', {'relative_attention': False}, ['relative_attention', 'False']),
    ('deberta', {'max_relative_positions': 128}, ['max_relative_positions', '128']),
    ('deberta-v2', {'conv_kernel_size': 3}, ['conv_kernel_size', '3']),
    ('deberta-v2', {'share_att_key': False}, ['share_att_key', 'False']),
    ('deberta-v2', {'norm_rel_ebd': None}, ['norm_rel_ebd', 'none']),
    ('deberta-v2', {'attention_head_size': 32}, ['attention_head_size', '32']),
    ('modernbert', {'mlp_bias': True}, ['mlp_bias', 'True']),
    ('modernbert', {'decoder_bias': False}, ['decoder_bias', 'False']),
    ('modernbert', {'layer_types': ['sliding_attention', *KINDS[1:]]}, ['layer_types']),
    (
        'modernbert',
        {'rope_parameters': {'full_attention': {'rope_theta': 1e4, 'rope_type': 'yarn'}}},
        ['rope_parameters.full_attention', 'rope_type', "'yarn'"],
    ),
    ('modernbert', {'classifier_activation': 'relu'}, ['classifier_activation', "'relu'"]),
]


@pytest.mark.parametrize(('kind', 'change', 'words'), REFUSED)
def test_what_bertx_has_not_is_refused(kind, change, words):
    with pytest.raises(BadInput) as error:
        hf_config.read(Settings(BY_TYPE[kind] | change, 'folder/config.json'))
    assert '\n' not in str(error.value)
    for word in ('folder/config.json', *words):
        assert word in str(error.value)


@pytest.mark.parametrize(
    ('family', 'change'),
    [
        ('bert', {'groups': 1}),
        ('bert', {'embedding_width': 64}),
        ('bert', {'causal': True}),
        ('bert', {'positions': 'rotary'}),
        ('bert', {'pooler': 'relu'}),
        ('distilbert', {'norm_eps': 1e-5}),
        ('deberta', {'relative_buckets': 32}),
        ('modernbert', {'type_vocab': 2}),
        ('electra', {'delta_embeddings': True}),
    ],
)
def test_what_transformers_has_not_is_refused(family, change):
    config = encoder_of(family, 'tiny', 1000, **change)
    with pytest.raises(BadInput, match=next(iter(change))):
        hf_config.write(config, MODEL_TYPES[family], 0, pooled=True)


def test_local_theta_of_null_is_the_global_one():
    found = hf_config.read(Settings(MODERN | {'global_rope_theta': 5e4, 'local_rope_theta': None}))
    assert (found.rotary_base, found.local_rotary_base) == (5e4, 5e4)


def test_from_where_the_pad_token_says_roberta_counts():
    content = BY_TYPE['roberta'] | {'pad_token_id': 0}
    found = hf_config.read(Settings(content))
    assert (found.position_offset, found.max_positions) == (1, 513)
