import dataclasses
import gzip
import json

import numpy as np
import pytest
from analysis_cases import model

from analysis import minimal_pairs
from analysis.minimal_pairs import masked_rows, scores
from bertx import fill_mask
from bertx.errors import BadInput

TEXTS = ['the cat sees a dog .', 'housecat likes the treedog .', 'a tree', 'the dog chased the cat and a house .']


@pytest.fixture(scope='module')
def made():
    return model()


def loop(made, text, variant):
    """One pass a piece, by the function that fills masks."""
    (row,) = minimal_pairs.pieces(made.tokenizer, [text], 24)
    total = 0.0
    for at in range(1, len(row.tokens_L) - 1):
        tokens = row.tokens_L.copy()
        hidden = [at]
        if variant == 'l2r':
            hidden += [k for k in range(at + 1, len(tokens)) if row.word_L[k] == row.word_L[at]]
        tokens[hidden] = made.tokenizer.mask_id
        predict = fill_mask.predictor(made.encoder, made.params, fill_mask.Masked(tokens, np.array([at])))
        total += float(predict(tokens)[0, row.tokens_L[at]])
    return total


@pytest.mark.parametrize('variant', minimal_pairs.VARIANTS)
def test_scores_are_a_loops(made, variant):
    want = [loop(made, text, variant) for text in TEXTS]
    np.testing.assert_allclose(scores(made, TEXTS, variant), want, rtol=1e-4)


def test_variants_differ_where_a_word_has_pieces(made):
    original, l2r = (scores(made, TEXTS, variant) for variant in ('original', 'l2r'))
    assert original[0] == pytest.approx(l2r[0]) and abs(original[1] - l2r[1]) > 1e-3
    (row,) = minimal_pairs.pieces(made.tokenizer, ['housecat the'], 24)
    tokens, at = masked_rows(row, made.tokenizer.mask_id, 'l2r')
    masks = tokens == made.tokenizer.mask_id
    pieces = (row.word_L == 0).sum()
    assert list(masks.sum(1)) == [*range(pieces, 0, -1), 1] and masks[np.arange(len(at)), at].all()
    (stopped,) = minimal_pairs.pieces(made.tokenizer, ['the housecat.'], 24)
    assert stopped.word_L[-2] == 2, 'a full stop is a word'


def test_what_cannot_be_scored(made, tmp_path):
    assert np.isnan(scores(made, [*TEXTS, 'the ' * 40, '\u200b'])[-2:]).all()
    bare = dataclasses.replace(made, params={'encoder': made.params['encoder']})
    with pytest.raises(BadInput, match='no head that predicts masked tokens'):
        scores(bare, TEXTS)
    (tmp_path / 'bad.jsonl').write_text('{"UID": "a"}\n')
    with pytest.raises(BadInput, match='bad.jsonl:1: no pair'):
        minimal_pairs.read(str(tmp_path / 'bad.jsonl'), 5)


def test_accuracy_by_paradigm_and_phenomenon(tmp_path):
    with gzip.open(tmp_path / 'b.jsonl.gz', 'wt') as file:
        for uid, term in (('p1', 'islands'), ('p2', 'islands'), ('p3', 'binding')):
            for n in range(10):
                pair = {'UID': uid, 'linguistics_term': term, 'sentence_good': f'good {n}', 'sentence_bad': 'bad'}
                file.write(json.dumps(pair) + '\n')
    pairs = minimal_pairs.read(str(tmp_path / 'b.jsonl.gz'), 8)
    assert len(pairs) == 24
    hits = np.array([1.0] * 8 + [0.0] * 4 + [1.0] * 4 + [0.5] * 7 + [np.nan])
    found = {row[0]: row[1:] for row in minimal_pairs.lines(pairs, hits)}
    assert found['- p1'][0] == '1.000 [0.676, 1.000]' and found['islands'][0].startswith('0.750')
    assert minimal_pairs.wilson(0, 10)[1:] == pytest.approx((0, 0.2775), abs=1e-4)
    low, high = (float(x.strip('[],')) for x in found['islands'][0].split()[1:])
    assert low == 0 and high == 1  # two paradigms, however many pairs
    assert found['binding'] == [found['binding'][0], '7'] and found['binding'][0].startswith('0.500')


def test_a_damaged_archive_is_named(tmp_path):
    content = bytearray(gzip.compress(json.dumps(list(range(4000))).encode()))
    content[10:20] = b'\xff' * 10  # no kind of block, which zlib says in its own words
    (tmp_path / 'b.jsonl.gz').write_bytes(content)
    with pytest.raises(BadInput, match='b.jsonl.gz cannot be read'):
        minimal_pairs.read(str(tmp_path / 'b.jsonl.gz'), 8)
