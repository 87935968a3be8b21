"""One of two processes that train together on this machine; tests/test_parallel.py starts them.

python -m tests.two_hosts PORT PROCESS STORE OUT LAYOUT...
"""

import sys

import jax
import numpy as np
from absl import flags

from bertx import parallel
from bertx.text.store import TokenStore


def main(port: str, process: str, store: str, out: str, *layouts: str) -> None:
    flags.FLAGS.mark_as_parsed()
    jax.distributed.initialize(f'localhost:{port}', 2, int(process))
    from tests.test_parallel import LAYOUTS, five_steps

    for name in layouts:
        fsdp, kind = LAYOUTS[name]
        found = five_steps(TokenStore(store), parallel.data_mesh(0, fsdp), kind)
        if process == '0':
            np.savez(f'{out}/{name}.npz', *jax.tree.leaves(found))


if __name__ == '__main__':
    main(*sys.argv[1:])
