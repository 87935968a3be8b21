"""Encoders and heads with numbers of no meaning, and a tokenizer, for the tests of weights in other formats."""

from typing import Any

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bertx.encoder import abstract, shapes
from bertx.encoder_config import EncoderConfig
from bertx.families import FAMILIES
from bertx.hf.names import FORMATS
from bertx.hf.reading import head_shapes, root_of
from bertx.text.tokenizer import Tokenizer, _normalizer, _wordpiece

V = 50


def small(family: str, **changes) -> EncoderConfig:
    sizes = dict(vocab_size=V, layers=3, width=16, heads=2, mlp_width=24, max_positions=24)
    own: dict[str, Any] = {'albert': {'embedding_width': 8}, 'deberta_v3': {'relative_buckets': 4}}.get(family, {})
    return EncoderConfig(family=family, **FAMILIES[family] | sizes | own | changes)


def wordpieces(pad: int = 0, size: int = V) -> Tokenizer:
    """Letters are pieces; [PAD] at a place of its own."""
    names = ['[CLS]', '[SEP]', '[UNK]', '[MASK]']
    names.insert(pad, '[PAD]')
    letters = [chr(ord('a') + i) for i in range(26)]
    names += letters + [f'##{letter}' for letter in letters]
    return Tokenizer(_wordpiece({name: i for i, name in enumerate(names[:size])}, _normalizer(True)).to_str())


def some(shapes: dict[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {path: rng.normal(0.1, 0.3, shape).astype(np.float32) for path, shape in sorted(shapes.items())}


def params(config: EncoderConfig, *heads: str, kind: str = 'bert', classes: int = 2) -> dict[str, Any]:
    """As `hf.read` gives them; kind: the format whose heads have their form."""
    flat = {f'encoder/{path}': x for path, x in some(shapes(abstract(config))).items()}
    for name in heads:
        rules = FORMATS[kind].heads.get(name, {})
        own = head_shapes(name, rules, config, 2 if name == 'qa' else classes)
        flat |= {f'{root_of(name)}/{path}': x for path, x in some(own, seed=len(flat)).items()}
    return unflatten_dict(flat, sep='/')


def same(a: Any, b: Any) -> None:
    """Bit by bit."""
    a, b = (flatten_dict(x, sep='/') for x in (a, b))
    assert a.keys() == b.keys()
    jax.tree.map(np.testing.assert_array_equal, a, b)
