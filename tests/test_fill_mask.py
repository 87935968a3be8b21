"""[MASK] filled: one by one, several together, from a run and by the command; the Chinese config from end to end."""

import re

import numpy as np
import pytest

from bertx import fill_mask
from bertx.errors import BadInput
from bertx.fill_mask import Masked, joint, mask_predict, predictor
from bertx.pretrained import Pretrained
from bertx.text.tokenizer import Tokenizer
from configs import chinese
from experiments import fill_mask as command
from tests.test_cli import call
from tests.test_sweep import run

MASK, LOS, NEW, ANGELES, YORK, ORLEANS = range(6)
JOINT = {(LOS, ANGELES): 0.40, (NEW, YORK): 0.34, (NEW, ORLEANS): 0.25, (NEW, ANGELES): 0.01}
CITY = Masked(np.array([MASK, MASK]), np.arange(2))


def conditional(tokens_L):
    """[2, 6]: log-probabilities of each token of a city given the other one, where that is not masked."""
    p_KV = np.zeros((2, 6))
    for pair, p in JOINT.items():
        for k in range(2):
            if tokens_L[1 - k] in (MASK, pair[1 - k]):
                p_KV[k, pair[k]] += p
    with np.errstate(divide='ignore', invalid='ignore'):
        return np.log(p_KV / p_KV.sum(-1, keepdims=True))


def test_masks_that_are_filled_together_fit_together():
    independent, iterated = (mask_predict(conditional, CITY, MASK, iterations).tolist() for iterations in (1, 2))
    assert independent == [NEW, ANGELES]  # 'New' is the surer one, so 'Angeles' is thought over
    assert iterated == [NEW, YORK]
    assert mask_predict(conditional, CITY, MASK, 10).tolist() == iterated
    assert CITY.tokens_L.tolist() == [MASK, MASK]


def test_the_probability_of_a_choice_as_a_whole_is_the_joint_one():
    for pair, p in JOINT.items():
        assert joint(conditional, CITY, np.array(pair)) == pytest.approx(np.log(p))


def test_each_iteration_masks_the_least_sure_again():
    rng, seen = np.random.default_rng(0), []
    log_KV = np.log(rng.dirichlet(np.ones(20), 5))
    log_KV[:, 0] = -np.inf  # never the mask itself
    row = Masked(np.array([7, 0, 0, 8, 0, 0, 0, 9]), np.array([1, 2, 4, 5, 6]))

    def predict(tokens_L):
        seen.append(tokens_L.copy())
        return log_KV

    new_K = mask_predict(predict, row, 0, 3)
    assert new_K.tolist() == log_KV.argmax(-1).tolist()
    masked = [row.at_K[tokens_L[row.at_K] == 0].tolist() for tokens_L in seen]
    surest = row.at_K[np.argsort(log_KV.max(-1))]
    assert masked == [row.at_K.tolist(), sorted(surest[:3]), sorted(surest[:1])]  # 5 * 2 // 3 and 5 * 1 // 3
    assert all(tokens_L[[0, 3, 7]].tolist() == [7, 8, 9] for tokens_L in seen)


TEXT = 'The [MASK] sat on [MASK]'  # the same shape everywhere is compiled once


@pytest.fixture(scope='module')
def peer(tmp_path_factory):
    """The folder of a random model of transformers, and transformers' own way to fill masks with it."""
    torch = pytest.importorskip('torch')
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast, pipeline

    folder = tmp_path_factory.mktemp('peer')
    tokenizer = Tokenizer.train(['the cat sat on the mat'] * 3, 60)
    tokenizer.save(folder)
    torch.manual_seed(0)
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=tokenizer.vocab_size, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, max_position_embeddings=10, initializer_range=0.4,
        )
    ).eval()  # fmt: skip
    model.cls.predictions.bias.data.normal_()
    model.save_pretrained(folder)
    theirs = PreTrainedTokenizerFast(
        tokenizer_file=str(folder / 'tokenizer.json'), mask_token='[MASK]', pad_token='[PAD]', unk_token='[UNK]'
    )
    return str(folder), pipeline('fill-mask', model=model, tokenizer=theirs)


@pytest.fixture(scope='module')
def model(peer):
    return Pretrained.load(peer[0])


