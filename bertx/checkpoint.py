"""Checkpoints: the only module that imports orbax (its v0 API). Written atomically, in the background.

Each carries a digest of its arrays: of the bytes on disk orbax checks only those that tell where the others are.
"""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from etils import epath

log = logging.getLogger(__name__)


class Damaged(Exception):
    """What was read is not what was saved."""


@jax.jit
def _sums(tree: Any) -> list[Any]:
    """A sum of each array's bits, weighted by their places: whole numbers, so no matter on how many devices."""

    def one(x):
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32) if x.dtype.itemsize == 4 else x.astype(jnp.uint32)
        bits = bits.reshape(-1)
        # Odd weights, so that no flipped bit is lost; scattered ones, so that exchanged places are seen.
        weight = (jax.lax.iota(jnp.uint32, bits.size) * jnp.uint32(2654435761)) | jnp.uint32(1)
        return (bits * weight).sum(dtype=jnp.uint32)

    return [one(x) for x in jax.tree.leaves(tree)]


def digest(tree: Any) -> dict[str, int]:
    """Path -> sum of the array there."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    paths = [jax.tree_util.keystr(path, simple=True, separator='/') for path, _ in leaves]
    return {path: int(x) for path, x in zip(paths, jax.device_get(_sums(tree)), strict=True)}


def check(tree: Any, about: dict[str, Any]) -> None:
    """Raises Damaged where an array differs from what `about` says of it; the tree may be a part of what was saved."""
    for path, found in digest(tree).items():
        if about.get('digest', {}).get(path, found) != found:
            raise Damaged(f'{path} is not what was saved')


def _passing(error: Exception) -> bool:
    """Whether it says nothing of the checkpoint: the storage does not answer, or there is no memory to read it."""
    missing = FileNotFoundError, NotADirectoryError, IsADirectoryError
    words = 'UNAVAILABLE', 'DEADLINE_EXCEEDED', 'RESOURCE_EXHAUSTED', 'PERMISSION_DENIED'
    by_storage = isinstance(error, MemoryError | OSError) and not isinstance(error, missing)
    return by_storage or any(word in str(error) for word in words)


class Checkpoints:
    """The checkpoints of one run in a folder, which may be on gs://. Keeps the latest `keep`."""

    def __init__(self, folder, keep: int = 2):
        options = ocp.CheckpointManagerOptions(
            preservation_policy=ocp.checkpoint_managers.LatestN(keep), enable_async_checkpointing=True
        )
        self.folder = epath.Path(folder).resolve()  # orbax refuses relative paths
        self.manager = ocp.CheckpointManager(self.folder, options=options)

    def save(self, step: int, state: Any, about: dict[str, Any]) -> None:
        """Copies the state and returns; it is written meanwhile. about: JSON that says what the state belongs to."""
        about = about | {'digest': digest(state)}
        items = ocp.args.Composite(state=ocp.args.PyTreeSave(state), about=ocp.args.JsonSave(about))
        self.manager.save(step, args=items)

    def restore(self, like: Any) -> tuple[int, Any] | None:
        """Step and state of the newest checkpoint that is whole, with the structure, types and shardings of `like`.

        Damaged newer ones are reported and deleted. None where there are none; an error where none is whole.
        """
        steps, damaged = sorted(self.manager.all_steps(), reverse=True), []
        for step in steps:
            try:
                state = self._restore(like, step)
            except Exception as error:  # noqa: BLE001 - whatever the storage raises
                if _passing(error):
                    raise
                damaged.append(step)
                log.warning('checkpoint %d of %s is damaged: %s', step, self.folder, str(error).split('\n')[0][:200])
                continue
            for newer in damaged:
                self.manager.delete(newer)
            return step, state
        if steps:
            raise RuntimeError(
                f'{self.folder} holds no checkpoint that can be read; delete it, and the run starts over'
            )
        return None

    def _restore(self, like: Any, step: int) -> Any:
        arguments = ocp.checkpoint_utils.construct_restore_args(like)
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        state = ocp.args.PyTreeRestore(shapes, restore_args=arguments)
        found = self.manager.restore(step, args=ocp.args.Composite(state=state, about=ocp.args.JsonRestore()))
        check(found['state'], found['about'])
        return found['state']

    def close(self) -> None:
        """Waits until all that was saved is on disk."""
        self.manager.wait_until_finished()
        self.manager.close()


def write_parameters(folder, params: Any, about: dict[str, Any]) -> None:
    """A checkpoint of parameters alone, as of step 0, for `Trained`."""
    checkpoints = Checkpoints(folder)
    checkpoints.save(0, {'params': params}, about)
    checkpoints.close()


class Trained:
    """The parameters in a run's folder of checkpoints, read without the rest of the state or knowledge of the run."""

    def __init__(self, folder, step: int | None = None):
        self.folder = epath.Path(folder).resolve()
        self.step = step
        if step is None and self.folder.exists():
            with self._manager() as manager:
                self.step = manager.latest_step()  # None where there is none

    def _manager(self) -> ocp.CheckpointManager:
        handlers = {'state': ocp.PyTreeCheckpointHandler(), 'about': ocp.JsonCheckpointHandler()}
        options = ocp.CheckpointManagerOptions(create=False)
        return ocp.CheckpointManager(self.folder, options=options, item_handlers=handlers)

    def shapes(self) -> dict[str, Any]:
        """The tree of parameters, with their shapes and types."""
        with self._manager() as manager:
            tree = manager.item_metadata(self.step)['state'].tree['params']
        return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)

    def params(self) -> dict[str, Any]:
        """As numpy arrays."""
        like = {'params': self.shapes()}
        arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), like)
        restore = ocp.args.PyTreeRestore(like, restore_args=arguments, partial_restore=True)
        with self._manager() as manager:
            found = manager.restore(self.step, args=ocp.args.Composite(state=restore))['state']
        check(found, self.about())
        return found['params']

    def about(self) -> dict[str, Any]:
        """The JSON that was saved beside them."""
        with self._manager() as manager:
            return manager.restore(self.step, args=ocp.args.Composite(about=ocp.args.JsonRestore()))['about']
