"""Objects: one or several blocks of their features, in memory or in the chunks of a Dask array.

The user gives an array, a table, or a dict of them, one for each block.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import date
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_finite, check_name, check_one_table, check_real
from .labels import (
    as_frame,
    check_complete,
    check_distinct,
    check_ids,
    check_repeated,
    counts_rows,
    listed,
    made_up,
    order_of,
    with_ids_of_columns,
)

#: Of features whose spread is a smaller part of their size, single precision keeps three digits.
LEAST_RELATIVE_SPREAD = 1e-4
#: Whole numbers in double precision are exact below this one.
MOST_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Objects:
    """The n objects of one or several blocks of features, a single block under None.

    `features` are arrays (n, D) by block, in memory or in chunks, `columns` the features' names,
    None if they have none. If `numbered`, the labels number new objects without ids.
    """

    features: dict[str | None, Any]
    labels: NDArray
    columns: dict[str | None, pd.Index | None]
    numbered: bool = False

    def fingerprint(self, block: str | None) -> str:
        """Short fingerprint of a block; rows and columns with labels may be in any order.

        Features that were stored in single precision have the same, unless it rounds away their
        differences: features far from zero.
        """
        rows = np.argsort(self.labels.astype(str), kind="stable")
        names = self.columns[block]
        columns = slice(None) if names is None else np.argsort(names.astype(str), kind="stable")
        given = np.ascontiguousarray(self.features[block][rows][:, columns])
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.ptp(given, axis=0)
            far = (spread > 0) & (spread < LEAST_RELATIVE_SPREAD * np.abs(given).max(axis=0))
            values = np.where(far, given, given.astype(np.float32))
            mean = values.mean(axis=0, dtype=float)
            return fingerprint((mean, values - mean))

    def with_gram(self, block: str | None, name: str) -> "Objects":
        """Return training objects with the columns of the Gram matrix `name` as its rows are."""
        gram = self.features[block]
        columns = self.columns[block]
        labels = pd.Index(self.labels)
        if gram.shape[1] != len(labels):
            return self
        if columns is not None:
            order = order_of(columns, labels, "X", name, "labelled alike in rows and columns")
            if order is not None:
                gram = gram[:, order]
            elif not counts_rows(columns):
                return self
        named = self.columns | {block: labels}
        return replace(self, features=self.features | {block: gram}, columns=named)

    def blocks_of(self, block: str | None) -> list[str | None]:
        """Blocks of a kernel: the one that it is bound to, or all."""
        if block is None:
            return list(self.features)
        if None in self.features:
            rule = f"a dict with the block {block!r} of a kernel"
            raise argument_error("X", "Kernels", rule, "one array")
        check_name(block, [str(known) for known in self.features], "block", "on")
        return [block]


def read_objects(
    X: Any,
    train: Objects | None = None,
    *,
    order: pd.Index | None = None,
    grams: AbstractSet[str | None] = frozenset(),
    labelled: AbstractSet[str | None] = frozenset(),
) -> Objects:
    """Check objects: an array, a table, or a dict of them; `train` if they are new objects.

    Rows get the order of the ids `order`, by default those of the first block that has ids; columns
    of new objects get that of the training objects. `grams` are the blocks that hold Gram matrices,
    `labelled` those that hold labels, which become numbers; all, if None is among them.
    """
    if isinstance(X, Objects):
        return X
    tables: dict[str | None, Any] = {None: X}
    if isinstance(X, Mapping):
        check_distinct(list(map(str, X)), "X", "Kernels", "of blocks with distinct names")
        tables = {str(key): X[key] for key in X}
    if not tables:
        raise argument_error("X", "Kernels", "a dict with at least one block", "none")
    frames = {}
    ids = {}
    for block, given in tables.items():
        holds_labels = not labelled.isdisjoint({None, block})
        table = numbers_of_labels(given, _argument(block)) if holds_labels else given
        frames[block] = frame = as_frame(table)
        if not grams.isdisjoint({None, block}):
            frames[block] = frame = with_ids_of_columns(frame)
        # Tables of other libraries have no ids.
        own = isinstance(given, pd.DataFrame | pd.Series | xr.DataArray)
        if isinstance(frame, pd.DataFrame) and (own or not made_up(frame.index)):
            ids[block] = frame.index
    reference = next(iter(ids.values()), None) if order is None else order
    features = {}
    columns = {}
    for block, frame in frames.items():
        names = None if train is None else train.columns.get(block)
        features[block], columns[block] = _checked(frame, block, ids.get(block), reference, names)
    sizes = {block: len(array) for block, array in features.items()}
    n = next(iter(sizes.values()))
    if set(sizes.values()) != {n}:
        rule = "the same objects in every block"
        raise argument_error("X", "Kernels", rule, f"numbers of rows {sizes}")
    if reference is not None and len(reference) != n:
        got = f"{n} rows, and ids of {len(reference)} objects in another table"
        raise argument_error("X", "Kernels", "the same objects in every table", got)
    if train is not None and (reference is None or counts_as(reference.to_numpy(), train.labels)):
        return Objects(features, labels_after(train.labels, n), columns, numbered=True)
    labels = np.arange(n) if reference is None else reference.to_numpy()
    return Objects(features, labels, columns)


def _checked(
    table: Any,
    block: str | None,
    ids: pd.Index | None,
    reference: pd.Index | None,
    expected: pd.Index | None,
) -> tuple[Any, pd.Index | None]:
    """Numbers of a block in the order of `reference` and `expected`, and their names."""
    argument = _argument(block)
    if is_chunked(table):
        return checked_features(table, argument), None
    values = _as_features(table, argument)
    if not isinstance(table, pd.DataFrame):
        return values, None
    columns = table.columns
    if ids is not None and reference is not None:
        rule = "of the same objects as the first table with ids (if some lack one: KernelCompleter)"
        rows = order_of(ids, reference, argument, "Kernels", rule, by_position=False)
        if rows is not None:
            values = values[rows]
        check_ids(ids, argument, "Kernels")
        check_repeated(ids, table, argument, "Kernels")
    check_complete(columns, argument, "Kernels")
    if expected is not None:
        requirement = "of the features that the training objects have"
        hint = "X_new[X_train.columns] has the columns in order"
        order = order_of(columns, expected, argument, "Kernels", requirement, hint=hint)
        if order is not None:
            values = values[:, order]
            columns = columns[order]
    return values, columns


def _argument(block: str | None) -> str:
    return "X" if block is None else f'X["{block}"]'


def numbers_of_labels(table: Any, argument: str) -> Any:
    """Return labels as numbers, equal where their texts are: an array, a Series or a table (n, D).

    They are the 53 first bits of a hash.
    """
    if is_chunked(table):
        return table
    if isinstance(table, xr.DataArray) and table.ndim == 1:
        table = table.to_series() if table.dims[0] in table.indexes else table.to_numpy()
    labels = np.array(table, dtype=object) if isinstance(table, list | tuple) else as_frame(table)
    if isinstance(labels, pd.Series):
        labels = labels.to_frame()
    elif isinstance(labels, np.ndarray) and labels.ndim == 1:
        labels = labels[:, None]
    if np.ndim(labels) != 2 or 0 in np.shape(labels):
        return labels
    frame = pd.DataFrame(labels)
    absent = frame.isna().any(axis=1).to_numpy()
    if absent.any():
        got = f"none for {listed(frame.index[absent])}"
        raise argument_error(argument, "Kernels", "a label for every object", got)
    numbers = np.empty(frame.shape)
    for position in range(frame.shape[1]):
        codes, distinct = pd.factorize(frame.iloc[:, position])
        texts = np.array([_text_of_label(label, argument) for label in distinct], dtype=object)
        hashed = pd.util.hash_array(texts)
        numbers[:, position] = (hashed >> np.uint64(11)).astype(float)[codes]
    if not isinstance(labels, pd.DataFrame):
        return numbers
    return pd.DataFrame(numbers, labels.index, labels.columns)


def _text_of_label(label: Any, argument: str) -> str:
    """Text of a label, whatever the type of the others: that of 1.0 is that of 1."""
    if isinstance(label, float | np.floating) and (number := float(label)).is_integer():
        if abs(number) >= MOST_EXACT:
            rule = "of labels that are text, or whole numbers that are exact"
            raise argument_error(argument, "Kernels", rule, f"{number:.20g}")
        return str(int(number))
    if isinstance(label, bool | np.bool_):
        return str(int(label))
    return label.isoformat() if isinstance(label, date) else str(label)


def _as_features(table: Any, argument: str) -> NDArray:
    check_one_table(table, argument, "Kernels")
    try:
        array = np.asarray(table)
    except ValueError:
        raise argument_error(argument, "Kernels", "an array of numbers", "a ragged one") from None
    if array.ndim != 2 or 0 in array.shape:
        rule = "of shape (objects, features)"
        raise argument_error(argument, "Kernels", rule, f"shape {array.shape}")
    labels = table.axes if isinstance(table, pd.DataFrame) else ()
    if labels and array.dtype.kind == "O":
        rule = "real numbers (of categories by pd.get_dummies; ids are the index of a frame)"
        for name, column in table.items():
            check_real(column, f"{argument}[{name!r}]", "Kernels", booleans=True, rule=rule)
    array = check_real(array, argument, "Kernels", booleans=True)
    check_finite(array, argument, "Kernels", labels, similarities=len(array) == array.shape[1])
    return array


def counts_as(labels: NDArray, training: NDArray) -> bool:
    """Whether new objects have the same default labels as the training objects."""
    return len(labels) == len(training) and counts_rows(labels) and counts_rows(training)


def labels_after(labels: NDArray, n: int) -> NDArray:
    """Numbers for n new objects without labels, none of which is the label of a training object."""
    start = int(labels.max()) + 1 if np.issubdtype(labels.dtype, np.integer) else 0
    return np.arange(start, start + n)


def order_of_rows(tables: Sequence[Any]) -> NDArray[np.intp]:
    """Order rows of tables (N, D) of the same objects by what is in them, not by where they are.

    Rows are in the order of their first feature, equal ones of the next, and so on: up to copies
    the same order of the same objects, also when their features were standardised.
    O(N log N) where one feature tells the rows apart; no more columns than needed are read.
    """
    place = np.zeros(len(tables[0]), dtype=np.intp)
    for table in tables:
        start = 0
        width = 1
        while start < table.shape[1] and place.max() < len(place) - 1:
            columns = np.asarray(table[:, start : start + width]).T
            start = start + width
            width = 2 * width
            order = np.lexsort([*columns[::-1], place])
            sorted_keys = np.vstack([place, columns])[:, order]
            differ = (sorted_keys[:, 1:] != sorted_keys[:, :-1]).any(axis=0)
            place[order] = np.r_[0, np.cumsum(differ)]
    return np.argsort(place, kind="stable")


def fingerprint(constants: Sequence[NDArray]) -> str:
    """Short fingerprint of arrays up to rounding errors: last digits depend on the machine."""
    digest = sha256()
    for array in constants:
        largest = float(np.abs(array).max(initial=0.0))
        # Zeros may have a sign.
        parts = np.round(array / (largest or 1.0) * 2**20) + 0.0
        digest.update(f"{array.shape} {largest:.6g}".encode() + parts.tobytes())
    return digest.hexdigest()[:8]


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


def _finite(chunk: Any, argument: str, block_info: Any) -> NDArray:
    values = check_real(chunk, argument, "Kernels", booleans=True)
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
