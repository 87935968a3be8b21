"""Weights from and to transformers: the same numbers as torch gives, and the same bits after going there and back."""

import functools
import inspect
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bertx import heads, hf, hf_config
from bertx.encoder import encode
from bertx.text.tokenizer import Tokenizer, _wordpiece
from bertx.types import View

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
safetensors_torch = pytest.importorskip('safetensors.torch')

V, L, REAL = 50, 20, (20, 13, 2)
SIZES = dict(
    vocab_size=V, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24,
)  # fmt: skip
DEBERTA = SIZES | dict(relative_attention=True, position_biased_input=False, pos_att_type='c2p|p2c', type_vocab_size=0)
SPECIAL = dict(bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, pad_token_id=0)
# name -> prefix of the classes, config
FAMILIES = {
    'bert': ('Bert', SIZES),
    'roberta': ('Roberta', SIZES | dict(type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5)),
    'albert': ('Albert', SIZES | dict(embedding_size=8)),
    'albert_groups': ('Albert', SIZES | dict(embedding_size=8, num_hidden_layers=4, num_hidden_groups=2)),
    'electra': ('Electra', SIZES | dict(embedding_size=16)),
    'electra_small': ('Electra', SIZES | dict(embedding_size=8)),
    'distilbert': (
        'DistilBert',
        dict(vocab_size=V, dim=16, n_layers=3, n_heads=2, hidden_dim=24, max_position_embeddings=24),
    ),
    'deberta': ('Deberta', DEBERTA),
    'deberta_v3': (
        'DebertaV2',
        DEBERTA | dict(position_buckets=4, share_att_key=True, norm_rel_ebd='layer_norm'),
    ),
    'modernbert': (
        'ModernBert',
        SIZES | SPECIAL | dict(num_hidden_layers=4, global_attn_every_n_layers=3, local_attention=6),
    ),
}
TASKS = {
    '': ('AutoModel', ''),
    'ForPreTraining': ('AutoModelForPreTraining', ''),
    'ForMaskedLM': ('AutoModelForMaskedLM', 'mlm'),
    'ForNextSentencePrediction': ('AutoModelForNextSentencePrediction', 'nsp'),
    'ForSequenceClassification': ('AutoModelForSequenceClassification', 'classify'),
    'ForTokenClassification': ('AutoModelForTokenClassification', 'tag'),
    'ForQuestionAnswering': ('AutoModelForQuestionAnswering', 'qa'),
}
PRETRAINING = {'bert': ['mlm', 'nsp'], 'albert': ['mlm', 'sop'], 'electra': ['electra']}


def tolerance(family: str) -> float:
    return 5e-5 if family.startswith('deberta') else 2e-5


def name_of(family: str, task: str) -> str:
    return FAMILIES[family][0] + (task or 'Model')


CASES = [(family, task) for family in FAMILIES for task in TASKS if hasattr(transformers, name_of(family, task))]


def wordpieces(pad: int = 0, size: int = V) -> Tokenizer:
    """[PAD] at a place of its own."""
    names = ['[CLS]', '[SEP]', '[UNK]', '[MASK]']
    names.insert(pad, '[PAD]')
    names += [chr(ord('a') + i) for i in range(26)]
    names += [f'##{chr(ord("a") + i)}' for i in range(size - len(names))]
    return Tokenizer(_wordpiece({name: i for i, name in enumerate(names)}, True).to_str())


def random_model(family: str, task: str, **more):
    """With other numbers everywhere: a norm of ones or a bias of zeros would hide an error."""
    settings = FAMILIES[family][1] | more
    config = getattr(transformers, FAMILIES[family][0] + 'Config')(**settings)
    config._attn_implementation = 'eager'
    torch.manual_seed(0)
    model = getattr(transformers, name_of(family, task))(config).eval()
    generator = torch.Generator().manual_seed(1)
    for name, x in model.named_parameters():
        noise = torch.randn(x.shape, generator=generator)
        x.data = 1.0 + 0.2 * noise if 'norm' in name.lower() and name.endswith('weight') else 0.3 * noise
    return model


