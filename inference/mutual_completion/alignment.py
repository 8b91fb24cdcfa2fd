"""Alignment of kernels, and the ideal kernel of class labels.

References
----------
Cristianini et al. (2002), On kernel target alignment. Zhang, Yeung and Kwok, Probabilistic kernel
matrix learning with a mixture model of kernels, section 5.1.
"""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ...models.kernels.labels import as_frame, order_of, with_ids_of_columns
from ...validation import argument_error, check_finite, check_labels, check_undated, check_unmasked

__all__ = ["ideal_kernel", "kernel_alignment"]


def ideal_kernel(labels: ArrayLike) -> NDArray:
    """Kernel of labels, of shape (n, n): 1 for two objects of the same class, 0 otherwise.

    Raises
    ------
    ValueError
        For missing labels, and for labels of a single class.
    """
    codes, _ = check_labels(labels, "labels", "ideal_kernel")
    return np.equal.outer(codes, codes).astype(float)


def kernel_alignment(K: ArrayLike, L: ArrayLike) -> Any:
    """Alignment of two kernels, <K, L> / sqrt(<K, K> <L, L>) in the Frobenius inner product.

    Parameters
    ----------
    K, L : array-like of shape (..., n, m), or DataFrame
        Leading dimensions broadcast. Two DataFrames are aligned by their labels.

    Returns
    -------
    float, or ndarray of the leading shape
        1 for proportional kernels; between 0 and 1 for positive semidefinite ones.

    Raises
    ------
    ValueError
        For different last two dimensions, entries that are not finite, or a kernel of zeros.

    Notes
    -----
    Cost O(n m) a pair, without an intermediate array of that size.
    """
    given = _alike(K, L)
    for name, kernel in given.items():
        check_unmasked(kernel, name, "kernel_alignment")
        check_undated(kernel, name, "kernel_alignment")
    K, L = (np.asarray(kernel, dtype=float) for kernel in given.values())
    if K.ndim < 2 or K.shape[-2:] != L.shape[-2:]:
        raise argument_error(
            "L", "kernel_alignment", f"of the size of K, shape {K.shape}", f"shape {L.shape}"
        )
    for name, kernel in (("K", K), ("L", L)):
        check_finite(kernel, name, "kernel_alignment")
    inner = "...ij,...ij->..."
    sizes = np.einsum(inner, K, K) * np.einsum(inner, L, L)
    if not np.all(sizes > 0):
        raise argument_error("K", "kernel_alignment", "a kernel other than 0, as L", "zeros only")
    return np.einsum(inner, K, L) / np.sqrt(sizes)


def _alike(K: Any, L: Any) -> dict[str, Any]:
    """Two kernels by name; two DataFrames in the same order of rows and columns."""
    named = {"K": with_ids_of_columns(as_frame(K)), "L": with_ids_of_columns(as_frame(L))}
    if all(isinstance(kernel, pd.DataFrame) for kernel in named.values()):
        K, L = named.values()
        requirement = "labelled as K is"
        for axis in (0, 1):
            order = order_of(L.axes[axis], K.axes[axis], "L", "kernel_alignment", requirement)
            L = L if order is None else L.take(order, axis=axis)
        named["L"] = L
    return named
