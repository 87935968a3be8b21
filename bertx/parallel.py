"""Devices: the only module that knows meshes and shardings. Parameters replicated, batches split along `data`."""

import functools
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bertx.errors import BadInput


@functools.cache
def data_mesh(devices: int = 0) -> Mesh:
    """A mesh over the first `devices` devices (0: all of them) with the one axis `data`."""
    have = jax.devices()
    if not 0 <= devices <= len(have):
        raise BadInput(f'config.train.devices is {devices}, and this machine has {len(have)}')
    # Auto: under the default, Explicit, linen's embedding look-ups raise ShardingTypeError.
    return jax.make_mesh((devices or len(have),), ('data',), (AxisType.Auto,), devices=have[: devices or len(have)])


def check_divisible(mesh: Mesh, batch: int, micro_batches: int) -> None:
    if batch % (mesh.size * micro_batches):
        raise BadInput(
            f'config.train.batch is {batch}; {mesh.size} devices with {micro_batches} micro-batches want a multiple of '
            f'{mesh.size * micro_batches}'
        )


def replicate(mesh: Mesh, tree: Any) -> Any:
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def split_batch(mesh: Mesh, batch: Any) -> Any:
    """The host's share of a batch to its devices, rows along `data`."""
    sharding = NamedSharding(mesh, PartitionSpec('data'))
    if jax.process_count() == 1:
        return jax.device_put(batch, sharding)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)
