"""Devices: the only module that knows meshes and shardings. Rows are split over all devices.

Parameters and optimizer state are whole on each device, or in parts along the axis `fsdp` (fully sharded data parallel;
Rajbhandari et al. 2020, ZeRO).
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from bertx.errors import BadInput, one_of

ROWS, WHOLE = PartitionSpec(('data', 'fsdp')), PartitionSpec()
KINDS = ('jit', 'pmap')
SMALL = 2**13  # numbers in an array that is not worth the splitting: biases and norms


def mesh_of(settings: Any) -> Mesh:
    """The mesh of config.train."""
    one_of('config.train.parallel', settings['parallel'], KINDS)
    if settings['parallel'] == 'pmap' and settings['fsdp'] > 1:
        raise BadInput("config.train.parallel='pmap' is data parallel only; config.train.fsdp=1, or 'jit', would do")
    return data_mesh(settings['devices'], settings['fsdp'])


@functools.cache
def data_mesh(devices: int = 0, fsdp: int = 1) -> Mesh:
    """A mesh of the first `devices` devices (0: all of them), `fsdp` of them along that axis and the others along
    `data`."""
    have = jax.devices()
    if not 0 <= devices <= len(have):
        raise BadInput(f'config.train.devices is {devices}, and this machine has {len(have)}')
    if devices and jax.process_count() > 1:
        raise BadInput(f'config.train.devices is {devices}; several hosts use all of theirs: 0 would do')
    return mesh_on(have[: devices or len(have)], fsdp)


def mesh_on(devices: Any, fsdp: int) -> Mesh:
    if fsdp < 1 or len(devices) % fsdp:
        raise BadInput(f'config.train.fsdp is {fsdp}; it has to divide the {len(devices)} devices')
    # Host after host, so that a host's rows lie side by side, and so that parts lie near each other.
    grid = np.reshape(sorted(devices, key=lambda device: (device.process_index, device.id)), (-1, fsdp))
    # Auto: under Explicit, linen's embedding look-ups raise ShardingTypeError.
    return Mesh(grid, ('data', 'fsdp'), axis_types=(AxisType.Auto, AxisType.Auto))


def over_runs(count: int, devices: int = 0) -> Mesh:
    """A mesh for stacked arrays of that many runs: of as many devices, of the first `devices` (0: all), as divide them
    evenly."""
    have = jax.local_devices()[: devices or None]
    return mesh_on(have[: max(n for n in range(1, len(have) + 1) if count % n == 0)], 1)


def local(mesh: Mesh) -> Mesh:
    """The part of the mesh that is this host's."""
    if jax.process_count() == 1:
        return mesh
    return mesh_on([device for device in mesh.devices.flat if device.process_index == jax.process_index()], 1)


def check_divisible(mesh: Mesh, batch: int, micro_batches: int) -> None:
    if batch % (mesh.size * micro_batches):
        raise BadInput(
            f'config.train.batch is {batch}; {mesh.size} devices with {micro_batches} micro-batches want a multiple of '
            f'{mesh.size * micro_batches}'
        )


def replicate(mesh: Mesh, tree: Any) -> Any:
    sharding = NamedSharding(mesh, WHOLE)
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.jit(_same, out_shardings=sharding)(tree)  # which takes arrays of one host too


def _same(tree: Any) -> Any:
    return tree


def first_axis(mesh: Mesh) -> NamedSharding:
    """Of arrays whose first axis, of rows or of runs, is spread over the devices."""
    return NamedSharding(mesh, ROWS)


def split_batch(mesh: Mesh, batch: Any) -> Any:
    """The host's share of a batch to its devices."""
    return jax.make_array_from_process_local_data(first_axis(mesh), batch)


def layout(mesh: Mesh, tree: Any) -> Any:
    """The sharding of each array of a state: along its longest axis that the parts divide, small ones whole."""
    parts = mesh.shape['fsdp']

    def one(path, x):
        # Not across stacked layers: each would be one device's, and all wait for it.
        first = int(any(getattr(part, 'key', '') == 'layers' for part in path))
        axes = [axis for axis in range(first, x.ndim) if x.shape[axis] % parts == 0]
        if parts == 1 or x.size < SMALL or not axes:
            return NamedSharding(mesh, WHOLE)
        longest = max(axes, key=lambda axis: x.shape[axis])
        return NamedSharding(mesh, PartitionSpec(*[None] * longest, 'fsdp'))

    return jax.tree_util.tree_map_with_path(one, tree)


