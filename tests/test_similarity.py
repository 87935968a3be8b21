import numpy as np
import pytest

from analysis import similarity
from analysis.similarity import Words


def cka(x, y, **options):
    return similarity.cka(*(Words(z, np.arange(z.shape[1])) for z in (x, y)), **options)


def contextuality(x, type_N):
    return similarity.contextuality(Words(x, np.arange(x.shape[1])), type_N)


def plain(x, y):
    """Kornblith et al. 2019, on all rows at once, with unbiased HSIC by its definition."""

    def hsic(k, h):
        n = len(k)
        k, h = k - np.diag(np.diag(k)), h - np.diag(np.diag(h))
        one = np.ones(n)
        return (
            np.trace(k @ h) + (one @ k @ one) * (one @ h @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * one @ k @ h @ one
        ) / (n * (n - 3))

    k, h = x @ x.T, y @ y.T
    return hsic(k, h) / np.sqrt(hsic(k, k) * hsic(h, h))


def layers(n, seed=0):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 6))
    return np.stack(
        [common @ rng.normal(size=(6, 10)) + noise * rng.normal(size=(n, 10)) for noise in (0.1, 1, 4)]
    ).astype(np.float32)


def test_cka_is_plain_numpys():
    x, y = layers(120), layers(120, 1)
    found = cka(x, y, batch=120)
    want = [[plain(a.astype(float), b.astype(float)) for b in y] for a in x]
    np.testing.assert_allclose(found, want, atol=1e-4)
    np.testing.assert_allclose(np.diagonal(cka(x, x, batch=120)), 1, atol=1e-5)


def test_minibatches_give_the_same_and_rotations_change_nothing():
    x = layers(2000)
    whole, parts = cka(x, x, batch=2000), cka(x, x, batch=100)
    np.testing.assert_allclose(parts, whole, atol=0.02)
    turn, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(10, 10)))
    np.testing.assert_allclose(np.diagonal(cka(x, 3 * (x @ turn.astype(np.float32)))), 1, atol=1e-4)


def test_unrelated_vectors_have_none_where_the_biased_estimator_has_much():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(1, 60, 50)).astype(np.float32) for _ in range(2))
    assert abs(cka(x, y)[0, 0]) < 0.15
    a, b = x[0] - x[0].mean(0), y[0] - y[0].mean(0)
    assert np.linalg.norm(a.T @ b) ** 2 / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b)) > 0.3
    with pytest.raises(ValueError, match='same rows'):
        cka(x, y[:, :50])


def test_contextuality():
    rng = np.random.default_rng(0)
    type_N = np.repeat(np.arange(20), 30)
    own = rng.normal(size=(20, 40))[type_N]
    x = np.stack([own, own + rng.normal(size=own.shape), rng.normal(size=own.shape)])
    same, half, none = contextuality(x + 5.0, type_N)
    assert same < 0.01 and 0.4 < half < 0.6 and none > 0.97
    unit = x[1] - x[1].mean(0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    pairs = [(unit[a] @ unit[b]) for t in range(20) for a in range(30 * t, 30 * t + 30) for b in range(30 * t, a)]
    assert half == pytest.approx(1 - np.mean(pairs), abs=1e-6)


def test_rows_of_a_file_are_picked():
    x, y, rng = layers(60), layers(60, 1), np.random.default_rng(0)
    at, other = rng.permutation(60)[:40], rng.permutation(60)[:40]
    found = similarity.cka(Words(x, at), Words(y, other))
    np.testing.assert_allclose(found, cka(x[:, at], y[:, other]), atol=1e-5)


def test_the_floor_has_no_pairs_of_one_seed():
    folders = {'a': {0: '', 1: ''}, 'b': {0: '', 1: ''}, 'c': {5: ''}}
    found = {title: mine for title, (*_, mine) in similarity.pairs(folders, 'a', seeded=True).items()}
    assert found == {
        'a and a': [(('a', 0), ('a', 1))],
        'a and b': [(('a', 0), ('b', 1)), (('a', 1), ('b', 0))],
        'a and b, same seed': [(('a', 0), ('b', 0)), (('a', 1), ('b', 1))],
        'a and c': [(('a', 0), ('c', 5)), (('a', 1), ('c', 5))],
        'b and b': [(('b', 0), ('b', 1))],
    }
    alone = similarity.pairs({'x': {0: ''}, 'y': {0: ''}}, 'x', seeded=False)
    assert [len(mine) for *_, mine in alone.values()] == [1] and list(alone) == ['x and y']
