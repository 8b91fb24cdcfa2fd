"""Objects whose features are a Dask array: they, and their kernels, are computed by chunks."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error, check_real

#: Largest chunk of kernels, in numbers (64 MB).
CHUNK_NUMBERS = 8_000_000


def is_chunked(X: Any) -> bool:
    """Whether X is a Dask array; Dask need not be installed."""
    dask_array = sys.modules.get("dask.array")
    return dask_array is not None and isinstance(X, dask_array.Array)


def check_chunks(
    chunks: Mapping[Any, tuple[int, ...]], rows: str, argument: str, owner: str, call: str
) -> None:
    """Raise unless chunks, by dim, are of known size and split only `rows`; `call` makes such."""
    if np.isnan([size for sizes in chunks.values() for size in sizes]).any():
        got = "unknown sizes: call compute_chunk_sizes() of the Dask array"
        raise argument_error(argument, owner, "of chunks of known size", got)
    split = [dim for dim, sizes in chunks.items() if len(sizes) > 1 and dim != rows]
    if split or 0 in chunks.get(rows, ()):
        rule = f"of chunks of whole rows: {call}"
        raise argument_error(argument, owner, rule, f"chunks {dict(chunks)}")


def checked_features(X: Any, argument: str) -> Any:
    """Features as numbers of double precision, whose entries are checked when they are read."""
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "fiub":
        got = f"{X.dtype} of shape {X.shape}"
        raise argument_error(argument, "Kernels", "numbers of shape (objects, features)", got)
    chunks = dict(zip(("rows", "columns"), X.chunks, strict=True))
    check_chunks(chunks, "rows", argument, "Kernels", ".rechunk((10_000, -1))")
    return X.map_blocks(_finite, argument=argument, dtype=float, meta=np.empty((0, 0)))


def _finite(block: Any, argument: str, block_info: Any) -> NDArray:
    values = check_real(block, argument, "Kernels", booleans=True)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        first, column = bad[0].tolist()
        row = block_info[0]["array-location"][0][0] + first
        got = f"{len(bad)} NaN or infinite entries in {len(values)} rows that were read, the first "
        got += f"at position ({row}, {column})"
        raise argument_error(argument, "Kernels", "finite", got)
    return values


def by_object(function: Callable[[NDArray], NDArray], X: Any) -> Any:
    """Values (n,) of a function of the objects' features, in chunks if these are."""
    if not is_chunked(X):
        return function(X)
    return X.map_blocks(function, drop_axis=1, dtype=float, meta=np.empty(0))


def kernels_by_chunk(
    functions: Sequence[tuple[Any, Callable[[NDArray], NDArray]]],
    features: Mapping[Any, Any],
    width: int,
) -> Any:
    """Kernels (S, n, M) of objects whose features are in chunks, or in smaller ones of 64 MB.

    `functions` are kernels (n, M) of the features of one space each, `features` those by space.
    """
    import dask
    import dask.array as da

    spaces = list(features)
    rows = next(X.chunks[0] for X in features.values() if is_chunked(X))
    most = max(1, CHUNK_NUMBERS // (len(functions) * width))
    size = rows if max(rows) <= most else most
    tables = [da.asarray(X).rechunk((size, -1)) for X in features.values()]
    # One task holds the kernels, which go to each worker once.
    shared = dask.delayed(list, pure=False)(dask.delayed(functions, traverse=False))

    def of_chunk(*tables: NDArray, functions: list[Any]) -> NDArray:
        by_space = dict(zip(spaces, tables, strict=True))
        return np.stack([function(by_space[space]) for space, function in functions])

    return da.map_blocks(
        of_chunk, *tables, functions=shared,
        new_axis=0, chunks=((len(functions),), tables[0].chunks[0], (width,)), dtype=float,
        meta=np.empty((0, 0, 0)),
    )  # fmt: skip
