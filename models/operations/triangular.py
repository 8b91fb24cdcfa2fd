"""Cholesky factors and triangular systems as separate operations, and packed triangles.

numba takes 3 to 8 seconds to compile each of PyTensor's operations, and gradients need several.
These operations take a tenth of that, because their loops handle one memory layout and signal
errors only by NaN; gradients use them, too. The first fits of the three completion models by NUTS
take 30 to 45 processor seconds with them, and 66 to 85 with PyTensor's.
"""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import pullback
from pytensor.graph.replace import graph_replace
from pytensor.tensor import TensorLike, TensorVariable
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

from ...numerics import packed_factor
from .array_operation import ArrayOperation
from .matrix_product import matrix_product

__all__ = [
    "CholeskyFactor",
    "CholeskySlope",
    "TriangularSolve",
    "cholesky_or_nan",
    "impossible_if_nan",
    "log_det",
    "order_of_packed",
    "packed",
    "solve_lower",
    "unpacked",
]


class CholeskyFactor(ArrayOperation):
    """Lower Cholesky factor (n, n) of a matrix, from its lower triangle.

    Without a factor, entries are NaN, always including the last diagonal entry.
    """

    gufunc_signature = "(n,n)->(n,n)"

    @override
    def evaluate(self, matrix: np.ndarray) -> np.ndarray:
        factor, failed = dpotrf(matrix, lower=1, clean=1)
        return np.full_like(factor, np.nan) if failed else factor

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        return [_cholesky_slope(outputs[0], cotangents[0])]


class CholeskySlope(ArrayOperation):
    """Slope in the lower triangle of a matrix, given its factor L and the slope in L.

    The reverse-mode derivative of the Cholesky decomposition, O(n^3).

    References
    ----------
    I. Murray (2016), Differentiation of the Cholesky decomposition, arXiv 1602.07527: eq (10).
    """

    gufunc_signature = "(n,n),(n,n)->(n,n)"

    @override
    def evaluate(self, factor: np.ndarray, slope: np.ndarray) -> np.ndarray:
        inner = np.tril(factor.T @ slope)
        inner[np.diag_indices_from(inner)] /= 2
        half = _solve(factor, inner, transposed=True)
        whole = _solve(factor, half.T, transposed=True)
        out = np.tril(whole + whole.T)
        out[np.diag_indices_from(out)] /= 2
        return out

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        # Separate variables are needed, because the slope may depend on the factor.
        own = [variable.type() for variable in inputs]
        slopes: Any = pullback(_explicit_slope(*own), own, cotangents[0])
        return list(graph_replace(slopes, dict(zip(own, inputs, strict=True))))


class TriangularSolve(ArrayOperation):
    """Solution X (n, m) of L X = B, or of L'X = B, for a lower triangular matrix L.

    Parameters
    ----------
    transposed : bool
        Whether to solve with L'.
    """

    __props__ = ("transposed",)
    gufunc_signature = "(n,n),(n,m)->(n,m)"

    def __init__(self, transposed: bool):
        self.transposed = transposed

    @override
    def evaluate(self, factor: np.ndarray, right: np.ndarray) -> np.ndarray:
        return _solve(factor, right, transposed=self.transposed)

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        of_right = _SOLVE[not self.transposed](inputs[0], cotangents[0])
        left, right = (outputs[0], of_right) if self.transposed else (of_right, outputs[0])
        return [-_lower(matrix_product(left, right.T)), of_right]


def order_of_packed(length: Any) -> Any:
    """Find n with n(n+1)/2 = `length`, a number or a tensor."""
    if isinstance(length, int):
        return packed_factor.order_of_packed(length)
    return pt.round((pt.sqrt(8.0 * length + 1) - 1) / 2).astype("int64")


def _solve(factor: np.ndarray, right: np.ndarray, *, transposed: bool) -> np.ndarray:
    """Solution (n, m); infinite or NaN if the diagonal has a zero, as on the other linkers."""
    # BLAS reads C-ordered arrays as their transposes.
    return dtrsm(1.0, factor.T, right.T, side=1, trans_a=transposed).T


def _lower(matrix: TensorVariable) -> TensorVariable:
    """Lower triangle of a square matrix, by a constant mask if its order is known."""
    order = matrix.type.shape[0]
    return pt.tril(matrix) if order is None else matrix * np.tri(order)


def _lower_positions(order: Any) -> Any:
    """Rows and columns of the lower triangle, by rows: numbers if the order is one."""
    return (np if isinstance(order, int) else pt).tril_indices(order)


def _explicit_slope(factor: Any, slope: Any) -> TensorVariable:
    """`CholeskySlope` in terms of operations that have gradients."""
    triangle = _lower(pt.ones_like(factor))
    weights = triangle - pt.eye(factor.shape[0]) / 2
    half = _SOLVE[True](factor, matrix_product(factor.T, slope) * weights)
    whole = _SOLVE[True](factor, half.T)
    return (whole + whole.T) * weights


_cholesky_factor: Any = CholeskyFactor()
_cholesky_slope: Any = CholeskySlope()
_SOLVE: dict[bool, Any] = {transposed: TriangularSolve(transposed) for transposed in (False, True)}


def cholesky_or_nan(matrix: TensorLike) -> TensorVariable:
    """Lower Cholesky factors (..., n, n), with NaN if there is none."""
    return _cholesky_factor.each(pt.as_tensor(matrix))


def packed(matrix: TensorLike) -> TensorVariable:
    """Lower triangles (..., n(n+1)/2), by rows, of matrices (..., n, n)."""
    matrix = pt.as_tensor(matrix)
    return matrix[..., *_lower_positions(matrix.type.shape[-1] or matrix.shape[-1])]


def unpacked(entries: TensorLike) -> TensorVariable:
    """Lower triangular matrices (..., n, n) of their entries (..., n(n+1)/2) by rows."""
    entries = pt.as_tensor(entries)
    order = order_of_packed(entries.type.shape[-1] or entries.shape[-1])
    shape = *(entries.shape[axis] for axis in range(entries.ndim - 1)), order, order
    return pt.zeros(shape)[..., *_lower_positions(order)].set(entries)


def solve_lower(
    factor: TensorLike, right: TensorLike, *, transposed: bool = False
) -> TensorVariable:
    """Solution (..., n, m) of L X = B, or of L'X = B, for lower triangular L (..., n, n)."""
    return _SOLVE[transposed].each(pt.as_tensor(factor), pt.as_tensor(right))


def log_det(factor: TensorVariable) -> TensorVariable:
    """Log determinants (...) of LL' given L (..., n, n)."""
    return 2 * pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def impossible_if_nan(log_density: TensorVariable) -> TensorVariable:
    """Log density that is -inf, not NaN, if a matrix has no Cholesky factor."""
    return pt.switch(pt.isnan(log_density), -np.inf, log_density)
