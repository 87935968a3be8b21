"""Importance of heads against finite differences of a loss that is computed another way."""

import dataclasses

import jax
import numpy as np
import pytest
from analysis_cases import model, treebank

from analysis.heads import importance
from analysis.probing.features import Corpus, Pieces, view_of
from bertx import heads
from bertx.encoder import encode
from bertx.errors import BadInput

CORPUS = Corpus([s.words for s in treebank(5)])


def loss_of(made, p, at):
    """Of an encoder's parameters: nats of the masked pieces of one row, by hand."""
    tokens_L = p.tokens_L.copy()
    tokens_L[at] = made.tokenizer.mask_id

    @jax.jit
    def scores(params):
        encoded = encode(made.encoder, params, view_of(tokens_L[None], np.ones_like(tokens_L)[None]))
        head = heads.TokenHead(made.encoder)
        return head.apply({'params': made.params['heads_mlm']}, encoded.for_tokens, encoded.table_VE)[0]

    def loss(params):
        logits_LV = np.asarray(scores(params), np.float64)
        return np.mean([np.log(np.exp(logits_LV[i]).sum()) - logits_LV[i, p.tokens_L[i]] for i in at])

    return loss


@pytest.mark.parametrize('settings', [{}, {'prenorm': True, 'bias': False}, {'mask_decoder': True}], ids=str)
def test_it_is_the_slope_of_the_loss(settings):
    made = model(**settings)
    rows, eps = CORPUS.pieces(made.tokenizer, 24)[:2], 1e-2
    want = np.zeros((2, 2))
    for i, p in enumerate(rows):
        loss = loss_of(made, p, importance.masked(p, i))
        for n, h in np.ndindex(2, 2):
            sides = []
            for factor in (1 + eps, 1 - eps):
                params = jax.tree.map(np.array, made.params['encoder'])
                params['layers']['attention']['output']['kernel'][n, h] *= factor
                sides.append(loss(params))
            want[n, h] += abs(sides[0] - sides[1]) / (2 * eps) / len(rows)
    found = importance.measure(made, rows)
    assert want.min() > 1e-3
    np.testing.assert_allclose(found, want, rtol=0.02, atol=2e-4)
    np.testing.assert_allclose((importance.normalised(found) ** 2).sum(1), 1)


def test_shared_layers_count_each():
    """As an encoder that has the same weights in layers of their own."""
    shared = model(groups=1)
    own = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), shared.params['encoder']['layers'])
    params = shared.params | {'encoder': shared.params['encoder'] | {'layers': own}}
    free = dataclasses.replace(shared, encoder=dataclasses.replace(shared.encoder, groups=0), params=params)
    rows = CORPUS.pieces(shared.tokenizer, 24)
    found = importance.measure(shared, rows)
    np.testing.assert_allclose(found, importance.measure(free, rows), rtol=1e-5)
    assert abs(found[0] / found[1] - 1).min() > 1e-3


def test_a_head_that_adds_nothing_has_none_and_padding_changes_nothing():
    made = model()
    params = jax.tree.map(np.array, made.params)
    params['encoder']['layers']['attention']['output']['kernel'][1, 0] = 0
    idle = dataclasses.replace(made, params=params)
    rows = CORPUS.pieces(made.tokenizer, 24)
    found = importance.measure(idle, rows)
    assert found[1, 0] == 0 and found[1, 1] > 0 and importance.lines(found)[2][2].startswith('2 (1.00), 1 (0.00)')
    empty = Pieces(np.array([made.tokenizer.cls_id, made.tokenizer.sep_id], np.int32), np.array([-1, -1]), True)
    np.testing.assert_allclose(importance.measure(idle, [*rows, empty]), found, rtol=1e-5)


def test_masks_are_fixed_and_without_a_head_it_is_refused():
    made = model()
    p = Corpus([['cat'] * 20]).pieces(made.tokenizer, 60)[0]
    at = importance.masked(p, 3)
    assert len(at) == round(0.15 * (p.word_L >= 0).sum()) and (p.word_L[at] >= 0).all()
    np.testing.assert_array_equal(at, importance.masked(p, 3))
    bare = dataclasses.replace(made, params={'encoder': made.params['encoder']})
    with pytest.raises(BadInput, match='masked tokens'):
        importance.measure(bare, [p])
