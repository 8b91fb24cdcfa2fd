"""Stacks of kernels as Dask arrays: their objects are read by chunks, where Dask has them."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error
from .features import Objects
from .member import FittedMember
from .rows import BLOCK, COMPARED_OBJECTS, evenly_spaced, is_dask
from .stack import as_stack, check_gram, labelled

__all__ = ["DaskStack", "kernels_of_dask", "rows_of", "stack_and_blocks", "values_of"]

#: Largest chunk of a stack, in numbers (64 MB).
LARGEST = 4 * BLOCK
#: Rows of a chunk that are converted to float64 at once.
ROWS = 4096
#: Relative difference between two passes that is rounding.
ROUNDING = 1e-9
#: Chunks whose sums one task adds: fewer would make more tasks, with a latency each.
ADDED = 8


def values_of(kernels: Sequence[FittedMember], objects: Objects, width: int) -> NDArray:
    """Kernels (S, n, M) of objects; those with fewer columns than others leave zeros."""
    values = np.zeros((len(kernels), len(objects.labels), width))
    for out, kernel in zip(values, kernels, strict=True):
        columns = kernel(objects)
        out[:, : columns.shape[1]] = columns
    return values


def kernels_of_dask(kernels: Sequence[FittedMember], objects: Objects, width: int) -> Any:
    """Dask array (S, n, M) of the kernels of objects whose features are Dask arrays.

    Its chunks of objects are those of the features, or smaller if these make more than 64 MB.
    """
    import dask
    import dask.array as da

    spaces = list(dict.fromkeys(kernel.space for kernel in kernels))
    if objects.self_similarity.keys() & set(spaces):
        raise argument_error("X", "Kernels", "in memory for a cross_gram", "a Dask array")
    features = [objects.features[space] for space in spaces]
    rows = next(X.chunks[0] for X in features if is_dask(X))
    most = max(1, LARGEST // (len(kernels) * width))
    features = [da.asarray(X).rechunk((rows if max(rows) <= most else most, -1)) for X in features]
    # One task holds the kernels, which go to each worker once.
    shared = dask.delayed(_same, pure=False)(dask.delayed(list(kernels), traverse=False))
    return da.map_blocks(
        _chunk_of_stack, *features, kernels=shared, spaces=spaces, width=width,
        new_axis=0, chunks=((len(kernels),), features[0].chunks[0], (width,)), dtype=float,
        meta=np.empty((0, 0, 0)),
    )  # fmt: skip


def _chunk_of_stack(
    *features: NDArray, kernels: Sequence[FittedMember], spaces: Sequence[str | None], width: int
) -> NDArray:
    objects = Objects(dict(zip(spaces, features, strict=True)), np.arange(len(features[0])), {})
    return values_of(kernels, objects, width)


def stack_and_blocks(kernels: Any, owner: str) -> tuple[xr.DataArray, "DaskStack | None"]:
    """Check kernels in any form: their stack, and the same if it is a DataArray of a Dask array.

    Raises
    ------
    ValueError
        As `as_stack` and `DaskStack.of`; and for matrices that are not square, which are most
        likely features, unless a DataArray says that they are basis functions.
    """
    if not isinstance(kernels, xr.DataArray) or kernels.chunks is None:
        stack = as_stack(kernels, owner=owner)
        if not isinstance(kernels, xr.DataArray):
            besides = ", for basis functions kz.kernels.kernel_stack(functions)"
            check_gram(stack, owner, "kernels", besides)
        return stack, None
    blocks = DaskStack.of(kernels, owner)
    return blocks.stack, blocks


def rows_of(block: NDArray) -> Sequence[slice]:
    """Rows of a block (kernel, obs, basis) that are converted to float64 at once."""
    return [slice(start, start + ROWS) for start in range(0, block.shape[1], ROWS)]


class _Wrong(ValueError):
    """Place (kernel, row, column) of an entry of a stack that is not finite."""


@dataclass(frozen=True, eq=False, repr=False)
class DaskStack:
    """Stack (kernel, obs, basis) whose chunks of objects stay where Dask has or makes them.

    Attributes
    ----------
    stack : DataArray of shape (S, N, M)
        Dask array of numbers, in one chunk along "kernel" and "basis".
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
        """Check a stack of a Dask array; one pass over the chunks.

        Raises
        ------
        ValueError
            As `as_stack`; for matrices between the objects, and chunks that split the columns, are
            empty or of unknown size; and for chunks that are not of the shape or the numbers that
            the stack promises. The message names the kernel and the object of an entry that is NaN
            or infinite.
        """
        if np.isnan(kernels.shape).any():
            got = "unknown sizes: call compute_chunk_sizes() of the Dask array"
            raise argument_error(argument, owner, "of chunks of known size", got)
        stack = labelled(kernels, None, owner, argument)
        sizes = stack.chunksizes
        if len(sizes["kernel"]) > 1 or len(sizes["basis"]) > 1 or 0 in sizes["obs"]:
            rule = "of chunks of whole rows: .chunk({'kernel': -1, 'obs': 10_000, 'basis': -1})"
            raise argument_error(argument, owner, rule, f"chunks {dict(sizes)}")
        if np.array_equal(stack["obs"].values, stack["basis"].values):
            raise argument_error(
                argument,
                owner,
                "in memory if they are Gram matrices; landmarks and features can be Dask arrays",
                "a Dask array whose labels of 'obs' and 'basis' are the same",
            )
        try:
            summary = cls(stack, np.empty(0), np.empty(0))._read()
        except _Wrong as wrong:
            kernel, row, column = wrong.args
            name, label = stack["kernel"].values[kernel], stack["obs"].values[row]
            got = f"NaN or infinity in kernel {name}, object {label} (row {row}), column {column}"
            raise argument_error(argument, owner, "finite", got) from None
        return cls(stack, *summary)

    def _read(self) -> tuple[NDArray, NDArray]:
        """Compute `rows` and `projection`; one pass."""
        chosen = evenly_spaced(len(self), COMPARED_OBJECTS)
        rows, projection = self.total(_summary, self.shape, chosen, by_object=[self.slices])
        return rows, projection

    @contextmanager
    def unchanged(self, owner: str) -> Iterator[None]:
        """Raise ValueError in the end unless the chunks hold the same numbers as at first.

        Also after an error, which changed chunks may have caused. One pass.
        """
        try:
            yield
        except (ValueError, ArithmeticError):
            self._check_unchanged(owner)
            raise
        self._check_unchanged(owner)

    def _check_unchanged(self, owner: str) -> None:
        before = self.rows, self.projection
        with suppress(_Wrong):
            pairs = zip(self._read(), before, strict=True)
            if all(np.abs(now - old).max() <= ROUNDING * np.abs(old).max() for now, old in pairs):
                return
        raise ValueError(
            f"{owner} has read other numbers from the kernels' chunks in the end than in the "
            "beginning: a file or a store has changed meanwhile."
        )

    @property
    def data(self) -> Mapping[str, tuple[NDArray, tuple[str, ...]]]:
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

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of kernels, objects and columns."""
        s, n, m = self.stack.shape
        return s, n, m

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

    def each(
        self,
        function: Callable[..., Any],
        *shared: Any,
        by_object: Sequence[Sequence[Any]] = (),
    ) -> list[Any]:
        """Values of a function on each chunk, in the order of the objects.

        Parameters
        ----------
        function : callable (chunk of shape (S, n, M), *parts, *shared) -> value
            Runs where the chunk is, so it must be importable there.
        *shared
            Arguments for all chunks, which go to each worker once.
        by_object : sequence of sequence
            One part for each chunk of arrays (N, ...), as `parts` and `held` give them.
        """
        return list(_computed(*self._tasks(function, shared, by_object)))

    def total(
        self,
        function: Callable[..., tuple[Any, ...]],
        *shared: Any,
        by_object: Sequence[Sequence[Any]] = (),
    ) -> tuple[Any, ...]:
        """Add up the numbers and arrays that a function returns for each chunk.

        Eight neighbours are added where they are, then eight of these sums, so that the sums do not
        depend on the workers, and one chunk's arrays reach this process. Arguments as in `each`.
        """
        import dask

        parts = self._tasks(function, shared, by_object)
        add = dask.delayed(_added, pure=False)
        while len(parts) > 1:
            parts = [add(*parts[i : i + ADDED]) for i in range(0, len(parts), ADDED)]
        return _computed(parts[0])[0]

    def _tasks(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        by_object: Sequence[Sequence[Any]],
    ) -> list[Any]:
        import dask

        task = dask.delayed(function, pure=False)
        # A task of their own: otherwise each chunk's task would hold a copy.
        common = [dask.delayed(_same, pure=False)(value) for value in shared]
        chunks = zip(self._chunks, *by_object, strict=True)
        return [task(*chunk_and_parts, *common) for chunk_and_parts in chunks]

    @cached_property
    def _chunks(self) -> list[Any]:
        return list(self.stack.data.to_delayed().ravel())


def _computed(*tasks: Any) -> tuple[Any, ...]:
    import dask

    try:
        return dask.compute(*tasks)
    except _errors_of_a_lost_scheduler() as error:
        raise ConnectionError(
            "The Dask scheduler was lost, or chunks that its workers held: connect a client, make "
            f"the Dask array again and declare the model from it. {error}"
        ) from error


def _errors_of_a_lost_scheduler() -> tuple[type[Exception], ...]:
    """Errors of tasks that are cancelled, and of results that are being fetched."""
    if (distributed := sys.modules.get("distributed")) is None:
        return (CancelledError,)
    return CancelledError, distributed.comm.CommClosedError


def _same[T](value: T) -> T:
    return value


def _added(*parts: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], values[0]) for values in zip(*parts, strict=True))


def _summary(
    block: NDArray, objects: slice, shape: tuple[int, int, int], chosen: NDArray
) -> tuple[NDArray, NDArray]:
    """Rows (S, R, M) of the chosen objects of a chunk, else 0, and its projection (S, M)."""
    s, _, m = shape
    expected = (s, objects.stop - objects.start, m)
    if block.shape != expected or block.dtype.kind not in "fiub":
        rule = f"of chunks of real numbers of shape {expected}"
        got = f"{block.dtype}, shape {block.shape} in rows {objects.start} to {objects.stop - 1}"
        raise argument_error("kernels", "the model", rule, got)
    rows, projection = np.zeros((s, len(chosen), m)), np.zeros((s, m))
    here = (chosen >= objects.start) & (chosen < objects.stop)
    rows[:, here] = block[:, chosen[here] - objects.start]
    for part in rows_of(block):
        values = np.asarray(block[:, part], dtype=float)
        start = objects.start + part.start
        numbers = start + np.arange(values.shape[1])
        projection += np.tensordot(np.cos(numbers + 1.0), values, axes=(0, 1))
        if not np.isfinite(projection).all() and not np.isfinite(values).all():
            bad = np.argwhere(~np.isfinite(values))
            kernel, row, column = bad[np.argsort(bad[:, 1], kind="stable")[0]].tolist()
            raise _Wrong(kernel, start + row, column)
    return rows, projection
