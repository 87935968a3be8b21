import base64
import json
import re

import numpy as np
import pytest
import scipy.spatial.distance
from analysis_cases import model, treebank

from analysis import attention
from analysis.heads import dependency_heads, viewer, weights
from analysis.heads.dependency_heads import Arcs, choose
from analysis.probing.features import Corpus, view_of
from bertx.encoder import encode
from bertx.errors import BadInput


@pytest.fixture(scope='module')
def made():
    return model()


TREES = treebank(20)
CORPUS = Corpus([s.words for s in TREES])


def loop(made, row):
    """[N, H, n, n] of one text alone."""
    tokens = row.tokens_L[None]
    encoded = encode(made.encoder, made.params['encoder'], view_of(tokens, np.ones_like(tokens)), taps=True)
    return np.asarray(encoded.attention_NBHQK)[:, 0]


def test_shares_and_entropies_are_a_loops(made):
    heads = attention.measure(made, CORPUS)
    rows = CORPUS.pieces(made.tokenizer, 24)
    maps, total = [loop(made, row) for row in rows], sum(len(row.tokens_L) for row in rows)
    want = sum(a[..., 0].sum(-1) for a in maps) / total
    np.testing.assert_allclose(heads.shares['[CLS]'], want, atol=1e-5)
    want = sum(np.trace(a, offset=-1, axis1=-2, axis2=-1) for a in maps) / total
    np.testing.assert_allclose(heads.shares['previous'], want, atol=1e-5)
    stop = made.tokenizer.vocabulary['.']
    want = sum(a[..., row.tokens_L == stop].sum((-1, -2)) for a, row in zip(maps, rows, strict=True)) / total
    np.testing.assert_allclose(heads.shares['punctuation'], want, atol=1e-5)
    want = sum(-(a * np.log(a)).sum((-1, -2)) for a in maps) / total
    np.testing.assert_allclose(heads.entropy, want, atol=2e-3)  # theirs mixes a ten-thousandth of uniform in
    assert (heads.entropy < heads.uniform + 1e-6).all()
    pair = [a.reshape(-1, *a.shape[-2:]) for a in maps]
    want = sum((scipy.spatial.distance.jensenshannon(a[0], a[3], axis=1) ** 2).sum() for a in pair)
    assert heads.distance_MM[0, 3] == pytest.approx(want, rel=0.02) and heads.distance_MM[0, 0] < 1e-9
    assert attention.placed(heads).shape == (4, 2)


def test_norms_are_those_of_what_a_head_carries(made):
    """Summed over heads, the carried vectors are the attention layer's output."""
    row = CORPUS.pieces(made.tokenizer, 24)[0]
    ((_, a, norm),) = weights.maps(made, [row])
    tokens = row.tokens_L[None]
    encoded = encode(made.encoder, made.params['encoder'], view_of(tokens, np.ones_like(tokens)), taps=True)
    own = made.params['encoder']['layers']['attention']
    x = np.asarray(encoded.states_NBLD)[1, 0]
    v = np.einsum('ld,dhc->lhc', x, own['value']['kernel'][1]) + own['value']['bias'][1]
    want = np.linalg.norm(np.einsum('lhc,hcd->hld', v, own['output']['kernel'][1]), axis=-1)
    np.testing.assert_allclose(norm[1], want, rtol=1e-4)
    np.testing.assert_allclose(a, loop(made, row), atol=1e-6)


def test_words_get_the_sum_and_give_the_mean(made):
    row = Corpus([['thees', 'the', 'doges']]).pieces(made.tokenizer, 24)[0]
    a = loop(made, row)
    found = dependency_heads.word_maps(row, 3, a)
    first, last = (np.flatnonzero(row.word_L == w) for w in (0, 2))
    assert len(first) > 1
    want = a[1, 0][np.ix_(last, first)].sum(1).mean()
    assert found[1, 0, 2, 0] == pytest.approx(want, rel=1e-5)


def test_a_head_that_follows_a_relation_is_found(made, monkeypatch):
    """Head 2-1 looks from every word at its head."""

    def oracle(model, rows):
        for i, p in enumerate(rows):
            n = len(p.tokens_L)
            a = np.full((2, 2, n, n), 0.1)
            for w, head in enumerate(TREES[i].heads):
                if head >= 0:
                    a[1, 0, w + 1, head + 1] = 0.9
            yield i, a, None

    monkeypatch.setattr(weights, 'maps', oracle)
    found = dependency_heads.arcs(dependency_heads.read(made, TREES))
    for relation in ('all', 'det', 'obj'):
        best = choose(found, found, relation, False, 2)
        assert best.name == '2-1 to head' and best.score.value == 1
    assert choose(found, found, 'det', True, 2).name == '+1'
    assert choose(found, found, 'all', True, 2).score.value < 0.9


def test_chosen_on_one_split_scored_on_another():
    rng = np.random.default_rng(0)
    luck = lambda: Arcs(np.full(60, 'det'), np.arange(60), rng.random((2 * 144 + 10, 60)) < 0.2, 144)
    dev, test = luck(), luck()
    assert dev.hit[:288].mean(1).max() > 0.3
    assert abs(choose(dev, test, 'det', False, 12).score.value - 0.2) < 0.13


def test_the_viewer_holds_the_weights_and_needs_no_network(made):
    html = viewer.html(made, ['the cat sees </script> a dog .'])
    assert 'http://www.w3.org/2000/svg' in html and not re.search(r'(src|href)=', html)
    assert html.count('</script>') == 2
    (shown,) = json.loads(re.search(r'v-data">(.*?)</script>', html, re.DOTALL).group(1))
    n = len(shown['tokens'])
    weights = np.frombuffer(base64.b64decode(shown['data']), np.uint8).reshape(2, 2, n, n)
    assert abs(weights.sum(-1) / 255 - 1).max() < 0.05 and shown['tokens'][0] == '[CLS]'
    with pytest.raises(BadInput, match='up to 128 tokens'):
        viewer.html(model(max_positions=200), ['the cat ' * 80])


def test_sums_of_a_bfloat16_encoder_are_in_float32():
    made = model(precision='bfloat16')
    row = CORPUS.pieces(made.tokenizer, 24)[0]
    assert all(a.dtype == norm.dtype == np.float32 for _, a, norm in weights.maps(made, [row]))
