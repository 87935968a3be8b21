"""Engines as tasks of a Ray cluster. They take runs by lease, so they need no orders; dead ones are begun anew.

Ray only starts processes here: all truth lies in the runs' folders, on a disk that all nodes see.
"""

import importlib
import logging
import os
import pathlib
from typing import Any

from bertx.errors import BadInput

log = logging.getLogger(__name__)

ROOT = pathlib.Path(__file__).parent.parent


def run(
    work: str, arguments: list[str], workers: int, address: str = '',
    resources: dict[str, float] | None = None, deaths: int = 100,
) -> list[int]:  # fmt: skip
    """The exit codes of `workers` calls of a function, 'module:name', each in a process that holds `resources`.

    address: of a running cluster ('auto': this machine's); '': one on this machine, for the time being. deaths: how
    many processes may be lost in all. Raises BadInput without ray.
    """
    try:
        import ray
        from ray import exceptions
    except ImportError:
        raise BadInput('--engine=ray: there is no ray; pip install -r requirements-ray.txt') from None
    begun_here = not ray.is_initialized()
    if begun_here:
        # A cluster's nodes get the code; this machine has it.
        environment: dict[str, Any] = {'env_vars': {'PYTHONPATH': os.pathsep.join([str(ROOT), os.getcwd()])}}
        if address:
            environment = {'working_dir': str(ROOT), 'excludes': ['runs', '.git', '*.png']}
        ray.init(address=address or None, runtime_env=environment, log_to_driver=True, include_dashboard=False)
    # One task a process: what a run leaves in jax's memory ends with it.
    options: Any = {'resources': resources} if resources else {}
    task = ray.remote(max_retries=0, max_calls=1, num_cpus=1, **options)(_call)
    lost = (exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError)
    running, codes = [task.remote(work, arguments) for _ in range(workers)], list[int]()
    try:
        while running:
            (done,), running = ray.wait(running, num_returns=1)
            try:
                codes.append(ray.get(done))
            except lost as error:
                deaths -= 1
                log.warning('a worker is lost (%s); another one takes over', type(error).__name__)
                if deaths < 0:
                    raise
                running.append(task.remote(work, arguments))
    finally:
        if begun_here:
            ray.shutdown()
    return codes


def _call(work: str, arguments: list[str]) -> int:
    """By name: a function of the main module would be sent with all that it can see."""
    module, _, name = work.partition(':')
    return getattr(importlib.import_module(module), name)(arguments)
