"""The environment of a process that computes as a user's does, not as the tests do."""

import os

# As conftest.py has them, who says why.
OF_TESTS = {'XLA_FLAGS': '--xla_cpu_use_fusion_emitters=false', 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}


def environment() -> dict[str, str]:
    """With huge pages, which a command gives itself (experiments/__init__.py)."""
    rest = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    return rest | {'GLIBC_TUNABLES': 'glibc.malloc.hugetlb=1'}
