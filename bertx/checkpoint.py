"""Checkpoints: the only module that imports orbax (its v0 API). Written atomically, in the background."""

from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath


class Checkpoints:
    """The checkpoints of one run in a folder, which may be on gs://. Keeps the latest `keep`."""

    def __init__(self, folder, keep: int = 1):
        options = ocp.CheckpointManagerOptions(
            preservation_policy=ocp.checkpoint_managers.LatestN(keep), enable_async_checkpointing=True
        )
        self.manager = ocp.CheckpointManager(epath.Path(folder).resolve(), options=options)  # refuses relative paths

    @property
    def latest(self) -> int | None:
        """The step of the newest complete checkpoint."""
        return self.manager.latest_step()

    def save(self, step: int, state: Any, about: dict[str, Any]) -> None:
        """Copies the state and returns; it is written meanwhile. about: JSON that says what the state belongs to."""
        self.manager.save(
            step, args=ocp.args.Composite(state=ocp.args.PyTreeSave(state), about=ocp.args.JsonSave(about))
        )

    def restore(self, like: Any, step: int | None = None) -> Any:
        """The state of a step (the latest one), with the structure, types and shardings of `like`."""
        arguments = ocp.checkpoint_utils.construct_restore_args(like)
        shapes = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        args = ocp.args.Composite(state=ocp.args.PyTreeRestore(shapes, restore_args=arguments))
        return self.manager.restore(self.latest if step is None else step, args=args)['state']

    def about(self, step: int | None = None) -> dict[str, Any]:
        args = ocp.args.Composite(about=ocp.args.JsonRestore())
        return self.manager.restore(self.latest if step is None else step, args=args)['about']

    def wait(self) -> None:
        """Until all that was saved is on disk."""
        self.manager.wait_until_finished()

    def close(self) -> None:
        self.manager.close()


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
            return manager.restore(self.step, args=ocp.args.Composite(state=restore))['state']['params']

    def about(self) -> dict[str, Any]:
        """The JSON that was saved beside them."""
        with self._manager() as manager:
            return manager.restore(self.step, args=ocp.args.Composite(about=ocp.args.JsonRestore()))['about']
