"""Input of the models that complete a kernel matrix: theta of all objects, K11 of the first."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from scipy.linalg import LinAlgError, cholesky, eigvalsh

from .checks import argument_error, check_finite, check_square_symmetric
from .kernel_stack import as_stack

__all__ = ["PartitionedKernels", "check_degrees_of_freedom", "check_positive_definite"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PartitionedKernels:
    """Checked kernels, training objects first.

    Attributes
    ----------
    theta : array (n, n)
        Kernel of all objects, symmetric positive definite.
    K11 : array (n1, n1)
        Kernel of the training objects, symmetric positive definite, 1 <= n1 < n.
    labels : array (n,)
        Names of the objects.
    """

    theta: Array
    K11: Array
    labels: npt.NDArray[Any]

    @classmethod
    def of(cls, theta: Any, K11: Any, weights: Any, owner: str) -> "PartitionedKernels":
        """Check and order the kernels.

        Parameters
        ----------
        theta : array, DataFrame or DataArray (n, n); or a stack of kernels as `as_stack` takes it
        K11 : array, DataFrame or DataArray (n1, n1)
            With labels: those objects of theta are the training objects. Without: the first n1.
        weights : array_like (kernel,) or None
            Of a stack's kernels; None for the plain average.
        owner : str
            For messages.

        Raises
        ------
        ValueError
            For matrices that are not finite, square, symmetric and positive definite, for sizes
            or labels that disagree, and when no object is missing.
        """
        stack = as_stack(_frame(theta), owner=owner, argument="theta")
        full = _weighted_sum(stack, weights, owner)
        check_square_symmetric(full, "theta", owner)
        observed, names = _observed(K11, owner)
        n, n1 = len(full), len(observed)
        if n1 > n:
            raise argument_error(
                "theta",
                owner,
                f"a kernel of all objects, the {n1} of K11 first",
                f"shape {full.shape}",
            )
        if n1 == n:
            raise argument_error(
                "K11",
                owner,
                f"of fewer objects than theta ({n}), so that there is something to complete",
                f"shape {observed.shape}: n2 = 0",
            )
        labels = stack["obs"].values
        if names is not None:
            order = _training_first(labels, names, owner)
            full, labels = full[np.ix_(order, order)], labels[order]
        check_positive_definite(full, "theta", owner)
        check_positive_definite(observed, "K11", owner)
        return cls(np.ascontiguousarray(full), np.ascontiguousarray(observed), labels)


def check_degrees_of_freedom(value: float, argument: str, owner: str, *, above: float) -> float:
    """Return `value` as a float, or raise unless it is a finite number above `above`."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not (np.isfinite(number) and number > above):
        raise argument_error(
            argument, owner, f"a finite number above n - 1 = {above:g}", repr(value)
        )
    return number


def check_positive_definite(matrix: Array, argument: str, owner: str) -> None:
    """Raise unless a symmetric matrix is positive definite beyond rounding; suggest a jitter.

    O(n^3 / 3); eigenvalues and equal rows are looked for only for the message.
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


def _frame(kernels: Any) -> Any:
    """Two-dimensional DataArrays as DataFrames, by which a stack knows their labels."""
    two_dimensional = isinstance(kernels, xr.DataArray) and kernels.ndim == 2
    return kernels.to_pandas() if two_dimensional else kernels


def _weighted_sum(stack: xr.DataArray, weights: Any, owner: str) -> Array:
    """Sum of the stack's kernels (n, n) with non-negative weights."""
    n_kernels = stack.sizes["kernel"]
    if weights is None:
        return stack.values.mean(axis=0)
    given = np.asarray(weights, dtype=float)
    if given.shape != (n_kernels,) or not (np.isfinite(given).all() and (given >= 0).all()):
        raise argument_error(
            "weights",
            owner,
            f"{n_kernels} finite non-negative numbers, one a kernel of theta",
            repr(weights),
        )
    return np.tensordot(given, stack.values, axes=1)


def _observed(K11: Any, owner: str) -> tuple[Array, npt.NDArray[Any] | None]:
    """K11 as an array, and its labels when it has any."""
    frame = _frame(K11)
    names = frame.index.to_numpy() if isinstance(frame, pd.DataFrame) else None
    values = np.asarray(frame)
    if values.ndim != 2 or 0 in values.shape or values.dtype.kind not in "fiub":
        raise argument_error(
            "K11", owner, "a square matrix of numbers", f"{values.dtype} of shape {values.shape}"
        )
    values = values.astype(float)
    check_finite(values, "K11", owner)
    check_square_symmetric(values, "K11", owner)
    if names is not None and not frame.index.equals(frame.columns):
        raise argument_error("K11", owner, "labelled alike in rows and columns", "other labels")
    return (values + values.T) / 2, names


def _training_first(
    labels: npt.NDArray[Any], names: npt.NDArray[Any], owner: str
) -> npt.NDArray[np.intp]:
    """Positions in theta of the named training objects, then of the others."""
    index = pd.Index(labels)
    positions = index.get_indexer(pd.Index(names)) if index.is_unique else np.array([-1])
    if len(set(positions.tolist())) < len(names) or (positions < 0).any():
        unknown = [name for name in names.tolist() if name not in index]
        raise argument_error(
            "K11",
            owner,
            "labelled by distinct objects of theta",
            f"the unknown {unknown[0]!r}" if unknown else "repeated labels",
        )
    others = np.setdiff1d(np.arange(len(labels)), positions)
    return np.concatenate([positions, others])
