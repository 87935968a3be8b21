import dataclasses
import json

import numpy as np
import pytest
from analysis_cases import model, saved, treebank

from analysis.probing import features
from analysis.probing.features import Corpus, compute, pieces, untrained, view_of
from bertx.encoder import encode
from bertx.errors import BadInput
from bertx.pretrained import Pretrained

SENTENCES = [s.words for s in treebank(12)]


@pytest.fixture(scope='module')
def made():
    return model()


def states(made, row):
    tokens = row.tokens_L[None]
    return np.asarray(
        encode(made.encoder, made.params['encoder'], view_of(tokens, np.ones_like(tokens)), True).states_NBLD
    )[:, 0]


@pytest.mark.parametrize('pool', features.WORDS)
def test_words_and_sentences_are_what_the_encoder_says(made, tmp_path, pool):
    texts = [*SENTENCES, ['housecat', 'the', 'treedog']]
    found = compute(made, Corpus(texts), pool, tmp_path)
    assert isinstance(found.states_LND, np.memmap) and found.states_LND.shape[::2] == (3, 16)
    rows = pieces(made.tokenizer, texts, 24)
    starts = Corpus(texts).starts
    for i in (0, 5, 12):
        own = states(made, rows[i])
        for w in range(len(texts[i])):
            at = np.flatnonzero(rows[i].word_L == w)
            want = {'first': own[:, at[0]], 'last': own[:, at[-1]], 'mean': own[:, at].mean(1)}[pool]
            np.testing.assert_allclose(found.states_LND[:, found.rows['words'][starts[i] + w]], want, atol=2e-5)
        np.testing.assert_allclose(found.states_LND[:, found.rows['cls'][i]], own[:, 0], atol=2e-5)
        np.testing.assert_allclose(found.states_LND[:, found.rows['sentence'][i]], own[:, 1:-1].mean(1), atol=2e-5)
    assert (np.bincount(rows[12].word_L[1:-1]) > 1).any()  # or the three would be one


def test_words_without_a_piece_and_beyond_the_model_have_no_row(made, tmp_path, caplog):
    zero = '\u200b'  # the tokenizer drops it
    texts = [['the', zero, 'cat'], ['the'] * 30]
    found = compute(made, Corpus(texts), 'mean', tmp_path)
    assert np.isfinite(found.states_LND).all()  # though padding goes to 32, beyond the model's 24 places
    missing = np.flatnonzero(found.rows['words'] < 0)
    assert list(missing) == [1, *range(3 + 22, 33)]
    assert '9 words or sentences without a vector' in caplog.text and '1 sentences cut to 24' in caplog.text
    with pytest.raises(BadInput, match='no word of the text has a piece'):
        compute(made, Corpus([[zero]]), 'mean', tmp_path)


def test_the_cache_is_used_and_keyed(made, tmp_path, monkeypatch):
    corpus = Corpus(SENTENCES)
    first = compute(made, corpus, 'mean', tmp_path)
    monkeypatch.setattr(features, '_write', None)  # a second pass would fail
    np.testing.assert_array_equal(compute(made, corpus, 'mean', tmp_path).states_LND, first.states_LND)
    monkeypatch.undo()
    for other, text, pool in (
        (model(1), corpus, 'mean'),
        (made, Corpus(SENTENCES[1:]), 'mean'),
        (made, corpus, 'last'),
    ):
        before = len(list(tmp_path.iterdir()))
        compute(other, text, pool, tmp_path)
        assert len(list(tmp_path.iterdir())) == before + 1


def test_a_pass_that_dies_leaves_nothing_that_counts(made, tmp_path, monkeypatch):
    def die(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(features, '_pooled', die)
    with pytest.raises(KeyboardInterrupt):
        compute(made, Corpus(SENTENCES), 'mean', tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    assert np.isfinite(compute(made, Corpus(SENTENCES), 'mean', tmp_path).states_LND).all()


def test_another_tokenizers_cache_is_refused(made, tmp_path):
    compute(made, Corpus(SENTENCES), 'mean', tmp_path)
    (folder,) = tmp_path.iterdir()
    meta = json.loads((folder / 'meta.json').read_text())
    (folder / 'meta.json').write_text(json.dumps(meta | {'tokenizer': 'other'}))
    with pytest.raises(BadInput, match='another tokenizer than that of model0'):
        compute(made, Corpus(SENTENCES), 'mean', tmp_path)
    with pytest.raises(BadInput, match='middle'):
        compute(made, Corpus(SENTENCES), 'middle', tmp_path)


def test_an_untrained_encoder_has_the_shape_and_other_weights(made):
    fresh = untrained(made)
    assert fresh.folder == made.folder and list(fresh.params) == ['encoder']
    own, other = (m.params['encoder']['layers']['mlp_in']['kernel'] for m in (made, fresh))
    assert own.shape == other.shape and fresh.content != made.content
    assert not np.array_equal(untrained(made, 1).params['encoder']['layers']['mlp_in']['kernel'], other)


def test_a_run_reads_no_places_that_nothing_has_trained(made, tmp_path):
    folder = saved(made, tmp_path / 'run')
    assert features.longest(Pretrained.load(folder)) == 24
    config = {'rows': {'length': 10}, 'train': {'second': {'steps': 0, 'length': 0}}}
    (tmp_path / 'run' / 'config.json').write_text(json.dumps(config))
    trained = Pretrained.load(folder)
    assert features.longest(trained) == features.longest(untrained(trained)) == 10
    found = compute(trained, Corpus([['the'] * 30]), 'mean', tmp_path / 'cache')
    assert (found.rows['words'] >= 0).sum() == 8
    config['train']['second']['length'] = 16
    (tmp_path / 'run' / 'config.json').write_text(json.dumps(config))
    assert features.longest(trained) == 16
    rotary = dataclasses.replace(trained, encoder=dataclasses.replace(trained.encoder, positions='rotary'))
    assert features.longest(rotary) == 24
