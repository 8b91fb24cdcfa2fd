"""Stacks of kernels in blocks of objects: on disk, or on the workers of a Dask cluster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .stack import as_stack, labelled

__all__ = ["StackInBlocks", "stack_and_blocks"]

# Rows of a block that are converted to float64 at once.
ROWS = 4096


def stack_and_blocks(kernels: Any, owner: str) -> tuple[xr.DataArray, "StackInBlocks | None"]:
    """Check kernels in any form: their stack, and its blocks if it is a DataArray of Dask blocks.

    Raises
    ------
    ValueError
        As `as_stack` and `StackInBlocks.of`.
    """
    if not isinstance(kernels, xr.DataArray) or kernels.chunks is None:
        return as_stack(kernels, owner=owner), None
    blocks = StackInBlocks.of(kernels, owner)
    return blocks.stack, blocks


@dataclass(frozen=True, eq=False, repr=False)
class StackInBlocks:
    """Stack (kernel, obs, basis) whose blocks of objects stay where Dask has or makes them.

    Attributes
    ----------
    stack : DataArray of shape (S, N, M)
        Dask array in one block along "kernel" and "basis", of floats.
    column_sums : array of shape (S, M)
        Sums over the objects, which tell different stacks apart.
    """

    stack: xr.DataArray
    column_sums: NDArray

    @classmethod
    def of(cls, kernels: xr.DataArray, owner: str, argument: str = "kernels") -> Self:
        """Check a stack of Dask blocks; one pass over the blocks.

        Raises
        ------
        ValueError
            As `as_stack`; for matrices between the objects; and for blocks that are not of the
            shape or the numbers that the stack promises. The message names the kernel and the
            object of the first entry that is NaN or infinite.
        """
        stack = labelled(kernels, None, owner, argument)
        if np.array_equal(stack["obs"].values, stack["basis"].values):
            raise argument_error(
                argument,
                owner,
                "in memory if they are Gram matrices; landmarks and features can be in blocks",
                "Dask blocks whose labels of 'obs' and 'basis' are the same",
            )
        unread = cls(stack.chunk({"kernel": -1, "basis": -1}), np.empty(0))
        return cls(unread.stack, unread.sums_of_columns(owner, argument))

    def sums_of_columns(self, owner: str, argument: str = "kernels") -> NDArray:
        """Read and check all blocks; return the sums (S, M) over the objects.

        Raises
        ------
        ValueError
            For blocks of another shape than the stack promises, and for NaN or infinity, whose
            kernel and object are named.
        """
        total = np.zeros((self.shape[0], self.shape[2]))
        for rows, (shape, sums, bad) in zip(self.slices, self.over(_summary), strict=True):
            expected = (self.shape[0], rows.stop - rows.start, self.shape[2])
            if shape != expected:
                got = f"shape {shape} in rows {rows.start} to {rows.stop - 1}"
                raise argument_error(argument, owner, f"of blocks of shape {expected}", got)
            if bad is not None:
                kernel, row, column = bad
                row += rows.start
                names = (self.stack[dim].values for dim in ("kernel", "obs"))
                name, label = (each[i] for each, i in zip(names, (kernel, row), strict=True))
                got = (
                    f"NaN or infinity in kernel {name}, object {label} (row {row}), column {column}"
                )
                raise argument_error(argument, owner, "finite", got)
            total += sums
        return total

    def check_unchanged(self, owner: str) -> None:
        """Raise ValueError if the blocks hold other numbers than at first; one pass."""
        if not np.allclose(self.sums_of_columns(owner), self.column_sums, rtol=1e-9, atol=1e-9):
            raise ValueError(
                f"{owner} has read other numbers from the kernels' blocks in the end than in the "
                "beginning: a file or a store has changed meanwhile."
            )

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
        return list(dask.persist(*(of_parts(part) for part in self.parts(array))))

    def over(
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
        import dask

        return list(dask.compute(*self._tasks(function, shared, by_object)))

    def sums(
        self,
        function: Callable[..., tuple[Any, ...]],
        *shared: Any,
        by_object: Sequence[Sequence[Any]] = (),
    ) -> tuple[Any, ...]:
        """Add up the numbers and arrays that a function returns for each block.

        Pairs of neighbours are added where they are, then pairs of these, so that the sums do not
        depend on the workers, and one block's arrays reach this process. Arguments as in `over`.
        """
        import dask

        parts = self._tasks(function, shared, by_object)
        add = dask.delayed(_added, pure=False)
        while len(parts) > 1:
            pairs = [add(*pair) for pair in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[len(pairs) * 2 :]
        return parts[0].compute()

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


def _added(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))


def _summary(
    block: NDArray,
) -> tuple[tuple[int, ...], NDArray, tuple[int, int, int] | None]:
    """Shape, column sums (S, M) and the position of the first entry that is not finite."""
    if block.ndim != 3:
        return block.shape, np.zeros(()), None
    total = np.zeros((block.shape[0], block.shape[2]))
    for start in range(0, block.shape[1], ROWS):
        rows = np.asarray(block[:, start : start + ROWS], dtype=float)
        part = rows.sum(axis=1)
        if not np.isfinite(part).all():
            bad = np.argwhere(~np.isfinite(rows))
            if len(bad):
                kernel, row, column = (int(i) for i in bad[0])
                return block.shape, total, (kernel, start + row, column)
        total += part
    return block.shape, total, None
