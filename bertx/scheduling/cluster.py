"""Work for the processes of a Ray cluster: engines that take runs by lease, or one function over many items.

Ray only starts processes here and carries items: all truth lies in folders, on a disk that all nodes see.
"""

import collections
import contextlib
import functools
import importlib
import logging
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from bertx.errors import BadInput
from bertx.scheduling import leases

log = logging.getLogger(__name__)

ROOT = pathlib.Path(__file__).parents[2]  # of the checkout
AGAIN = 5  # how often an item is given to another process after the loss of the one that had it

Item = TypeVar('Item')
Result = TypeVar('Result')


@contextlib.contextmanager
def connected(address: str = '', workers: int = 1) -> Iterator[None]:
    """In a running cluster ('auto': this machine's), or, '', in one for `workers` processes on this machine meanwhile.

    Raises BadInput without ray, or where there is no cluster.
    """
    try:
        import ray
    except ImportError:
        raise BadInput('--engine=ray: there is no ray; pip install -r requirements-ray.txt') from None
    if ray.is_initialized():
        yield
        return
    # A cluster's nodes get the code; this machine has it.
    environment: dict[str, Any] = {'env_vars': {'PYTHONPATH': os.pathsep.join([str(ROOT), os.getcwd()])}}
    if address:
        environment = {'working_dir': str(ROOT), 'excludes': ['runs', '.git', '*.png']}
    settings: dict[str, Any] = {'address': address} if address else {'num_cpus': workers}
    try:
        ray.init(**settings, runtime_env=environment, log_to_driver=True, include_dashboard=False)
    except ConnectionError as error:
        raise BadInput(f'--address={address}: {error}') from None
    try:
        yield
    finally:
        ray.shutdown()


def losses() -> tuple[type[Exception], ...]:
    """What is raised for a process that ended before its function did, or was silent until it counted as dead."""
    from ray import exceptions

    return exceptions.WorkerCrashedError, exceptions.NodeDiedError, exceptions.OutOfMemoryError, leases.Lost


def run(
    work: str, arguments: list[str], workers: int, address: str = '',
    resources: dict[str, float] | None = None, deaths: int = 100,
) -> list[int]:  # fmt: skip
    """The exit codes of `workers` calls of a function, 'module:name', each in a process that holds `resources`.

    address: see `connected`. deaths: how many processes may be lost in all; for each another one is begun, and since
    it takes runs by lease it needs no orders.
    """
    codes: list[int] = []
    with connected(address, workers):
        import ray

        # One task a process: what a run leaves in jax's memory ends with it. GPUs are shared out: two processes that
        # see one would both take its memory.
        gpus = ray.cluster_resources().get('GPU', 0.0)
        options: Any = {'num_gpus': gpus // workers or gpus / workers} if gpus and not resources else {}
        options |= {'resources': resources} if resources else {}
        task = ray.remote(max_retries=0, max_calls=1, num_cpus=1, **options)(call)
        begin = functools.partial(task.remote, work, arguments, os.getcwd())
        running = [begin() for _ in range(workers)]
        while running:
            (done,), running = ray.wait(running, num_returns=1)
            try:
                codes.append(ray.get(done))
            except losses() as error:
                deaths -= 1
                log.warning('a worker is lost (%s); another one takes over', type(error).__name__)
                if deaths < 0:
                    raise BadInput(
                        f'more workers were lost than --retry_preempted allows, the last by {type(error).__name__}; '
                        'the same command goes on from what is finished'
                    ) from None
                running.append(begin())
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None  # what the function raised, rather than Ray's account of it
    return codes


def call(work: str, arguments: list[str], folder: str) -> int:
    """By name: a function of the main module would be sent with all that it can see.

    folder: from which the arguments' paths lead, on a shared disk; elsewhere they are whole, or begin at the code.
    """
    with contextlib.suppress(FileNotFoundError):
        os.chdir(folder)
    module, _, name = work.partition(':')
    return getattr(importlib.import_module(module), name)(arguments)


def in_order(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """As `text.workers.in_order`, by processes of the cluster that one is connected to, `workers` at a time.

    What is given out and not yet taken is at most two items a worker. A process that is lost costs the item it had.
    """
    import ray

    task: Any = ray.remote(max_retries=AGAIN, num_cpus=1)(_apply)
    sent, waiting, running = ray.put(function), collections.deque[Any](), list[Any]()
    try:
        for item in items:
            if len(running) == workers:
                _, running = ray.wait(running)
            if len(waiting) == 2 * workers:
                yield ray.get(waiting.popleft())
            waiting.append(task.remote([sent], item))
            running.append(waiting[-1])
        while waiting:
            yield ray.get(waiting.popleft())
    except losses() as error:
        raise BadInput(
            f'{AGAIN + 1} processes ended at the same item ({type(error).__name__}), maybe for want of memory; the '
            'same command goes on from what is finished'
        ) from None
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


def _apply(sent: list[Any], item: Any) -> Any:
    return _fetched(sent[0])(item)


@functools.lru_cache(1)
def _fetched(sent: Any) -> Any:
    """A process unpacks the function, maybe with a large vocabulary in it, once and not for each item."""
    import ray

    os.environ['TOKENIZERS_PARALLELISM'] = 'false'  # each core has a process of its own
    return ray.get(sent)