def place(mesh: Mesh, tree: Any) -> Any:
    """A state, or a part of it, from the host."""
    return jax.device_put(tree, layout(mesh, tree))


def described(mesh: Mesh, state: Any, rest: Any, batch: Any) -> tuple[Any, ...]:
    """The shapes of a step's arguments, with their shardings."""
    at = lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding)
    spread = lambda tree, spec: jax.tree.map(lambda x: at(x, NamedSharding(mesh, spec)), tree)
    return jax.tree.map(at, state, layout(mesh, state)), *spread(rest, WHOLE), spread(batch, ROWS)


def laid_out(mesh: Mesh, function: Callable) -> Callable:
    """The function, for jit, with what it returns in the layout of the mesh: never whole where it is to be in parts."""

    @functools.wraps(function)
    def wrapped(*arguments):
        found = function(*arguments)
        return jax.lax.with_sharding_constraint(found, layout(mesh, found))

    return wrapped


def by_device(mesh: Mesh, gradient: Callable) -> Callable:
    """gradient(params, frozen, key, *rows) -> sums over rows: of all devices, each of which sums over its own first.

    Without it XLA reduces an array's gradient once for each place that the array is used in, and may rather gather
    activations than parameters. Each device has whole parameters here; their gradients come in the state's layout.
    """
    if mesh.size == 1:
        return gradient
    constrain, rows = jax.lax.with_sharding_constraint, NamedSharding(mesh, ROWS)
    copy = lambda x: constrain(jnp.broadcast_to(x, (mesh.size, *x.shape)), rows)
    split = lambda x: constrain(x.reshape(mesh.size, -1, *x.shape[1:]), rows)

    def wrapped(params, frozen, key, *batch):
        own = jax.vmap(gradient, in_axes=(0, 0, None) + (0,) * len(batch))
        terms, grads = own(*jax.tree.map(copy, (params, frozen)), key, *jax.tree.map(split, batch))
        terms, grads = jax.tree.map(lambda x: x.sum(0), (terms, grads))
        return terms, constrain(grads, layout(mesh, grads))

    return wrapped


def by_rows(mesh: Mesh, function: Callable) -> Callable:
    """function(..., rows) for a function that treats each row alone: each device works on its own, and sends nothing.

    XLA by itself gathers the rows of all devices for top_k.
    """

    def wrapped(*arguments):
        specs = (WHOLE,) * (len(arguments) - 1) + (ROWS,)
        return jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=ROWS, check_vma=False)(*arguments)

    return wrapped if mesh.size > 1 else function


def gathered(mesh: Mesh, tree: Any) -> Any:
    """Whole copies on this host's devices, of which `mesh` consists. All hosts call it."""
    if jax.process_count() > 1:
        tree = jax.tree.map(lambda x: replicate(x.sharding.mesh, x).addressable_data(0), tree)
    return replicate(mesh, tree)


def mapped(mesh: Mesh, step: Callable) -> Callable:
    """`step` under pmap, called as under jit: state and further arguments whole, then the batch.

    pmap wants rows as [devices, rows of one], and of several hosts' arrays each one's own part.
    """
    devices = tuple(mesh.devices.flat)
    axes = (None,) * 5 + (0,)
    function = jax.pmap(step, 'data', in_axes=axes, out_axes=None, donate_argnums=0, devices=devices)
    stacked = jax.jit(lambda batch: jax.tree.map(lambda x: x.reshape(local(mesh).size, -1, *x.shape[1:]), batch))
    if jax.process_count() == 1:
        return lambda *arguments: function(*arguments[:-1], stacked(arguments[-1]))

    def several_hosts(*arguments):
        specs = (WHOLE,) * 5 + (ROWS,)
        own = multihost_utils.global_array_to_host_local_array(arguments, mesh, specs)
        return multihost_utils.host_local_array_to_global_array(function(*own[:-1], stacked(own[-1])), mesh, WHOLE)

    return several_hosts
