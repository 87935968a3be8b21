"""A config's training step for devices that are not here: compiled from shapes, with neither data nor parameters."""

import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from bertx import footprint, parallel, train
from bertx.config import Run, make_run
from bertx.errors import BadInput
from bertx.types import Example, Vocabulary


def run_of(config) -> Run:
    """The run of a config, whose corpus is taken to fill config.data.vocab_size."""
    if config.init_from or config.train.parallel != 'jit':
        raise BadInput("compiling ahead wants config.init_from='' and config.train.parallel='jit'")
    config.encoder.unroll = config.encoder.unroll or 1  # `config.default_unroll` of a TPU
    tokenizer = SimpleNamespace(vocab_size=config.data.vocab_size, fingerprint='')
    store = SimpleNamespace(
        tokenizer=tokenizer, fingerprint='', language=config.data.language, marks_words=True, path='config.data'
    )
    return make_run(config, store)


def topology(name: str, fsdp: int):
    """The mesh of a TPU topology, such as v5e:4x4 or v5p:2x2x1."""
    if not importlib.util.find_spec('libtpu'):
        raise BadInput('--topology wants the TPU compiler, which runs on any machine: pip install "jax[tpu]"')
    # Else libtpu asks the cloud what machine this is; the others only keep it from saying that it does not know.
    about = {'TPU_SKIP_MDS_QUERY': '1', 'TPU_WORKER_HOSTNAMES': 'localhost', 'TPU_ACCELERATOR_TYPE': 'v5litepod-8'}
    about |= {'ALLOW_MULTIPLE_LIBTPU_LOAD': '1'}  # no chip is used, so several may ask at once
    os.environ.update({name: os.environ.get(name, value) for name, value in about.items()})
    try:
        found = topologies.get_topology_desc(name, platform='tpu')
    except jax.errors.JaxRuntimeError as error:
        raise BadInput(f'--topology={name}: {error}; v5e:4x4, v6e:2x4 or v5p:2x2x1 would do') from None
    return parallel.mesh_on(found.devices, fsdp)


def arguments(run: Run, mesh, vocab_size: int) -> tuple[Any, ...]:
    """What stands for the arguments of the step, each with its sharding."""
    shape = jax.ShapeDtypeStruct
    batch, row = run.train['batch'], (run.train['batch'], run.rows.length)
    pairs = shape((batch, run.rows.packing), jnp.int32)
    fields = ('tokens', 'segment_ids', 'positions', 'type_ids', 'word_ids', 'unit_ids')
    example = Example(
        **{name: shape(row, jnp.int32) for name in fields},
        starts=pairs,
        labels={name: pairs for name in run.rows.labels},
        epoch=shape((batch,), jnp.uint32),
        index=shape((batch,), jnp.uint32),
    )
    of_pieces = lambda kind: shape((vocab_size,), kind)
    vocab = Vocabulary(
        shape((), jnp.int32), of_pieces(bool), of_pieces(jnp.float32), of_pieces(jnp.int32), of_pieces(jnp.int32)
    )
    root = jax.eval_shape(jax.random.key, 0)
    numbers = jax.tree.map(lambda x: shape(x.shape, x.dtype), (run.objectives, run.hyper))
    make, _ = train.functions(run, mesh)
    state = jax.eval_shape(make, *numbers, root, vocab, example)
    return parallel.described(mesh, state, (*numbers, root, vocab), example)


def compiled(run: Run, mesh, vocab_size: int):
    """-> what stands for the state, and the compiled step."""
    _, step = train.functions(run, mesh)
    found = arguments(run, mesh, vocab_size)
    return found[0], footprint.compiled(step, run, mesh, *found)
