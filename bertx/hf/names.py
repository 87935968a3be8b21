"""What transformers calls our parameters, model type by model type: the one table for reading and writing.

{i} is a layer or group of layers. Names with @ are the base model's, which has a prefix where the model has a head.
"""

import dataclasses
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A third of a tensor: query, key or value. per_head: those of a head lie together, not those of all heads."""

    name: str
    third: int
    per_head: bool = False


class Shifted(NamedTuple):
    """A norm at the end of our layer which is the next layer's first there, and behind the last layer has a name."""

    name: str
    last: str


@dataclasses.dataclass(frozen=True)
class Format:
    prefix: str
    encoder: dict[str, Any]  # module, or parameter where it has a name of its own -> tensor
    heads: dict[str, dict[str, str]]  # likewise; the more demanding of two that share a tensor first
    models: tuple[tuple[str, tuple[str, ...]], ...]  # class of transformers, heads that it has; with ?: may have
    tied: dict[str, str] = dataclasses.field(default_factory=dict)  # tensor -> the one that it must equal
    always_gelu: tuple[str, ...] = ()  # heads whose activation is not the config's


def _models(name: str, *pretraining: tuple[str, tuple[str, ...]], bare: tuple[str, ...] = ()):
    """Those with the most heads first, the bare one last."""
    tasks = (('SequenceClassification', 'classify'), ('TokenClassification', 'tag'), ('QuestionAnswering', 'qa'))
    found = [(f'{name}For{task}', names) for task, names in pretraining]
    return (*found, *((f'{name}For{task}', (head,)) for task, head in tasks), (f'{name}Model', bare))


_MLM = ('MaskedLM', ('mlm',))
_HAS_POOLER = ('pooler?',)
_EMBEDDINGS = {
    'embeddings/token': '@embeddings.word_embeddings',
    'embeddings/position': '@embeddings.position_embeddings',
    'embeddings/type': '@embeddings.token_type_embeddings',
    'embeddings/norm': '@embeddings.LayerNorm',
}
_LAYER = '@encoder.layer.{i}.'
_REST_OF_LAYER = {
    'layers/attention/output': _LAYER + 'attention.output.dense',
    'layers/attention_norm': _LAYER + 'attention.output.LayerNorm',
    'layers/mlp_in': _LAYER + 'intermediate.dense',
    'layers/mlp_out': _LAYER + 'output.dense',
    'layers/mlp_norm': _LAYER + 'output.LayerNorm',
}
_BERT = (
    _EMBEDDINGS
    | {f'layers/attention/{name}': f'{_LAYER}attention.self.{name}' for name in ('query', 'key', 'value')}
    | _REST_OF_LAYER
)
_POOLER = {'dense': '@pooler.dense'}
_TAG, _QA = {'classifier': 'classifier'}, {'classifier': 'qa_outputs'}
_PREDICTIONS = {
    'transform': 'cls.predictions.transform.dense',
    'norm': 'cls.predictions.transform.LayerNorm',
    'bias': 'cls.predictions.bias',
}
_OUT_PROJ = {'pooler/dense': 'classifier.dense', 'classifier': 'classifier.out_proj'}


def _tied(decoder: str, bias: str, table: str = '@embeddings.word_embeddings.weight') -> dict[str, str]:
    return {f'{decoder}.weight': table} | ({} if bias == f'{decoder}.bias' else {f'{decoder}.bias': bias})


def _deberta(name: str, attention: dict[str, Any], *rest: tuple[str, str]) -> Format:
    return Format(
        'deberta',
        _EMBEDDINGS | attention | _REST_OF_LAYER | {'place': '@encoder.rel_embeddings'} | dict(rest),
        {
            'mlm': _PREDICTIONS,
            # microsoft/DeBERTa's own, for a mask decoder; and the discriminator, which transformers has no class for
            'mlm_decoded': {
                'transform': 'lm_predictions.lm_head.dense',
                'norm': 'lm_predictions.lm_head.LayerNorm',
                'bias': 'lm_predictions.lm_head.bias',
            },
            'electra': {
                'norm': 'mask_predictions.LayerNorm',
                'detect/transform': 'mask_predictions.dense',
                'detect/classifier': 'mask_predictions.classifier',
            },
            'classify': {'pooler/dense': 'pooler.dense', 'classifier': 'classifier'},
            'tag': _TAG,
            'qa': _QA,
        },
        _models(name, ('MaskedLM', ('mlm', 'electra?')), ('MaskedLM', ('mlm_decoded', 'electra?')), bare=('electra?',)),
        _tied('cls.predictions.decoder', 'cls.predictions.bias'),
    )


_ALBERT = '@encoder.albert_layer_groups.{i}.albert_layers.0.'
_DISTIL = '@transformer.layer.{i}.'
_SELF = _LAYER + 'attention.self.'
_MODERN_POOLER = {'pooler/dense': 'head.dense', 'pooler/norm': 'head.norm', 'classifier': 'classifier'}

