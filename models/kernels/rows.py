"""Features of many objects, read in blocks of rows from an array in memory or on disk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error

__all__ = ["COMPARED_OBJECTS", "Rows", "blocks_of", "column_scales", "evenly_spaced", "slices_of"]

# Largest block of rows and of what is computed from it, in numbers (16 MB).
BLOCK = 2_000_000
#: Functions of results are compared on at most so many training objects.
COMPARED_OBJECTS = 40


def evenly_spaced(n: int, most: int) -> NDArray[np.int64]:
    """Positions of `most` of n objects, or of all if there are fewer, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, most).round().astype(int))


@dataclass(frozen=True, eq=False)
class Rows:
    """Features (N, D) that stay where they are; indexing reads rows as float64 and checks them.

    Parameters
    ----------
    source : array of shape (N, D)
        A NumPy array, a memory map, or any array with a shape and a dtype whose slices convert to
        NumPy arrays (zarr, h5py, dask).
    argument : str
        Name of the argument, for messages.
    first : int
        Position of the first row among all, for messages.

    Raises
    ------
    ValueError
        On reading, for NaN and infinite entries, whose position is named, for a source that
        returns fewer rows than its shape promises, and for a file or a store that has shrunk.
    """

    source: Any
    argument: str = "X"
    first: int = 0
    _whole: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_whole", _held(self.source))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of objects and of features."""
        return self.source.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | NDArray[np.intp]) -> NDArray[np.float64]:
        positions = np.arange(len(self))[index]
        if not isinstance(index, slice) and not isinstance(self.source, np.ndarray):
            return self._picked(positions)
        # A read beyond the end of a mapped file ends the process.
        self._check_whole()
        given = np.asarray(self.source[index])
        # Missing chunks read as zeros.
        self._check_whole()
        if given.shape != (len(positions), self.shape[1]):
            raise argument_error(
                self.argument,
                "Kernels",
                f"an array of shape {self.shape} throughout",
                f"shape {given.shape} for {len(positions)} of its rows",
            )
        values = np.asarray(given, dtype=float)
        bad = ~np.isfinite(values)
        if bad.any():
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise argument_error(
                self.argument,
                "Kernels",
                "finite",
                f"{int(bad.sum())} NaN or infinite entries in {len(positions)} rows that were "
                f"read, the first at position ({self.first + int(positions[row])}, {column})",
            )
        return values

    def _check_whole(self) -> None:
        """Raise ValueError if the file or the store holds less than when it was opened."""
        if self._whole is None or (now := _held(self.source)) is None or now >= self._whole:
            return
        unit = "bytes" if isinstance(self.source, np.memmap) else "chunks"
        raise argument_error(
            self.argument,
            "Kernels",
            "a file or a store that keeps its content while it is read",
            f"one that has shrunk from {self._whole:,} to {now:,} {unit}",
        )

    def _picked(self, positions: NDArray[np.intp]) -> NDArray[np.float64]:
        """Rows at positions in any order, by slices: arrays on disk differ in what else they take.

        All blocks with one of the rows are read.
        """
        out = np.empty((len(positions), self.shape[1]))
        for rows in slices_of(len(self), self.shape[1]):
            here = (positions >= rows.start) & (positions < rows.stop)
            if here.any():
                out[here] = self[rows][positions[here] - rows.start]
        return out

    def var(self) -> float:
        """Variance of all entries; one pass."""
        mean, squares, _ = _moments(self)
        return float(squares.mean() / len(self) + mean.var())


def _held(source: Any) -> int | None:
    """Bytes of a mapped file or chunks in a zarr store now; None for other arrays."""
    if isinstance(source, np.memmap):
        # An array computed from a memory map has the type, but no file.
        mapped = getattr(source, "_mmap", None)
        return None if mapped is None else int(mapped.size())
    chunks = getattr(source, "nchunks_initialized", None)
    return None if chunks is None else int(chunks)


def blocks_of(X: Any, width: int) -> Iterator[tuple[slice, NDArray]]:
    """Positions and values of blocks of rows.

    Parameters
    ----------
    X : Rows or ndarray (N, D)
    width : int
        Numbers that are computed for each row; a block of them has `BLOCK` numbers at most.
    """
    for rows in slices_of(len(X), max(width, X.shape[1])):
        yield rows, X[rows]


def slices_of(n: int, width: int) -> Iterator[slice]:
    """Positions of blocks of n rows, with `BLOCK` numbers at most if a row has `width`."""
    size = max(1, BLOCK // width)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


@singledispatch
def column_scales(X: Any) -> tuple[NDArray, NDArray]:
    """Compute the standard deviation and largest absolute value of each feature."""
    return X.std(axis=0), np.abs(X).max(axis=0)


@column_scales.register
def _(X: Rows) -> tuple[NDArray, NDArray]:
    _, squares, largest = _moments(X)
    return np.sqrt(squares / len(X)), largest


def _moments(X: Rows) -> tuple[NDArray, NDArray, NDArray]:
    """Mean, sum of squared deviations and largest absolute value of each feature.

    Blocks are merged as in Chan, Golub & LeVeque (1983), which keeps digits for large means.
    """
    n, mean, squares, largest = 0, np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for _, block in blocks_of(X, X.shape[1]):
        new, centre = len(block), block.mean(axis=0)
        squares += block.var(axis=0) * new + (centre - mean) ** 2 * (n * new / (n + new))
        mean += (centre - mean) * (new / (n + new))
        largest = np.maximum(largest, np.abs(block).max(axis=0))
        n += new
    return mean, squares, largest
