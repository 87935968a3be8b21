"""Seconds of an ELECTRA step, of its generator trained alone (MLM) and of its discriminator (on random fakes).

    python tests/electra_cost.py tied

Prints them, and the first over the sum of the others. 4 layers of width 256, rows of 16 x 128; a minute on two cores.
"""

import functools
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(pathlib.Path(__file__).parent.parent))

from two_networks import ADAM, FIRST, HYPER, MASK, ROOT, rows  # noqa: E402

from bertx import model, optim  # noqa: E402
from bertx.encoder_config import EncoderConfig  # noqa: E402
from bertx.objectives import base  # noqa: E402
from bertx.step import State, init_variables, step  # noqa: E402
from bertx.types import Vocabulary  # noqa: E402

V, LENGTH, BATCH, TIMES = 4096, 128, 16, 15


def compiled(objectives, config: EncoderConfig):
    """A step on fixed arguments. The numbers of the parameters do not matter."""
    random, batch = np.random.default_rng(0), rows(BATCH, LENGTH)
    objectives = jax.tree.map(np.float32, objectives)
    vocab = Vocabulary(jnp.int32(MASK), jnp.arange(V) >= FIRST, jnp.ones(V))
    net = model.make_net(config, objectives)
    shapes = jax.eval_shape(functools.partial(init_variables, net), objectives, ROOT, vocab, batch)['params']
    params = jax.tree.map(lambda x: jnp.array(random.normal(scale=0.02, size=x.shape), x.dtype), shapes)
    arguments = (
        State(jnp.int32(0), params, optim.make(ADAM, HYPER).init(params), {}),
        objectives,
        HYPER,
        ROOT,
        vocab,
        batch,
    )
    run = jax.jit(functools.partial(step, net, ADAM, 1)).lower(*arguments).compile()
    return functools.partial(run, *arguments)


def main(embeddings: str) -> None:
    encoder = EncoderConfig(vocab_size=V, layers=4, width=256, heads=4, mlp_width=1024, unroll=4)
    joint = base.make({'electra': {'embeddings': embeddings}}, LENGTH)
    alone = base.make({'mlm': {'replace_by': {'mask': 0.85, 'random': 0.0}}}, LENGTH)
    given = base.make({'random_token': {}}, LENGTH)
    steps = [compiled(joint, encoder), compiled(alone, joint['electra'].network(encoder)), compiled(given, encoder)]
    seconds: list[list[float]] = [[], [], []]
    for _ in range(TIMES):
        for run, times in zip(steps, seconds, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(run())
            times.append(time.perf_counter() - start)
    whole, mlm, detection = (min(times) for times in seconds)  # the least disturbed
    print(f'electra {whole:.3f} s, generator {mlm:.3f} s, discriminator {detection:.3f} s')
    print(f'{whole / (mlm + detection):.3f}')


if __name__ == '__main__':
    main(*sys.argv[1:])