FORMATS = {
    'bert': Format(
        'bert',
        _BERT,
        {
            'mlm': _PREDICTIONS,
            'nsp': {'pooler/dense': '@pooler.dense', 'classifier': 'cls.seq_relationship'},
            'classify': {'pooler/dense': '@pooler.dense', 'classifier': 'classifier'},
            'tag': _TAG,
            'qa': _QA,
            'pooler': _POOLER,
        },
        _models('Bert', ('PreTraining', ('mlm', 'nsp')), _MLM, ('NextSentencePrediction', ('nsp',)), bare=_HAS_POOLER),
        _tied('cls.predictions.decoder', 'cls.predictions.bias'),
    ),
    'roberta': Format(
        'roberta',
        _BERT,
        {
            'mlm': {'transform': 'lm_head.dense', 'norm': 'lm_head.layer_norm', 'bias': 'lm_head.bias'},
            'classify': _OUT_PROJ,
            'tag': _TAG,
            'qa': _QA,
            'pooler': _POOLER,
        },
        _models('Roberta', _MLM, bare=_HAS_POOLER),
        _tied('lm_head.decoder', 'lm_head.bias'),
        ('mlm',),
    ),
    'albert': Format(
        'albert',
        _EMBEDDINGS
        | {'project': '@encoder.embedding_hidden_mapping_in'}
        | {f'layers/attention/{name}': f'{_ALBERT}attention.{name}' for name in ('query', 'key', 'value')}
        | {
            'layers/attention/output': _ALBERT + 'attention.dense',
            'layers/attention_norm': _ALBERT + 'attention.LayerNorm',
            'layers/mlp_in': _ALBERT + 'ffn',
            'layers/mlp_out': _ALBERT + 'ffn_output',
            'layers/mlp_norm': _ALBERT + 'full_layer_layer_norm',
        },
        {
            'mlm': {'transform': 'predictions.dense', 'norm': 'predictions.LayerNorm', 'bias': 'predictions.bias'},
            'sop': {'pooler/dense': '@pooler', 'classifier': 'sop_classifier.classifier'},
            'classify': {'pooler/dense': '@pooler', 'classifier': 'classifier'},
            'tag': _TAG,
            'qa': _QA,
            'pooler': {'dense': '@pooler'},
        },
        _models('Albert', ('PreTraining', ('mlm', 'sop')), _MLM, bare=_HAS_POOLER),
        _tied('predictions.decoder', 'predictions.bias'),
    ),
    'electra': Format(
        'electra',
        _BERT | {'project': '@embeddings_project'},
        {
            'electra': {
                'transform': 'discriminator_predictions.dense',
                'classifier': 'discriminator_predictions.dense_prediction',
            },
            'mlm': {
                'transform': 'generator_predictions.dense',
                'norm': 'generator_predictions.LayerNorm',
                'bias': 'generator_lm_head.bias',
            },
            'classify': _OUT_PROJ,
            'tag': _TAG,
            'qa': _QA,
        },
        _models('Electra', ('PreTraining', ('electra',)), _MLM),
        _tied('generator_lm_head', 'generator_lm_head.bias'),
        ('mlm',),
    ),
    'distilbert': Format(
        'distilbert',
        _EMBEDDINGS
        | {
            'layers/attention/query': _DISTIL + 'attention.q_lin',
            'layers/attention/key': _DISTIL + 'attention.k_lin',
            'layers/attention/value': _DISTIL + 'attention.v_lin',
            'layers/attention/output': _DISTIL + 'attention.out_lin',
            'layers/attention_norm': _DISTIL + 'sa_layer_norm',
            'layers/mlp_in': _DISTIL + 'ffn.lin1',
            'layers/mlp_out': _DISTIL + 'ffn.lin2',
            'layers/mlp_norm': _DISTIL + 'output_layer_norm',
        },
        {
            'mlm': {'transform': 'vocab_transform', 'norm': 'vocab_layer_norm', 'bias': 'vocab_projector.bias'},
            'classify': {'pooler/dense': 'pre_classifier', 'classifier': 'classifier'},
            'tag': _TAG,
            'qa': _QA,
        },
        _models('DistilBert', _MLM),
        _tied('vocab_projector', 'vocab_projector.bias'),
    ),
    'deberta': _deberta(
        'Deberta',
        {
            'layers/attention/query': Part(_SELF + 'in_proj', 0, per_head=True),
            'layers/attention/query/bias': _SELF + 'q_bias',
            'layers/attention/key': Part(_SELF + 'in_proj', 1, per_head=True),
            'layers/attention/value': Part(_SELF + 'in_proj', 2, per_head=True),
            'layers/attention/value/bias': _SELF + 'v_bias',
            'layers/attention/place_key': _SELF + 'pos_proj',
            'layers/attention/place_query': _SELF + 'pos_q_proj',
        },
    ),
    'deberta-v2': _deberta(
        'DebertaV2',
        {f'layers/attention/{name}': f'{_SELF}{name}_proj' for name in ('query', 'key', 'value')},
        ('place_norm', '@encoder.LayerNorm'),
    ),
    'modernbert': Format(
        'model',
        {
            'embeddings/token': '@embeddings.tok_embeddings',
            'embeddings/norm': '@embeddings.norm',
            'layers/attention/query': Part('@layers.{i}.attn.Wqkv', 0),
            'layers/attention/key': Part('@layers.{i}.attn.Wqkv', 1),
            'layers/attention/value': Part('@layers.{i}.attn.Wqkv', 2),
            'layers/attention/output': '@layers.{i}.attn.Wo',
            'layers/attention_norm': '@layers.{i}.mlp_norm',
            'layers/mlp_in': '@layers.{i}.mlp.Wi',
            'layers/mlp_out': '@layers.{i}.mlp.Wo',
            'layers/mlp_norm': Shifted('@layers.{i}.attn_norm', '@final_norm'),
        },
        {
            'mlm': {'transform': 'head.dense', 'norm': 'head.norm', 'bias': 'decoder.bias'},
            'classify': _MODERN_POOLER,
            'tag': _MODERN_POOLER,
            'qa': _MODERN_POOLER,
        },
        _models('ModernBert', _MLM),
        _tied('decoder', 'decoder.bias', '@embeddings.tok_embeddings.weight'),
    ),
}
