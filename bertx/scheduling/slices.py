"""A TPU slice as one worker of a Ray cluster: a process on each of its hosts, which jax joins to one program.

Ray gives each host of a slice the resources {'TPU': its chips, NAME OF THE SLICE: 1}, and the first one
{'TPU-KIND-head': 1} besides. Who holds the head has the slice.
"""

import os
import socket
import time
from typing import Any

from bertx.errors import BadInput
from bertx.scheduling import cluster

ONE_CORE = ('v5litepod', 'v6e')  # the number in a kind's name counts chips; of the others it counts two cores a chip
PATIENCE, LOOK = 600.0, 2.0  # seconds that a slice's hosts may take to come, and between two looks
GRACE = 60.0  # seconds after one host's error in which another one may turn out to be lost


def run(work: str, arguments: list[str], workers: int, kind: str, address: str = '', deaths: int = 100) -> list[int]:
    """As `cluster.run`, with each call made on all hosts of a slice of that kind: v5litepod-16, v4-32.

    The function gets --coordinator, --processes and --process besides its arguments, or --distributed where hosts have
    no TPU_WORKER_ID and jax finds them by itself.
    """
    chips(kind)
    return cluster.run(
        'bertx.scheduling.slices:lead', [kind, work, *arguments], workers, address, {f'TPU-{kind}-head': 1}, deaths
    )


def chips(kind: str) -> int:
    """How many a slice of this kind has. Raises BadInput for a name that is not made as Ray makes them."""
    generation, _, size = kind.partition('-')
    if not generation.startswith('v') or not size.isdecimal():
        raise BadInput(f'--slice={kind}: Ray names them like v5litepod-16 or v4-32')
    return int(size) if generation in ONE_CORE else int(size) // 2


def lead(arguments: list[str]) -> int:
    """On the first host: the function on every host of its slice, and the largest of their exit codes."""
    import ray
    from ray.util.accelerators import tpu

    kind, work, *rest = arguments
    name = tpu.get_current_pod_name()
    if not name:
        raise BadInput(f'--slice={kind}: a host with TPU-{kind}-head does not know the name of its slice')
    nodes = _nodes(name, kind)
    with socket.socket() as free:
        free.bind(('', 0))
        coordinator = f'{ray.util.get_node_ip_address()}:{free.getsockname()[1]}'
    task: Any = ray.remote(max_retries=0, max_calls=1, num_cpus=1)(one_host)
    holding = lambda node: task.options(resources={name: 1, 'TPU': node['Resources']['TPU']})
    started = [holding(node).remote(work, rest, os.getcwd(), coordinator, len(nodes)) for node in nodes]
    return max(_ends(started))


def one_host(work: str, arguments: list[str], folder: str, coordinator: str, hosts: int) -> int:
    """The function on one host, with flags that say which of how many it is."""
    number = os.environ.get('TPU_WORKER_ID')
    by_hand = [f'--coordinator={coordinator}', f'--processes={hosts}', f'--process={number}']
    return cluster.call(work, [*arguments, *(by_hand if number else ['--distributed'])], folder)


def _nodes(name: str, kind: str) -> list[Any]:
    """The hosts of a slice, once all of them are there: on fewer the TPUs would not start."""
    import ray

    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        nodes = [node for node in ray.nodes() if node['Alive'] and name in node['Resources']]
        if sum(node['Resources'].get('TPU', 0) for node in nodes) == chips(kind):
            return nodes
        time.sleep(LOOK)
    raise ray.exceptions.NodeDiedError(f'the hosts of {name} are not all there')


def _ends(started: list[Any]) -> list[int]:
    """What the hosts return. The first error ends all of them, since a program does not go on with fewer.

    Where a host is lost the others fail too, maybe before Ray knows of it; raised is the loss, after which another
    leader begins anew.
    """
    import ray

    codes, errors, left = list[int](), list[Exception](), started
    while left:
        ended, left = ray.wait(left, timeout=GRACE if errors else None)
        if not ended:
            break
        try:
            codes.append(ray.get(ended[0]))
        except Exception as error:  # noqa: BLE001 - of any kind
            errors.append(error)
    for task in left:
        ray.cancel(task, force=True)
    if errors:
        raise next((error for error in errors if isinstance(error, cluster.losses())), errors[0])
    return codes
