"""Stacks of kernels as Dask arrays: their objects are read by chunks, where Dask has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, override

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_unmasked
from .features import check_chunks
from .source import IN_MEMORY, CompletedRows, KernelSource, ParametricStack
from .stack import as_stack, check_gram, labelled

type Function = Callable[..., Any]
type Parts = Sequence[Sequence[Any]]

#: Rows of a chunk that are converted to float64 at once.
ROWS = 4096
#: Chunks whose sums one task adds: fewer would make more tasks, with a latency each.
ADDED = 8


def read_kernels(kernels: Any, owner: str) -> tuple[xr.DataArray, KernelSource]:
    """Check kernels in any form, and find out where they come from; (kernel, obs, basis)."""
    if isinstance(kernels, ParametricStack):
        return as_stack(kernels.start, owner=owner), kernels
    if isinstance(kernels, xr.DataArray) and kernels.chunks is not None:
        source = DaskStack.of(kernels, owner)
        return source.stack, source
    stack = as_stack(kernels, owner=owner)
    # Matrices that are not square are most likely features, unless a DataArray says otherwise.
    if not isinstance(kernels, xr.DataArray):
        check_gram(stack, owner, "kernels", ", for basis functions kz.kernels.as_stack(functions)")
    return stack, kernels if isinstance(kernels, CompletedRows) else IN_MEMORY


def compared_objects(n: int) -> NDArray[np.int64]:
    """Positions of up to 40 of n objects, evenly spaced, on which functions of results compare."""
    return np.unique(np.linspace(0, n - 1, 40).round().astype(int))


def rows_of(block: NDArray) -> Sequence[slice]:
    """Rows of a block (kernel, obs, basis) that are converted to float64 at once."""
    return [slice(start, start + ROWS) for start in range(0, block.shape[1], ROWS)]


@dataclass(frozen=True, eq=False, repr=False)
class DaskStack(KernelSource):
    """Stack (kernel, obs, basis) whose chunks of objects stay where Dask has or makes them.

    `rows` (S, R, M) are those of up to 40 objects, evenly spaced.
    """

    stack: xr.DataArray
    rows: NDArray
    in_memory: ClassVar[bool] = False
    not_data: ClassVar[str] = "The kernels are a Dask array: compute() of the stack loads them."

    @classmethod
    def of(cls, kernels: xr.DataArray, owner: str) -> Self:
        """Check a stack of a Dask array, and that its chunks hold what it promises; one pass."""
        whole = ".chunk({'kernel': -1, 'obs': 10_000, 'basis': -1})"
        check_chunks(kernels.chunksizes, "obs", "kernels", owner, whole)
        stack = labelled(kernels, None, owner, "kernels")
        if np.array_equal(stack["obs"].values, stack["basis"].values):
            rule = "in memory if they are Gram matrices; landmarks and features can be Dask arrays"
            got = "a Dask array whose labels of 'obs' and 'basis' are the same"
            raise argument_error("kernels", owner, rule, got)
        unread = cls(stack, np.empty(0))
        chosen = compared_objects(stack.sizes["obs"])
        names = stack["kernel"].values
        known = owner, names, stack.sizes["basis"], chosen
        (rows,) = unread.total(_compared_rows, *known, by_object=[unread.slices])
        return cls(stack, rows)

    @property
    @override
    def stand_ins(self) -> dict[str, NDArray]:
        return {"K_rows": self.rows}

    @override
    def declare(self, stack: xr.DataArray) -> None:
        """Declare `stand_ins` in the open model: results keep them, to tell whose they are."""
        compared = stack["obs"].values[compared_objects(self.stack.sizes["obs"])]
        pm.modelcontext(None).add_coord("compared", compared)
        pm.Data("K_rows", self.rows, dims=("kernel", "compared", "basis"))

    @cached_property
    def slices(self) -> list[slice]:
        """Objects of each chunk."""
        stops = np.cumsum(self.stack.chunksizes["obs"]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    def parts(self, array: NDArray) -> list[NDArray]:
        """Parts of an array (N, ...) that go to the chunks in one pass."""
        return [array[rows] for rows in self.slices]

    def held(self, array: NDArray) -> list[Any]:
        """Parts of an array (N, ...) that go to the workers once, for many passes."""
        import dask

        return list(dask.persist(*map(dask.delayed(_same, pure=False), self.parts(array))))

    def each(self, function: Function, *shared: Any) -> list[Any]:
        """Values of a function (chunk (S, n, M), *shared) on each chunk, in their order."""
        import dask

        return list(dask.compute(*self._tasks(function, shared)))

    def total(self, function: Function, *shared: Any, by_object: Parts = ()) -> tuple[Any, ...]:
        """Add up what a function (chunk (S, n, M), *parts, *shared) returns: numbers and arrays.

        `shared` goes to each worker once; `by_object` are parts of arrays, by `parts` or `held`.
        Eight neighbours are added where they are, then eight of these sums, whatever the workers.
        """
        import dask

        parts = self._tasks(function, shared, by_object)
        add = dask.delayed(_added, pure=False)
        while len(parts) > 1:
            parts = [add(*parts[i : i + ADDED]) for i in range(0, len(parts), ADDED)]
        return dask.compute(parts[0])[0]

    def _tasks(self, function: Function, shared: Sequence[Any], by_object: Parts = ()) -> list[Any]:
        import dask

        task = dask.delayed(function, pure=False)
        # Data of the graph: otherwise each chunk's task would hold a copy, and as tasks of their
        # own they would make Dask compute all chunks before the first function.
        common = [dask.delayed(value, pure=False, traverse=False) for value in shared]
        chunks = zip(self._chunks, *by_object, strict=True)
        return [task(*chunk_and_parts, *common) for chunk_and_parts in chunks]

    @cached_property
    def _chunks(self) -> list[Any]:
        return list(self.stack.data.to_delayed().ravel())


def _same[T](value: T) -> T:
    return value


def _added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def _compared_rows(
    block: NDArray, objects: slice, owner: str, names: NDArray, n_basis: int, chosen: NDArray
) -> tuple[NDArray]:
    """Rows (S, R, M) of the chosen objects of a chunk, else 0; raise unless all are finite."""
    expected = (len(names), objects.stop - objects.start, n_basis)
    if block.shape != expected or block.dtype.kind not in "fiub":
        rule = f"of chunks of real numbers of shape {expected}"
        got = f"{block.dtype}, shape {block.shape} in rows {objects.start} to {objects.stop - 1}"
        raise argument_error("kernels", owner, rule, got)
    check_unmasked(block, "kernels", owner)
    for part in rows_of(block):
        bad = np.argwhere(~np.isfinite(block[:, part]))
        if len(bad):
            kernel, row, column = bad[bad[:, 1].argmin()].tolist()
            got = f"NaN or infinity in kernel {names[kernel]}, "
            got += f"row {objects.start + part.start + row}, column {column}"
            raise argument_error("kernels", owner, "finite", got)
    rows = np.zeros((len(names), len(chosen), n_basis))
    here = (chosen >= objects.start) & (chosen < objects.stop)
    rows[:, here] = block[:, chosen[here] - objects.start]
    return (rows,)
