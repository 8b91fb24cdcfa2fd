"""Objects and their feature spaces: one array, or a dict of arrays of the same objects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .checks import argument_error, check_finite, check_name


@dataclass(frozen=True)
class CrossGram:
    """Precomputed similarities of new objects, with their self-similarities; see `cross_gram`."""

    similarities: Any
    self_similarity: NDArray


def cross_gram(similarities: ArrayLike, *, self_similarity: ArrayLike) -> CrossGram:
    """Give a precomputed kernel what the "unit" normalisation of new objects needs.

    Parameters
    ----------
    similarities : array-like or DataFrame of shape (n, N)
        k(x_i, x_j) of new objects i and training objects j.
    self_similarity : array-like of shape (n,)
        k(x_i, x_i) of the new objects.
    """
    diagonal = np.asarray(self_similarity, dtype=float)
    shape = np.shape(similarities)
    if diagonal.shape != shape[:1]:
        raise argument_error(
            "self_similarity", "cross_gram", f"of shape {shape[:1]}", f"shape {diagonal.shape}"
        )
    check_finite(diagonal, "self_similarity", "cross_gram")
    return CrossGram(similarities, diagonal)


@dataclass(frozen=True)
class Objects:
    """The same n objects in one or several feature spaces.

    Parameters
    ----------
    features : dict
        Feature space -> ndarray of shape (n, D); the only key is None where there is one array.
    labels : ndarray of shape (n,)
    self_similarity : dict
        Feature space -> ndarray of shape (n,), for precomputed kernels where given.
    """

    features: dict[str | None, NDArray]
    labels: NDArray
    self_similarity: dict[str | None, NDArray]

    def spaces_of(self, space: str | None) -> list[str | None]:
        """Feature spaces that a kernel reads: the one it is bound to, or all."""
        if space is None:
            return list(self.features)
        if None in self.features:
            raise argument_error(
                "X",
                "Kernels",
                f"a dict with the feature space {space!r}, which a kernel is bound to",
                "one array",
            )
        check_name(space, [str(known) for known in self.features], "space", "on")
        return [space]

    def check_has(self, spaces: Iterable[str | None]) -> None:
        """Raise unless every one of `spaces` is there."""
        missing = [space for space in spaces if space not in self.features]
        if missing:
            raise argument_error(
                "X",
                "Kernels",
                "one array, as the training objects are"
                if None in missing
                else f"a dict with the feature space {missing[0]!r} of the training objects",
                "one array" if None in self.features else f"a dict with {list(self.features)}",
            )


def feature_spaces(X: Any, train: Objects | None = None) -> Objects:
    """Validate objects.

    Parameters
    ----------
    X : array-like, DataFrame, `CrossGram`, or dict of them
    train : Objects, optional
        The training objects, where `X` are new ones.

    Raises
    ------
    ValueError
        On an array that is not two-dimensional, numeric and finite, or on feature spaces that
        disagree in their objects.
    """
    tables = {None: X} if not isinstance(X, Mapping) else {str(key): X[key] for key in X}
    if not tables:
        raise argument_error("X", "Kernels", "a dict with at least one feature space", "none")
    read = {space: _read(table) for space, table in tables.items()}
    features = {space: _as_features(table.values, space) for space, table in read.items()}
    sizes = {space: len(array) for space, array in features.items()}
    if len(set(sizes.values())) > 1:
        raise argument_error(
            "X", "Kernels", "the same objects in every feature space", f"numbers of rows {sizes}"
        )
    return Objects(
        features,
        _common_labels({space: table.labels for space, table in read.items()}, sizes, train),
        {
            space: table.self_similarity
            for space, table in read.items()
            if table.self_similarity is not None
        },
    )


@dataclass(frozen=True)
class _Table:
    values: Any
    labels: NDArray | None = None
    self_similarity: NDArray | None = None


@singledispatch
def _read(table: Any) -> _Table:
    return _Table(table)


@_read.register
def _(table: pd.DataFrame) -> _Table:
    return _Table(table, table.index.to_numpy())


@_read.register
def _(table: CrossGram) -> _Table:
    inner = _read(table.similarities)
    return _Table(inner.values, inner.labels, table.self_similarity)


def _as_features(table: Any, space: str | None) -> NDArray:
    argument = "X" if space is None else f'X["{space}"]'
    try:
        array = np.asarray(table, dtype=float)
    except (TypeError, ValueError):
        raise argument_error(
            argument, "Kernels", "an array of numbers", f"{type(table).__name__} with other entries"
        ) from None
    if array.ndim != 2 or 0 in array.shape:
        raise argument_error(
            argument, "Kernels", "of shape (objects, features)", f"shape {array.shape}"
        )
    check_finite(array, argument, "Kernels")
    return array


def _common_labels(
    labels: dict[str | None, NDArray | None],
    sizes: dict[str | None, int],
    train: Objects | None,
) -> NDArray:
    given = {space: index for space, index in labels.items() if index is not None}
    n = next(iter(sizes.values()))
    if not given:
        return np.arange(n) if train is None else labels_after(train.labels, n)
    first, reference = next(iter(given.items()))
    for space, index in given.items():
        if not np.array_equal(index, reference):
            at = int(np.argmax(index != reference))
            here, there = reference.tolist()[at], index.tolist()[at]
            raise argument_error(
                "X",
                "Kernels",
                "the same objects in the same order in every feature space",
                f"{here!r} in {first!r} but {there!r} in {space!r}, row {at}",
            )
    if len(set(reference.tolist())) < n:
        raise argument_error("X", "Kernels", "of objects with distinct labels", "repeated labels")
    return reference


def labels_after(labels: NDArray, n: int) -> NDArray:
    """Labels of n unnamed new objects: they number on from the training objects.

    Training labels that are not whole numbers leave 0 to n - 1 free.  Either way no new object
    shares its label with a training object, so a cross stack never passes for a Gram matrix.
    """
    start = int(labels.max()) + 1 if np.issubdtype(labels.dtype, np.integer) else 0
    return np.arange(start, start + n)
