"""Vectors, clusters and pictures of spans, from made-up vectors."""

import numpy as np
import pytest
from analysis_cases import treebank

from analysis import scatter
from analysis.probing import annotated_tasks
from analysis.probing.profiles import Prepared
from bertx.errors import BadInput


def prepared():
    """Tags of words; layer 1 knows them, layer 0 does not."""
    task = annotated_tasks.make('pos', treebank(60), np.repeat([0, 1, 2], 20))
    x_LND = np.random.default_rng(0).normal(size=(2, task.at.max() + 1, 8)).astype(np.float32)
    x_LND[1, task.at[:, 0], task.label_N] += 9
    return Prepared(task, x_LND, task.at, np.ones(2))


def test_vectors_of_spans_are_the_papers():
    x_ND = np.random.default_rng(0).normal(size=(5, 3))
    found = scatter.vectors(x_ND, np.array([[[1, 2, 3]], [[4, -1, -1]]]))
    a, b = x_ND[1], x_ND[3]
    np.testing.assert_allclose(found[0], [*a, *b, *(a * b), *(a - b)])
    np.testing.assert_allclose(found[1], [*x_ND[4], *x_ND[4], *x_ND[4] ** 2, 0, 0, 0])
    np.testing.assert_allclose(scatter.vectors(x_ND, np.array([[2], [0]])), x_ND[[2, 0]])
    np.testing.assert_allclose(scatter.vectors(x_ND, np.array([[1, 3]]))[0], found[0])  # an arc's two words


def test_clusters_agree_with_labels_where_a_layer_knows_them():
    p = prepared()
    train, test = scatter.chosen(p)
    assert (p.task.split_N[train] == 0).all() and (p.task.split_N[test] == 2).all()
    label_N = p.task.label_N[test]
    parts = [[scatter.vectors(x_ND, p.rows[n]) for n in (train, test)] for x_ND in p.x_LND]
    low, high = (scatter.nmi(*part, label_N) for part in parts)
    assert high == pytest.approx(1) and low < 0.3


@pytest.mark.parametrize('method', scatter.METHODS)
def test_neighbours_in_the_plane_have_one_label(method):
    p = prepared()
    _, test = scatter.chosen(p)
    label_N = p.task.label_N[test]

    def pure(layer):
        place_N2 = scatter.plane(scatter.vectors(p.x_LND[layer], p.rows[test]), method)
        far_NN = np.square(place_N2[:, None] - place_N2).sum(-1) + np.diag(np.full(len(place_N2), np.inf))
        return (label_N[far_NN.argmin(1)] == label_N).mean()

    assert pure(1) > 0.7 and pure(1) > pure(0) + 0.2


def test_rare_labels_are_left_out_and_every_point_is_drawn(tmp_path, figures, monkeypatch):
    p = prepared()
    monkeypatch.setattr(scatter, 'CLASSES', 2)
    _, test = scatter.chosen(p)
    labels = np.array(p.task.classes)[p.task.label_N[test]]
    assert set(labels) == {'DET', 'NOUN'}
    place_N2 = np.random.default_rng(0).normal(size=(len(test), 2))
    scatter.picture([place_N2, place_N2 + 1], labels, ['layer 0', 'layer 1'], 'note', tmp_path / 'x')
    panels = figures[0].axes
    assert [panel.get_title() for panel in panels] == ['layer 0', 'layer 1']
    for shift, panel in enumerate(panels):
        drawn = np.concatenate([points.get_offsets() for points in panel.collections])
        np.testing.assert_allclose(np.sort(drawn, 0), np.sort(place_N2 + shift, 0))
        assert len({points.get_paths()[0].vertices.tobytes() for points in panel.collections}) == 2  # in grey too
    with pytest.raises(BadInput, match='method'):
        scatter.plane(place_N2, 'umap')
