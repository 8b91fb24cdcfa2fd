"""Input of models of one kernel matrix: theta of all objects, K11 of the training objects."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.linalg import eigvalsh

from ...validation import argument_error, number_or_nan
from ..kernels.labels import as_frame, check_distinct, counts_rows, listed, numbers_by_kernel
from ..kernels.stack import as_stack, check_gram
from .incomplete import is_definite

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PartitionedStack:
    """Checked kernels of all objects and K11 of the training objects, which come first.

    `kernels` (kernel, n, n) are symmetric positive semidefinite, K11 (n1, n1) is positive definite
    with 1 <= n1 < n, and `labels` (n,) are names of the objects.
    """

    kernels: Array
    names: npt.NDArray[Any]
    K11: Array
    labels: npt.NDArray[Any]

    @classmethod
    def of(cls, theta: Any, K11: Any, owner: str) -> "PartitionedStack":
        """Check the kernels, and order them by the labels of K11, if it has any."""
        stack = as_stack(as_frame(theta), owner=owner, argument="theta")
        check_gram(stack, owner, "theta")
        kernels = stack.values
        labels = stack["obs"].values
        target = as_stack(as_frame(K11), owner=owner, argument="K11")
        check_gram(target, owner, "K11")
        if len(target) > 1:
            raise argument_error("K11", owner, "one kernel", f"{len(target)} kernels")
        observed = target.values[0]
        names = target["obs"].values
        n = kernels.shape[-1]
        n1 = len(observed)
        if n1 > n:
            rule = f"a kernel of all objects, the {n1} of K11 first"
            raise argument_error("theta", owner, rule, f"shape {(n, n)}")
        if n1 == n:
            rule = f"of fewer objects than theta ({n}), so that there is something to complete"
            raise argument_error("K11", owner, rule, f"shape {observed.shape}: n2 = 0")
        if not counts_rows(names):
            check_distinct(names, "K11", owner)
            check_distinct(labels, "theta", owner)
            first = pd.Index(labels).get_indexer(pd.Index(names))
            if (first < 0).any():
                got = f"the unknown {listed(names[first < 0].tolist())}"
                raise argument_error("K11", owner, "labelled by objects of theta", got)
            order = np.concatenate([first, np.setdiff1d(np.arange(n), first)])
            kernels = kernels[:, order[:, None], order]
            labels = labels[order]
        check_positive_definite(observed, "K11", owner)
        return cls(kernels, stack["kernel"].values, observed, labels)

    def weighted(self, weights: Any, owner: str) -> Array:
        """Weighted sum (n, n) of the kernels, which is positive definite; None: plain average."""
        given = check_weights(weights, self.names, "weights", owner)
        theta = np.tensordot(given, self.kernels, axes=1)
        check_positive_definite(theta, "theta", owner)
        return theta


def check_weights(weights: Any, names: npt.NDArray[Any], argument: str, owner: str) -> Array:
    """Return non-negative kernel weights (kernel,), not all zero; equal ones for None; or raise."""
    requirement = f"{len(names)} finite non-negative numbers, not all zero"
    n = len(names)

    def holds(given: Array) -> Any:
        return given.shape == (n,) and (given >= 0).all() and given.any()

    return numbers_by_kernel(weights, names, argument, owner, requirement, holds, 1 / n)


def check_degrees_of_freedom(value: float | None, argument: str, owner: str, n: int) -> float:
    """Return degrees of freedom of an (n, n) matrix, n + 1 for None, or raise."""
    number = n + 1.0 if value is None else number_or_nan(value)
    if not n - 1 < number < np.inf:
        raise argument_error(argument, owner, f"a finite number above n - 1 = {n - 1}", repr(value))
    return number


def check_positive_definite(matrix: Array, argument: str, owner: str) -> None:
    """Raise and suggest a jitter unless a symmetric matrix is positive definite beyond rounding."""
    if is_definite(matrix):
        return
    n = len(matrix)
    top = float(np.max(np.diagonal(matrix)))
    smallest = float(eigvalsh(matrix, subset_by_index=[0, 0], check_finite=False)[0])
    jitter = 10.0 ** np.ceil(np.log10(max(1e-8 * top, -2 * smallest, np.finfo(float).tiny)))
    got = f"a smallest eigenvalue of {smallest:.3g}; {argument} + {jitter:.0e} * np.eye({n}) is"
    raise argument_error(argument, owner, "positive definite", got)
