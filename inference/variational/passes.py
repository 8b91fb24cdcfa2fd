"""Passes over the kernels of all objects, in memory, as `DaskStack` has them over chunks."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ...numerics import threads

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class InMemory:
    """Kernels (S, N, M); threads share blocks of the objects, whose sums are added in their order.

    Functions of a block take its kernels, the parts of arrays by object, and what blocks share.
    """

    design: Array

    def parts(self, array: Array) -> list[Array]:
        """Parts of an array (N, ...), as views."""
        return [array[objects] for objects in threads.blocks_of(len(array))]

    def each(
        self, function: Callable[..., Any], *shared: Any, by_object: Sequence[Sequence[Any]] = ()
    ) -> list[Any]:
        """Values of a function on each block."""
        return list(self._values(function, shared, by_object))

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
        by_object: Sequence[Sequence[Any]],
    ) -> Iterator[Any]:
        def value(objects: slice) -> Any:
            block = objects.start // threads.BLOCK
            own = (parts[block] for parts in by_object)
            return function(self.design[:, objects], *own, *shared)

        return threads.in_blocks(value, self.design.shape[1])
