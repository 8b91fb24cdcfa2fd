"""Passes over the features of many objects: of an array in memory, or of a Dask array."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    *("BLOCK", "COMPARED_OBJECTS", "Rows"),
    *("blocks_of", "evenly_spaced", "is_dask", "slices_of"),
]

#: Features (N, D): an array, or a Dask array as `feature_spaces` returns it.
type Rows = Any

# Largest block of rows and of what is computed from it, in numbers (16 MB).
BLOCK = 2_000_000
#: Functions of results are compared on at most so many training objects.
COMPARED_OBJECTS = 40


def evenly_spaced(n: int, most: int) -> NDArray[np.int64]:
    """Positions of `most` of n objects, or of all if there are fewer, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, most).round().astype(int))


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array; Dask need not be installed."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(X, dask_array.Array)


def blocks_of(X: Rows, width: int) -> Iterator[tuple[slice, NDArray]]:
    """Positions and values of blocks of rows.

    Parameters
    ----------
    X : Rows
        Of shape (N, D).
    width : int
        Numbers that are computed for each row; a block of them has `BLOCK` numbers at most.
    """
    for rows in slices_of(len(X), max(width, X.shape[1])):
        yield rows, np.asarray(X[rows])


def slices_of(n: int, width: int) -> Iterator[slice]:
    """Positions of blocks of n rows, with `BLOCK` numbers at most if a row has `width`."""
    size = max(1, BLOCK // width)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
