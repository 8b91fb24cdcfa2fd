"""Blocks of objects in threads, and passes over kernels in memory by them."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

type Array = npt.NDArray[np.float64]

#: Objects of a block. Its part of two kernels of 500 features stays in the processor's cache.
BLOCK_OBJECTS = 1024


def in_blocks[T](function: Callable[[slice], T], n_obs: int) -> Iterator[T]:
    """Yield the function's values on blocks of 1,024 objects, in their order.

    Threads share the blocks; functions that release the interpreter's lock gain by it.
    """
    blocks = blocks_of(n_obs)
    threads = min(_processors(), len(blocks))
    if threads < 2:
        yield from map(function, blocks)
        return
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(function, blocks)


def blocks_of(n_obs: int) -> list[slice]:
    """Blocks of 1,024 objects, whatever the number of threads."""
    return [slice(start, start + BLOCK_OBJECTS) for start in range(0, n_obs, BLOCK_OBJECTS)]


def _processors() -> int:
    # A job on a cluster may use a few of the machine's processors only.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class InMemory:
    """Kernels (S, N, M) with the passes of a `DaskStack`.

    Threads share blocks of the objects, whose sums are added in their order. Functions of a block
    take its kernels, the parts of arrays by object, and what blocks share.
    """

    design: Array

    def parts(self, array: Array) -> list[Array]:
        """Parts of an array (N, ...), as views."""
        return [array[objects] for objects in blocks_of(len(array))]

    def each(self, function: Callable[..., Any], *shared: Any) -> list[Any]:
        """Values of a function on each block."""
        return list(self._values(function, shared))

    def total(
        self, function: Callable[..., Any], *shared: Any, by_object: Sequence[Sequence[Any]] = ()
    ) -> tuple[Any, ...]:
        """Add up the numbers and arrays that a function returns for each block."""
        values = self._values(function, shared, by_object)
        return reduce(lambda sums, more: tuple(map(np.add, sums, more)), values)

    def _values(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        by_object: Sequence[Sequence[Any]] = (),
    ) -> Iterator[Any]:
        def value(objects: slice) -> Any:
            own = (parts[objects.start // BLOCK_OBJECTS] for parts in by_object)
            return function(self.design[:, objects], *own, *shared)

        return in_blocks(value, self.design.shape[1])
