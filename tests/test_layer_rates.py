"""Learning rates that fall from layer to layer, against the published exponents."""

import jax
import numpy as np
import optax
from weights import params, small

from bertx.tasks import layer_rates


def test_layer_rates():
    config = small('bert', layers=3)
    tree = params(config, 'pooler')
    for rule, embeddings, layers in (('paper', 4, [3, 2, 1]), ('electra', 5, [4, 3, 2])):
        found = layer_rates.exponents({'encoder': tree['encoder'], 'heads_x': tree['pooler']}, rule)
        assert float(found['encoder']['embeddings']['token']['embedding']) == embeddings
        kernel = found['encoder']['layers']['mlp_in']['kernel']
        assert kernel.shape == (3, 1, 1) and kernel.ravel().tolist() == layers
        assert set(map(float, jax.tree.leaves(found['heads_x']))) == {0.0}
    updates = jax.tree.map(np.ones_like, tree)
    scaled, _ = layer_rates.scaled(np.float32(0.5), 'paper').update(updates, optax.EmptyState(), tree)
    np.testing.assert_array_equal(scaled['encoder']['layers']['mlp_in']['bias'][:, 0], [0.125, 0.25, 0.5])
