"""Passes over the features of many objects: of an array in memory, or of a Dask array."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error

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


def check_sizes(X: Any, argument: str, owner: str) -> None:
    """Raise unless all chunks of a Dask array are of known size."""
    if np.isnan(X.shape).any():
        got = "unknown sizes: call compute_chunk_sizes() of the Dask array"
        raise argument_error(argument, owner, "of chunks of known size", got)


def check_whole_rows(
    chunks: Mapping[Any, tuple[int, ...]], rows: str, argument: str, owner: str, call: str
) -> None:
    """Raise unless chunks, by dim, split only the dim `rows`; `call` makes such chunks."""
    split = [dim for dim, sizes in chunks.items() if len(sizes) > 1 and dim != rows]
    if split or 0 in chunks[rows]:
        rule = f"of chunks of whole rows: {call}"
        raise argument_error(argument, owner, rule, f"chunks {dict(chunks)}")


def blocks_of(X: Rows, width: int) -> Iterator[NDArray]:
    """Blocks of rows (N, D), with `width` numbers computed per row."""
    return (np.asarray(X[rows]) for rows in slices_of(len(X), max(width, X.shape[1])))


def slices_of(n: int, width: int) -> Iterator[slice]:
    """Positions of blocks of n rows, with `BLOCK` numbers at most if a row has `width`."""
    size = max(1, BLOCK // width)
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def fingerprint(constants: Sequence[NDArray]) -> str:
    """Short fingerprint of arrays up to rounding errors: last digits depend on the machine."""
    digest = sha256()
    for array in constants:
        largest = float(np.abs(array).max(initial=0.0))
        # Zeros may have a sign.
        parts = np.round(array / (largest or 1.0) * 2**20) + 0.0
        digest.update(f"{array.shape} {largest:.6g}".encode() + parts.tobytes())
    return digest.hexdigest()[:8]
