"""Objects in one or several feature spaces: an array, or a dict of arrays of the same objects."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ...validation import argument_error, check_finite, check_name, check_one_table, check_real
from .chunks import checked_features, is_chunked
from .labels import (
    as_frame,
    check_complete,
    check_distinct,
    check_ids,
    check_repeated,
    counts_rows,
    made_up,
    order_of,
    with_ids_of_columns,
)

# Of features whose spread is a smaller part of their size, single precision keeps three digits.
LEAST_RELATIVE_SPREAD = 1e-4


@dataclass(frozen=True, eq=False)
class Objects:
    """The same n objects in one or several feature spaces, a single one under None.

    `features` are arrays (n, D), in memory or in chunks, `columns` their names, None if there are
    none. If `numbered`, the labels number new objects without ids.
    """

    features: dict[str | None, Any]
    labels: NDArray
    columns: dict[str | None, pd.Index | None]
    numbered: bool = False

    def fingerprint(self, space: str | None) -> str:
        """Short fingerprint of a feature space; rows and columns with labels may be in any order.

        Features that were stored in single precision have the same, unless it rounds away their
        differences: features far from zero.
        """
        rows = np.argsort(self.labels.astype(str), kind="stable")
        names = self.columns[space]
        columns = slice(None) if names is None else np.argsort(names.astype(str), kind="stable")
        given = np.ascontiguousarray(self.features[space][rows][:, columns])
        with np.errstate(over="ignore", invalid="ignore"):
            spread = np.ptp(given, axis=0)
            far = (spread > 0) & (spread < LEAST_RELATIVE_SPREAD * np.abs(given).max(axis=0))
            values = np.where(far, given, given.astype(np.float32))
            mean = values.mean(axis=0, dtype=float)
            return fingerprint((mean, values - mean))

    def with_gram(self, space: str | None, name: str) -> "Objects":
        """Return training objects with the columns of the Gram matrix `name` as its rows are."""
        gram = self.features[space]
        columns = self.columns[space]
        labels = pd.Index(self.labels)
        if gram.shape[1] != len(labels):
            return self
        if columns is not None:
            order = order_of(columns, labels, "X", name, "labelled alike in rows and columns")
            if order is not None:
                gram = gram[:, order]
            elif not counts_rows(columns):
                return self
        named = self.columns | {space: labels}
        return replace(self, features=self.features | {space: gram}, columns=named)

    def spaces_of(self, space: str | None) -> list[str | None]:
        """Feature spaces of a kernel: the space that it is bound to, or all."""
        if space is None:
            return list(self.features)
        if None in self.features:
            rule = f"a dict with the feature space {space!r} of a kernel"
            raise argument_error("X", "Kernels", rule, "one array")
        check_name(space, [str(known) for known in self.features], "space", "on")
        return [space]


def feature_spaces(
    X: Any,
    train: Objects | None = None,
    *,
    order: pd.Index | None = None,
    grams: AbstractSet[str | None] = frozenset(),
) -> Objects:
    """Check objects: an array, a table, or a dict of them; `train` if they are new objects.

    Rows get the order of the ids `order`, by default those of the first space that has ids; columns
    of new objects get that of the training objects. `grams` are the spaces that hold Gram matrices;
    all, if None is among them.
    """
    if isinstance(X, Objects):
        return X
    tables: dict[str | None, Any] = {None: X}
    if isinstance(X, Mapping):
        check_distinct(list(map(str, X)), "X", "Kernels", "of spaces with distinct names")
        tables = {str(key): X[key] for key in X}
    if not tables:
        raise argument_error("X", "Kernels", "a dict with at least one feature space", "none")
    frames = {}
    ids = {}
    for space, table in tables.items():
        frames[space] = frame = as_frame(table)
        if not grams.isdisjoint({None, space}):
            frames[space] = frame = with_ids_of_columns(frame)
        # Tables of other libraries have no ids.
        own = isinstance(table, pd.DataFrame | xr.DataArray)
        if isinstance(frame, pd.DataFrame) and (own or not made_up(frame.index)):
            ids[space] = frame.index
    reference = next(iter(ids.values()), None) if order is None else order
    features = {}
    columns = {}
    for space, frame in frames.items():
        names = None if train is None else train.columns.get(space)
        features[space], columns[space] = _checked(frame, space, ids.get(space), reference, names)
    sizes = {space: len(array) for space, array in features.items()}
    n = next(iter(sizes.values()))
    if set(sizes.values()) != {n}:
        rule = "the same objects in every feature space"
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
    space: str | None,
    ids: pd.Index | None,
    reference: pd.Index | None,
    expected: pd.Index | None,
) -> tuple[Any, pd.Index | None]:
    """Numbers of a feature space in the order of `reference` and `expected`, and their names."""
    argument = "X" if space is None else f'X["{space}"]'
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
