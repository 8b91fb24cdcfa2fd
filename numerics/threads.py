"""Blocks of objects in threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

#: Objects of a block. Its part of two kernels of 500 features stays in the processor's cache.
BLOCK = 1024


def in_blocks[T](function: Callable[[slice], T], n_obs: int) -> Iterator[T]:
    """Yield the function's values on blocks of 1,024 objects, in their order.

    Threads share the blocks, so the function must release the interpreter's lock to gain by it, as
    NumPy and code compiled with ``nogil`` do. The blocks do not depend on the number of threads.
    """
    blocks = blocks_of(n_obs)
    threads = min(_processors(), len(blocks))
    if threads < 2:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, blocks)


def blocks_of(n_obs: int) -> list[slice]:
    """Blocks of 1,024 objects."""
    return [slice(start, start + BLOCK) for start in range(0, n_obs, BLOCK)]


def _processors() -> int:
    # A job on a cluster may use a few of the machine's processors only.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
