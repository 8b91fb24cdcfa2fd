"""Sums of exponentials, and shares of them.

SciPy has the same functions; on a few hundred numbers their checks take longer than the sums, and
their first call loads libraries of other arrays.
"""

import numpy as np
from numpy.typing import NDArray

type Array = NDArray[np.float64]


def log_sum_exp(values: Array, axis: int | None = None, weights: Array | None = None) -> Array:
    """Log of the sum of exponentials, times weights, along an axis or of all (None).

    The values must be below infinity. Sums without a positive term are minus infinity.
    """
    top = np.max(values, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    terms = np.exp(values - top)
    if weights is not None:
        terms = terms * weights
    with np.errstate(divide="ignore"):
        logs = np.log(terms.sum(axis=axis, keepdims=True)) + top
    return np.squeeze(logs, axis=axis)


def softmax(values: Array, axis: int = -1) -> Array:
    """Exponentials of finite values, divided by their sum along an axis."""
    terms = np.exp(values - values.max(axis=axis, keepdims=True))
    return terms / terms.sum(axis=axis, keepdims=True)
