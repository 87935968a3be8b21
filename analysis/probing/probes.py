"""What can be fitted: classifiers on words, pairs and sentences, and edge probes on spans over mixed layers."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from analysis.probing.engine import Probe


def _dense(key, rows: int, columns: int):
    return {'kernel': jax.random.normal(key, (rows, columns)) * rows**-0.5, 'bias': jnp.zeros(columns)}


def _classified(logits_BK, label_B):
    """Nats and hits of each example."""
    loss = optax.softmax_cross_entropy_with_integer_labels(logits_BK, label_B)
    return {'loss': loss, 'hit': (logits_BK.argmax(-1) == label_B).astype(jnp.float32)}


@dataclasses.dataclass(frozen=True)
class Classifier(Probe):
    """Softmax regression on one vector, or on [x; y; x * y] of two (Liu et al. 2019); with `hidden` units a ReLU layer
    before it (Hewitt & Liang 2019's MLP-1). at [n, 1 or 2], target [n]."""

    classes: int
    slots: int = 1
    hidden: int = 0

    def init(self, key, width, layers):
        rows = width if self.slots == 1 else 3 * width
        first, last = jax.random.split(key)
        # Small: the linear probe's loss is convex, and starts from near nothing as scikit-learn's does.
        out = jax.tree.map(lambda x: 0.1 * x, _dense(last, self.hidden or rows, self.classes))
        return {'out': out} | ({'hidden': _dense(first, rows, self.hidden)} if self.hidden else {})

    def outputs(self, params, x_BSD, target, layer):
        x_BD = x_BSD[:, 0]
        if self.slots == 2:
            x_BD = jnp.concatenate([x_BD, x_BSD[:, 1], x_BD * x_BSD[:, 1]], -1)
        if self.hidden:
            x_BD = jax.nn.relu(x_BD @ params['hidden']['kernel'] + params['hidden']['bias'][None])
        return _classified(x_BD @ params['out']['kernel'] + params['out']['bias'][None], target)


@dataclasses.dataclass(frozen=True)
class Edge(Probe):
    """Tenney et al. 2019's edge probe: layers 0 to `layer` mixed by a softmax, each span pooled by attention.

    at [n, spans, W], -1 where the span is shorter; target [n]. Sizes are theirs over 4. A label is one of the classes,
    not each of them yes or no. Layers are standardised before they are mixed, since they differ in norm.
    """

    classes: int
    spans: int = 1
    size: int = 64

    def init(self, key, width, layers):
        keys = jax.random.split(key, 2 + self.spans)
        pool = [_dense(k, width, self.size) | {'score': jnp.zeros((self.size, 1))} for k in keys[2:]]
        hidden, out = _dense(keys[0], self.spans * self.size, self.size), _dense(keys[1], self.size, self.classes)
        return {'mix': jnp.zeros(layers), 'pool': pool, 'hidden': hidden, 'out': out}

    def read(self, x_LND, layer, at_BSW):
        """(vectors of all layers [L, B, S, W, D], which of them stand for a word [B, S, W])."""
        return x_LND[:, at_BSW], at_BSW >= 0

    def mix(self, params, layer):
        """[L]: the weights of the layers, none above `layer`."""
        s_L = params['mix']
        return jax.nn.softmax(jnp.where(jnp.arange(len(s_L)) <= layer, s_L, -jnp.inf))

    def outputs(self, params, x, target, layer):
        x_LBSWD, there_BSW = x
        mixed_BSWD = jnp.einsum('l,lbswd->bswd', self.mix(params, layer), x_LBSWD)
        spans = []
        for s, pool in enumerate(params['pool']):
            h_BWE = mixed_BSWD[:, s] @ pool['kernel'] + pool['bias'][None, None]
            score_BW = jnp.where(there_BSW[:, s], (h_BWE @ pool['score'])[..., 0], -1e9)
            spans.append(jnp.einsum('bw,bwe->be', jax.nn.softmax(score_BW), h_BWE))
        h_BE = jnp.tanh(jnp.concatenate(spans, -1) @ params['hidden']['kernel'] + params['hidden']['bias'][None])
        return _classified(h_BE @ params['out']['kernel'] + params['out']['bias'][None], target)
