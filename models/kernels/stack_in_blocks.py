"""Stacks of kernels in blocks of objects: on disk, or on the workers of a Dask cluster."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .memory import check_workers
from .rows import COMPARED_OBJECTS, evenly_spaced
from .stack import as_stack, check_gram, labelled

__all__ = ["StackInBlocks", "rows_of", "stack_and_blocks"]

#: Rows of a block that are converted to float64 at once.
ROWS = 4096
#: Blocks whose sums one task adds: fewer would make more tasks, with a latency each.
ADDED = 8
#: Relative difference of sums over the blocks that other processors may make.
ROUNDING = 1e-9

# Threads do not survive a fork, and Dask would wait for those of its pool.
_PROCESS = os.getpid()


def stack_and_blocks(kernels: Any, owner: str) -> tuple[xr.DataArray, "StackInBlocks | None"]:
    """Check kernels in any form: their stack, and its blocks if it is a DataArray of Dask blocks.

    Raises
    ------
    ValueError
        As `as_stack` and `StackInBlocks.of`; and for matrices that are not square, which are most
        likely features, unless a DataArray says that they are basis functions.
    """
    if not isinstance(kernels, xr.DataArray) or kernels.chunks is None:
        stack = as_stack(kernels, owner=owner)
        if not isinstance(kernels, xr.DataArray):
            besides = ", for basis functions kz.kernels.kernel_stack(functions)"
            check_gram(stack, owner, "kernels", besides)
        return stack, None
    blocks = StackInBlocks.of(kernels, owner)
    return blocks.stack, blocks


def rows_of(block: NDArray) -> Sequence[slice]:
    """Rows of a block (kernel, obs, basis) that are converted to float64 at once."""
    return [slice(start, start + ROWS) for start in range(0, block.shape[1], ROWS)]


@dataclass(frozen=True, eq=False, repr=False)
class StackInBlocks:
    """Stack (kernel, obs, basis) whose blocks of objects stay where Dask has or makes them.

    Attributes
    ----------
    stack : DataArray of shape (S, N, M)
        Dask array in one block along "kernel" and "basis", of numbers.
    rows : array of shape (S, R, M)
        Rows of up to 40 objects, evenly spaced.
    projection : array of shape (S, M)
        Sums over the objects n, from 0, of cos(n + 1) times their rows: another order of the
        objects has other sums.
    """

    stack: xr.DataArray
    rows: NDArray
    projection: NDArray

    @classmethod
    def of(cls, kernels: xr.DataArray, owner: str, argument: str = "kernels") -> Self:
        """Check a stack of Dask blocks; one pass over the blocks.

        Raises
        ------
        ValueError
            As `as_stack`; for matrices between the objects, and blocks of unknown size; and for
            blocks that are not of the shape or the numbers that the stack promises. The message
            names the kernel and the object of the first entry that is NaN or infinite.
        """
        if np.isnan(kernels.shape).any():
            got = "unknown sizes: call compute_chunk_sizes() of the Dask array"
            raise argument_error(argument, owner, "of blocks of known size", got)
        stack = labelled(kernels, None, owner, argument)
        if np.array_equal(stack["obs"].values, stack["basis"].values):
            raise argument_error(
                argument,
                owner,
                "in memory if they are Gram matrices; landmarks and features can be in blocks",
                "Dask blocks whose labels of 'obs' and 'basis' are the same",
            )
        # Masks leave blocks without objects.
        sizes = tuple(size for size in stack.chunksizes["obs"] if size)
        whole = stack.chunk({"kernel": -1, "obs": sizes, "basis": -1})
        largest = max(sizes) * whole.sizes["kernel"] * whole.sizes["basis"] * whole.dtype.itemsize
        check_workers(largest, argument, owner)
        unread = cls(whole, np.empty(0), np.empty(0))
        return cls(whole, *unread._read(owner, argument))

    def _read(self, owner: str, argument: str = "kernels") -> tuple[NDArray, NDArray]:
        """Read and check all blocks; `rows` and `projection`."""
        chosen = evenly_spaced(len(self), COMPARED_OBJECTS)
        rows, projection, wrong = self.total(_summary, self.shape, chosen, by_object=[self.slices])
        if wrong:
            raise self._first_error(owner, argument)
        return rows, projection

    def _first_error(self, owner: str, argument: str) -> ValueError:
        found = self.each(_first_wrong, self.shape, by_object=[self.slices])
        rows, place = next(pair for pair in zip(self.slices, found, strict=True) if pair[1])
        expected = (self.shape[0], rows.stop - rows.start, self.shape[2])
        if isinstance(place, str):
            got = f"{place} in rows {rows.start} to {rows.stop - 1}"
            rule = f"of blocks of real numbers of shape {expected}"
            return argument_error(argument, owner, rule, got)
        kernel, row, column = place
        name, label = self.stack["kernel"].values[kernel], self.stack["obs"].values[row]
        got = f"NaN or infinity in kernel {name}, object {label} (row {row}), column {column}"
        return argument_error(argument, owner, "finite", got)

    @contextmanager
    def unchanged(self, owner: str) -> Iterator[None]:
        """Check in the end, also of a failure that changed blocks may have caused."""
        try:
            yield
        except (ValueError, ArithmeticError):
            self.check_unchanged(owner)
            raise
        self.check_unchanged(owner)

    def check_unchanged(self, owner: str) -> None:
        """Raise ValueError if the blocks hold other numbers than at first; one pass."""
        for now, then in zip(self._read(owner), (self.rows, self.projection), strict=True):
            if np.abs(now - then).max() > ROUNDING * np.abs(then).max():
                raise ValueError(
                    f"{owner} has read other numbers from the kernels' blocks in the end than in "
                    "the beginning: a file or a store has changed meanwhile."
                )

    @property
    def data(self) -> dict[str, tuple[NDArray, tuple[str, ...]]]:
        """Values and dims of the data that stand for the kernels in a model and its results."""
        return {
            "K_rows": (self.rows, ("kernel", "compared", "basis")),
            "K_projection": (self.projection, ("kernel", "basis")),
        }

    def declare(self) -> None:
        """Declare `data` in the open model: results keep them, to tell whose they are."""
        compared = self.stack["obs"].values[evenly_spaced(len(self), COMPARED_OBJECTS)]
        pm.modelcontext(None).add_coord("compared", compared)
        for name, (values, dims) in self.data.items():
            pm.Data(name, values, dims=dims)

    def __len__(self) -> int:
        """Return the number of objects."""
        return self.stack.sizes["obs"]

    def __repr__(self) -> str:
        """Describe sizes."""
        s, n, m = self.stack.shape
        return f"StackInBlocks({s} kernels, {n} objects, {m} columns, {len(self.slices)} blocks)"

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of kernels, objects and columns."""
        s, n, m = self.stack.shape
        return s, n, m

    @cached_property
    def slices(self) -> list[slice]:
        """Objects of each block."""
        stops = np.cumsum(self.stack.chunksizes["obs"]).tolist()
        return [slice(a, b) for a, b in zip([0, *stops], stops, strict=False)]

    def parts(self, array: NDArray) -> list[NDArray]:
        """Parts of an array (N, ...) that go to the blocks in one pass."""
        return [array[rows] for rows in self.slices]

    def held(self, array: NDArray) -> list[Any]:
        """Parts of an array (N, ...) that go to the workers once, for many passes."""
        import dask

        of_parts = dask.delayed(_same, pure=False)
        return list(dask.persist(*map(of_parts, self.parts(array)), **self._options))

    def each(
        self,
        function: Callable[..., Any],
        *shared: Any,
        by_object: Sequence[Sequence[Any]] = (),
    ) -> list[Any]:
        """Values of a function on each block, in the order of the objects.

        Parameters
        ----------
        function : callable (block of shape (S, n, M), *parts, *shared) -> value
            Runs where the block is, so it must be importable there.
        *shared
            Arguments for all blocks, which go to each worker once.
        by_object : sequence of sequence
            One part for each block of arrays (N, ...), as `parts` and `held` give them.
        """
        return list(self._computed(*self._tasks(function, shared, by_object)))

    def total(
        self,
        function: Callable[..., tuple[Any, ...]],
        *shared: Any,
        by_object: Sequence[Sequence[Any]] = (),
    ) -> tuple[Any, ...]:
        """Add up the numbers and arrays that a function returns for each block.

        Eight neighbours are added where they are, then eight of these sums, so that the sums do not
        depend on the workers, and one block's arrays reach this process. Arguments as in `each`.
        """
        import dask

        parts = self._tasks(function, shared, by_object)
        add = dask.delayed(_added, pure=False)
        while len(parts) > 1:
            parts = [add(*parts[i : i + ADDED]) for i in range(0, len(parts), ADDED)]
        return self._computed(parts[0])[0]

    def _computed(self, *tasks: Any) -> tuple[Any, ...]:
        import dask

        try:
            return dask.compute(*tasks, **self._options)
        except CancelledError as error:
            raise ConnectionError(
                "The Dask scheduler was lost, or blocks that its workers held: connect a client, "
                f"make the blocks again and declare the model from them. {error}"
            ) from error

    @property
    def _options(self) -> dict[str, str]:
        if os.getpid() == _PROCESS:
            return {}
        if self._on_workers:
            raise RuntimeError(
                "Kernels in the memory of a cluster's workers cannot be read by chains in "
                "processes of their own: pass cores=1, or do not persist the blocks."
            )
        return {"scheduler": "synchronous"}

    @property
    def _on_workers(self) -> bool:
        """Whether blocks are in the memory of workers; a client is connected then."""
        distributed = sys.modules.get("distributed")
        return distributed is not None and bool(distributed.futures_of(self.stack.data))

    def _tasks(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        by_object: Sequence[Sequence[Any]],
    ) -> list[Any]:
        import dask

        task = dask.delayed(function, pure=False)
        # A task of their own: otherwise each block's task would hold a copy.
        common = [dask.delayed(_same, pure=False)(value) for value in shared]
        blocks = zip(self._blocks, *by_object, strict=True)
        return [task(*block_and_parts, *common) for block_and_parts in blocks]

    @cached_property
    def _blocks(self) -> list[Any]:
        return list(self.stack.data.to_delayed().ravel())


