"""Input of models of one kernel matrix: theta of all objects, K11 of the training objects."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.linalg import LinAlgError, cholesky, eigvalsh

from ...validation import (
    argument_error,
    check_finite,
    check_real,
    check_square_symmetric,
    check_unmasked,
    number_or_nan,
)
from ..kernels.labels import (
    as_frame,
    check_distinct,
    in_order,
    listed,
    made_up,
    square_order,
    with_ids_of_columns,
)
from ..kernels.stack import as_stack, check_gram

__all__ = [
    "PartitionedKernels",
    "PartitionedStack",
    "check_degrees_of_freedom",
    "check_positive_definite",
    "check_weights",
]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PartitionedStack:
    """Checked kernels of all objects and K11 of the training objects, which come first.

    `kernels` (kernel, n, n) are symmetric positive semidefinite, K11 (n1, n1) is positive definite
    with 1 <= n1 < n, `labels` (n,) are names of the objects, and `order` (n,) their positions in
    theta as given.
    """

    kernels: Array
    names: npt.NDArray[Any]
    K11: Array
    labels: npt.NDArray[Any]
    order: npt.NDArray[np.intp]

    @classmethod
    def of(cls, theta: Any, K11: Any, owner: str) -> "PartitionedStack":
        """Check and order the kernels.

        Labels of K11 identify the training objects; without labels they are the first n1 objects of
        theta, a kernel or a stack of kernels.
        """
        stack = as_stack(as_frame(theta), owner=owner, argument="theta")
        check_gram(stack, owner, "theta")
        kernels, labels = stack.values, stack["obs"].values
        observed, names = _observed(K11, owner)
        n, n1 = kernels.shape[-1], len(observed)
        if n1 > n:
            raise argument_error(
                "theta",
                owner,
                f"a kernel of all objects, the {n1} of K11 first",
                f"shape {(n, n)}",
            )
        if n1 == n:
            raise argument_error(
                "K11",
                owner,
                f"of fewer objects than theta ({n}), so that there is something to complete",
                f"shape {observed.shape}: n2 = 0",
            )
        order = np.arange(n)
        if names is not None:
            check_distinct(labels, "theta", owner)
            order = _training_first(labels, names, owner)
            kernels, labels = kernels[:, order[:, None], order], labels[order]
        check_positive_definite(observed, "K11", owner)
        K11 = np.ascontiguousarray(observed)
        return cls(kernels, stack["kernel"].values, K11, labels, order)


@dataclass(frozen=True)
class PartitionedKernels:
    """As `PartitionedStack`, for one positive definite kernel theta (n, n) of all objects."""

    theta: Array
    K11: Array
    labels: npt.NDArray[Any]

    @classmethod
    def of(cls, theta: Any, K11: Any, weights: Any, owner: str) -> "PartitionedKernels":
        """Check and order the kernels, and sum those of theta; None for the plain average."""
        stack = PartitionedStack.of(theta, K11, owner)
        given = check_weights(weights, stack.names, "weights", owner)
        full = np.tensordot(given, stack.kernels, axes=1)
        check_positive_definite(full, "theta", owner)
        return cls(full, stack.K11, stack.labels)


def check_weights(weights: Any, names: npt.NDArray[Any], argument: str, owner: str) -> Array:
    """Return kernel weights (kernel,), equal ones for None, or raise.

    Weights must be finite, non-negative and not all zero. A DataArray with a coordinate "kernel",
    a Series or a mapping is aligned by kernel names.
    """
    n_kernels = len(names)
    if weights is None:
        return np.full(n_kernels, 1 / n_kernels)
    requirement = f"{n_kernels} finite non-negative numbers, not all zero, one per kernel of theta"
    requirement += f" ({', '.join(map(str, names))})"
    weights = in_order(weights, names.tolist(), argument, owner, requirement)
    check_unmasked(weights, argument, owner)
    try:
        given = check_real(weights, argument, owner)
    except ValueError:
        raise argument_error(argument, owner, requirement, repr(weights)) from None
    fits = given.shape == (n_kernels,) and np.isfinite(given).all()
    if not (fits and (given >= 0).all() and given.any()):
        raise argument_error(argument, owner, requirement, repr(weights))
    return given


def check_degrees_of_freedom(value: float, argument: str, owner: str, *, above: float) -> float:
    """Return `value` as a float, or raise unless it is a finite number above `above`."""
    number = number_or_nan(value)
    if not (np.isfinite(number) and number > above):
        raise argument_error(
            argument, owner, f"a finite number above n - 1 = {above:g}", repr(value)
        )
    return number


def check_positive_definite(matrix: Array, argument: str, owner: str) -> None:
    """Raise and suggest a jitter unless a symmetric matrix is positive definite beyond rounding.

    O(n^3 / 3); eigenvalues and equal rows are computed only for the message.
    """
    n = len(matrix)
    top = float(np.max(np.diagonal(matrix)))
    rounding = n * np.finfo(float).eps * top
    shifted = matrix - rounding * np.eye(n)
    try:
        cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
    except LinAlgError:
        smallest = float(eigvalsh(matrix, subset_by_index=[0, 0], check_finite=False)[0])
        got = f"a smallest eigenvalue of {smallest:.3g}"
        _, first, counts = np.unique(matrix, axis=0, return_index=True, return_counts=True)
        if (counts > 1).any():
            row = int(first[counts > 1].min())
            twin = int(np.flatnonzero((matrix[row + 1 :] == matrix[row]).all(axis=1))[0]) + row + 1
            got += f" (rows {row} and {twin} are equal: duplicated objects)"
        jitter = 10.0 ** np.ceil(np.log10(max(1e-8 * top, -2 * smallest, np.finfo(float).tiny)))
        raise argument_error(
            argument,
            owner,
            "positive definite",
            f"{got}; {argument} + {jitter:.0e} * np.eye({n}) is",
        ) from None


def _observed(K11: Any, owner: str) -> tuple[Array, npt.NDArray[Any] | None]:
    """K11 as an array, and its labels or None."""
    frame = with_ids_of_columns(as_frame(K11))
    # A default pandas index identifies no objects.
    labelled = isinstance(frame, pd.DataFrame) and not made_up(frame.index)
    check_unmasked(K11, "K11", owner)
    names = None
    if labelled:
        names = frame.index.to_numpy()
        check_distinct(names, "K11", owner)
        columns = square_order(frame.index, frame.columns, "K11", owner)
        frame = frame if columns is None else frame.iloc[:, columns]
    values = np.asarray(frame)
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise argument_error(
            "K11", owner, "a square matrix of numbers", f"{values.dtype} of shape {values.shape}"
        )
    values = values.astype(float)
    check_finite(values, "K11", owner, similarities=True)
    check_square_symmetric(values, "K11", owner)
    if names is not None and not frame.index.equals(frame.columns):
        raise argument_error("K11", owner, "labelled alike in rows and columns", "other labels")
    return (values + values.T) / 2, names


def _training_first(
    labels: npt.NDArray[Any], names: npt.NDArray[Any], owner: str
) -> npt.NDArray[np.intp]:
    """Positions in theta of the named training objects, then of the others."""
    index = pd.Index(labels)
    positions = index.get_indexer(pd.Index(names))
    if (positions < 0).any():
        unknown = names[positions < 0].tolist()
        raise argument_error(
            "K11", owner, "labelled by objects of theta", f"the unknown {listed(unknown)}"
        )
    others = np.setdiff1d(np.arange(len(labels)), positions)
    return np.concatenate([positions, others])
