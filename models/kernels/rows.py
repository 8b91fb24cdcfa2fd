"""Rows of arrays in memory and of Dask arrays, and their fingerprints."""

import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error

#: Features (N, D): an array, or a Dask array as `feature_spaces` returns it.
type Rows = Any

#: Functions of results are compared on at most so many training objects.
COMPARED_OBJECTS = 40


def evenly_spaced(n: int, most: int) -> NDArray[np.int64]:
    """Positions of `most` of n objects, or of all if there are fewer, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, most).round().astype(int))


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array; Dask need not be installed."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(X, dask_array.Array)


def check_chunks(
    chunks: Mapping[Any, tuple[int, ...]], rows: str, argument: str, owner: str, call: str
) -> None:
    """Raise unless chunks, by dim, are of known size and split only the dim `rows`.

    `call` makes such chunks.
    """
    if np.isnan([size for sizes in chunks.values() for size in sizes]).any():
        got = "unknown sizes: call compute_chunk_sizes() of the Dask array"
        raise argument_error(argument, owner, "of chunks of known size", got)
    split = [dim for dim, sizes in chunks.items() if len(sizes) > 1 and dim != rows]
    if split or 0 in chunks.get(rows, ()):
        rule = f"of chunks of whole rows: {call}"
        raise argument_error(argument, owner, rule, f"chunks {dict(chunks)}")


def fingerprint(constants: Sequence[NDArray]) -> str:
    """Short fingerprint of arrays up to rounding errors: last digits depend on the machine."""
    digest = sha256()
    for array in constants:
        largest = float(np.abs(array).max(initial=0.0))
        # Zeros may have a sign.
        parts = np.round(array / (largest or 1.0) * 2**20) + 0.0
        digest.update(f"{array.shape} {largest:.6g}".encode() + parts.tobytes())
    return digest.hexdigest()[:8]