def _same[T](value: T) -> T:
    return value


def _added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def _summary(
    block: NDArray, objects: slice, shape: tuple[int, int, int], chosen: NDArray
) -> tuple[NDArray, NDArray, int]:
    """Rows (S, R, M) of the chosen objects of a block, else 0; its projection; if it is wrong."""
    s, _, m = shape
    rows, projection = np.zeros((s, len(chosen), m)), np.zeros((s, m))
    if _unlike(block, (s, objects.stop - objects.start, m)):
        return rows, projection, 1
    here = (chosen >= objects.start) & (chosen < objects.stop)
    rows[:, here] = block[:, chosen[here] - objects.start]
    for part in rows_of(block):
        values = np.asarray(block[:, part], dtype=float)
        numbers = objects.start + part.start + np.arange(values.shape[1])
        projection += np.tensordot(np.cos(numbers + 1.0), values, axes=(0, 1))
    return rows, projection, int(not np.isfinite(projection).all())


def _unlike(block: NDArray, shape: tuple[int, int, int]) -> str | None:
    """Say what a block is that has another shape than promised, or no real numbers."""
    if block.shape != shape:
        return f"shape {block.shape}"
    return None if block.dtype.kind in "fiub" else f"dtype {block.dtype}"


def _first_wrong(
    block: NDArray, objects: slice, shape: tuple[int, int, int]
) -> str | tuple[int, int, int] | None:
    """Say what is wrong with a block, or give the place of the first entry that is not finite."""
    if wrong := _unlike(block, (shape[0], objects.stop - objects.start, shape[2])):
        return wrong
    for part in rows_of(block):
        bad = np.argwhere(~np.isfinite(np.asarray(block[:, part], dtype=float)))
        if len(bad):
            kernel, row, column = bad[np.argsort(bad[:, 1], kind="stable")[0]].tolist()
            return kernel, objects.start + part.start + row, column
    return None