def test_equals_transformers(peer):
    folder, fill = peer
    size = Pretrained.load(folder).tokenizer.vocab_size
    lines = list(command.lines(folder, TEXT, size, None))
    assert lines[0] == '[CLS] the [MASK] sat on [MASK] [SEP]'
    at = [i for i, line in enumerate(lines) if line.startswith('[MASK]')]
    for first, theirs in zip(at, fill(TEXT, top_k=size), strict=True):
        assert len(theirs) == size
        found = [line.split() for line in lines[first + 1 : first + 1 + size]]
        assert [word for _, word in found] == [x['token_str'] for x in theirs]
        np.testing.assert_allclose([float(p) for p, _ in found], [x['score'] for x in theirs], atol=6e-5)


def test_what_stands_at_other_masks_is_read(model):
    row = fill_mask.read(model.tokenizer, TEXT)
    predict, tokens_L = predictor(model.encoder, model.params, row), row.tokens_L.copy()
    tokens_L[row.at_K[1]] = model.tokenizer.vocabulary['mat']
    assert abs(predict(tokens_L)[0] - predict(row.tokens_L)[0]).max() > 1e-3


def test_a_tokenizer_s_own_spelling_of_the_mask(model):
    tokenizer = Tokenizer(model.tokenizer.text.replace('[MASK]', '<mask>'))
    for mask in ('[MASK]', '<mask>'):
        row = fill_mask.read(tokenizer, f'the {mask} sat')
        assert tokenizer.decode(row.tokens_L) == '[CLS] the <mask> sat [SEP]'


def test_the_head_on_span_tokens_will_do(model):
    row = fill_mask.read(model.tokenizer, TEXT)
    spans = {'encoder': model.params['encoder'], 'heads_sbo': {'token': model.params['heads_mlm'], 'span': {}}}
    a, b = (predictor(model.encoder, params, row)(row.tokens_L) for params in (model.params, spans))
    np.testing.assert_array_equal(a, b)


def test_what_cannot_be_filled(peer, model):
    folder, size = peer[0], model.tokenizer.vocab_size
    for text, top, iterations, message in (
        ('the cat', 5, None, 'no mask; write'),
        ('[MASK]' * 9, 5, None, 'has 11 tokens .* reads 10'),
        (TEXT, 0, None, '--top=0; from 1 to'),
        (TEXT, size + 1, None, f'--top={size + 1}; from 1 to {size}'),
        (TEXT, 5, 0, '--iterations=0; 1 or more'),
    ):
        with pytest.raises(BadInput, match=message):
            list(command.lines(folder, text, top, iterations))
    assert predictor(model.encoder, model.params, fill_mask.read(model.tokenizer, '[MASK]' * 8))
    with pytest.raises(BadInput, match='no head that predicts masked tokens .*: heads_nsp'):
        others = {'encoder': model.params['encoder'], 'heads_nsp': {}}
        predictor(model.encoder, others, fill_mask.read(model.tokenizer, TEXT))


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    config = chinese.get_config()
    config.train.devices = 1
    ([planned], failed) = run(config, [{'arm': 'run'}], tmp_path_factory.mktemp('chinese'))
    assert not failed
    return planned.folder


def test_six_chinese_sentences(folder):
    found = list(command.lines(str(folder.path), '我 喜欢 [MASK] 学习', 2, None))
    assert found[:2] == ['[CLS] 我 喜欢 [MASK] 学习 [SEP]', '[MASK] 1']
    shares = {word: float(share) for share, word in map(str.split, found[2:])}
    assert shares.keys() == {'机器', '深度'}
    assert min(shares.values()) > 0.3


def test_what_has_no_validation_and_test_documents_is_not_measured(folder):
    assert folder.result['status'] == 'done' and folder.result['values'] == []
    assert {line['split'] for line in folder.metrics()} == {'train'}


def test_the_command(folder):
    done = call('fill_mask', f'--from={folder.path}', '--text=[MASK] 学习 很 [MASK]', '--top=1', '--iterations=2')
    assert done.returncode == 0, done.stderr
    first, *_, independent, iterated = done.stdout.splitlines()
    assert first == '[CLS] [MASK] 学习 很 [MASK] [SEP]'
    assert re.fullmatch(r'independent: 机器 有趣 \(log-probability -\d\.\d{4}\)', independent)
    assert iterated == independent.replace('independent', '2 iterations')
    done = call('fill_mask', f'--from={folder.path}', '--text=学习')
    assert done.returncode == 2 and 'Traceback' not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: the text '学习' has no mask")
    done = call('fill_mask', '--from=README.md', '--text=[MASK]')
    assert done.returncode == 2 and 'error: README.md holds no weights' in done.stderr
