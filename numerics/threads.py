"""Blocks of objects in threads."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import numpy as np

#: Objects of a block. Its part of two kernels of 500 features stays in the processor's cache.
BLOCK_OBJECTS = 1024


def in_blocks[T](function: Callable[[slice], T], n_obs: int) -> Iterator[T]:
    """Yield the function's values on blocks of 1,024 objects, in their order.

    Threads share the blocks; functions that release the interpreter's lock gain by it.
    """
    starts = range(0, n_obs, BLOCK_OBJECTS)
    blocks = [slice(start, start + BLOCK_OBJECTS) for start in starts]
    threads = min(_processors(), len(blocks))
    if threads < 2:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, blocks)


def sums_over_blocks(function: Callable[[slice], tuple[Any, ...]], n_obs: int) -> tuple[Any, ...]:
    """Add up the numbers and arrays that the function returns on each block, in their order."""
    return reduce(lambda sums, more: tuple(map(np.add, sums, more)), in_blocks(function, n_obs))


def _processors() -> int:
    # A job on a cluster may use a few of the machine's processors only.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