def batch(pad: int) -> View:
    rng = np.random.default_rng(0)
    at = np.broadcast_to(np.arange(L, dtype=np.int32), (len(REAL), L))
    segment = (at < np.array(REAL)[:, None]).astype(np.int32)
    tokens = np.where(segment, rng.integers(5, V, at.shape), pad).astype(np.int32)
    return View(tokens, segment, at, ((at >= 5) & (segment > 0)).astype(np.int32))


def theirs(model, view: View, **options):
    accepted = inspect.signature(model.forward).parameters
    given = {'input_ids': view.tokens, 'attention_mask': view.segment_ids, 'token_type_ids': view.type_ids}
    if (
        model.config.get('type_vocab_size', 0) < 2
        if isinstance(model.config, dict)
        else getattr(model.config, 'type_vocab_size', 0) < 2
    ):
        given.pop('token_type_ids')
    given = {name: torch.tensor(np.array(x)).long() for name, x in given.items() if name in accepted}
    with torch.no_grad():
        return model(**given, **options)


forward = jax.jit(encode, static_argnums=(0, 3))


@functools.partial(jax.jit, static_argnums=(0, 1))
def apply(config, name: str, head, encoded):
    x, table = encoded.hidden_BLD, encoded.table_VE
    classes = lambda: head['classifier']['bias'].shape[0]
    if name == 'mlm':
        return heads.TokenHead(config).apply({'params': head}, encoded.for_tokens, table)
    if name == 'electra':
        return heads.ClassHead(config, 1).apply({'params': head['head']}, x)[..., 0]
    if name in ('tag', 'qa'):
        return heads.TagHead(config, classes()).apply({'params': head}, x)
    return heads.PairHead(config, classes()).apply({'params': head}, x[:, :1])[:, 0]


def outputs(found, names: list[str]) -> dict[str, np.ndarray]:
    """What transformers says, by head."""
    if names == ['qa']:
        return {'qa': torch.stack([found.start_logits, found.end_logits], -1).numpy()}
    if len(names) == 1:
        return {names[0]: found.logits.numpy()}
    second = found.seq_relationship_logits if 'nsp' in names else found.sop_logits
    return {names[0]: found.prediction_logits.numpy(), names[1]: second.numpy()}


def same(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


@pytest.mark.parametrize(('family', 'task'), CASES)
def test_there_and_back(family, task, tmp_path):
    more = {'num_labels': 3} if task in ('ForSequenceClassification', 'ForTokenClassification') else {}
    model = random_model(family, task, **more)
    model.save_pretrained(tmp_path / 'theirs')
    config, params = hf.read(tmp_path / 'theirs')
    pad = model.config.pad_token_id
    view = batch(pad)
    encoded = forward(config, params['encoder'], view, not task)
    close = functools.partial(np.testing.assert_allclose, atol=tolerance(family), rtol=tolerance(family))
    names = PRETRAINING[family.split('_')[0]] if task == 'ForPreTraining' else [TASKS[task][1]] if task else []

    def check(model):
        if not task:
            found = theirs(model, view, output_hidden_states=True, output_attentions=True)
            assert len(found.hidden_states) == config.layers + 1
            for row, real in enumerate(REAL):
                for n, x in enumerate(found.hidden_states):
                    close(encoded.states_NBLD[n, row, :real], x[row, :real].numpy())
                for n, x in enumerate(found.attentions):
                    close(encoded.attention_NBHQK[n, row, :, :real], x[row, :, :real].numpy())
            return
        for name, x in outputs(theirs(model, view), names).items():
            ours = apply(config, name, params[f'heads_{name}'], encoded)
            for row, real in enumerate(REAL):
                close(*((y[row] if x.ndim == 2 and name != 'electra' else y[row, :real]) for y in (ours, x)))

    check(model)
    cls, notes = hf.write(tmp_path / 'ours', config, params, wordpieces(pad))
    assert cls == name_of(family, task)
    assert not notes
    again_config, again = hf.read(tmp_path / 'ours')
    assert again_config == config
    same(params, again)
    loaded, info = getattr(transformers, TASKS[task][0]).from_pretrained(
        tmp_path / 'ours', output_loading_info=True, attn_implementation='eager'
    )
    assert type(loaded).__name__ == cls
    assert not any(info[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys')), info
    old, new = (x.state_dict() for x in (model, loaded))
    assert old.keys() == new.keys()
    assert all(torch.equal(x, new[name]) for name, x in old.items())
    check(loaded.eval())
