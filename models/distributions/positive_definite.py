"""Unconstrained coordinates of positive definite matrices."""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor import TensorLike, TensorVariable

from ...numerics import packed_factor
from ..operations.arrays import cholesky_or_nan, matrix_product

__all__ = ["PositiveDefinite", "known_length", "packed", "unpacked"]

_LOG2 = np.log(2.0)


class PositiveDefinite(Transform):
    r"""Transform between positive definite matrices and unconstrained vectors.

    X = LL' is packed as the lower triangle of L by rows, with the logarithms of its diagonal:
    n(n+1)/2 numbers. The order n is read from the values, so that one instance serves all orders.
    log|J| = n log 2 + sum_k (n - k + 2) log L_kk, k = 1..n.

    Examples
    --------
    >>> transform = kz.distributions.PositiveDefinite()
    >>> transform.forward(pt.as_tensor(np.eye(3))).eval()
    """

    name = "cholesky"
    ndim_supp = 1

    @override
    def forward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Packed vector (..., n(n+1)/2) of positive definite matrices (..., n, n)."""
        value = pt.as_tensor_variable(value)
        values = packed(cholesky_or_nan(value))
        _, _, diagonal = _rows_and_diagonal(values)
        return pt.switch(diagonal, pt.log(pt.switch(diagonal, values, 1.0)), values)

    @override
    def backward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Matrices (..., n, n) of packed vectors (..., n(n+1)/2)."""
        value = pt.as_tensor_variable(value)
        _, _, diagonal = _rows_and_diagonal(value)
        # Off-diagonal entries may be large and must not be exponentiated.
        on_diagonal = pt.exp(pt.switch(diagonal, value, 0.0))
        factor = unpacked(pt.switch(diagonal, on_diagonal, value))
        return matrix_product(factor, factor.mT)

    @override
    def log_jac_det(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Log of the Jacobian determinant of `backward` (...)."""
        value = pt.as_tensor_variable(value)
        n, rows, diagonal = _rows_and_diagonal(value)
        return n * _LOG2 + ((n + 1.0 - rows) * diagonal * value).sum(-1)


def known_length(x: TensorVariable) -> Any:
    """Length of the last axis: a number if PyTensor knows it, otherwise symbolic."""
    static = x.type.shape[-1]
    return x.shape[-1] if static is None else static


def packed(matrix: TensorLike) -> TensorVariable:
    """Lower triangles (..., n(n+1)/2), by rows, of matrices (..., n, n)."""
    matrix = pt.as_tensor(matrix)
    return matrix[..., *_lower_positions(known_length(matrix))]


def unpacked(entries: TensorLike) -> TensorVariable:
    """Lower triangular matrices (..., n, n) of their entries (..., n(n+1)/2) by rows."""
    entries = pt.as_tensor(entries)
    order = _order_of_packed(known_length(entries))
    shape = *(entries.shape[axis] for axis in range(entries.ndim - 1)), order, order
    return pt.zeros(shape)[..., *_lower_positions(order)].set(entries)


def _order_of_packed(length: Any) -> Any:
    """Find n with n(n+1)/2 = `length`, a number or a tensor."""
    if isinstance(length, int):
        return packed_factor.order_of_packed(length)
    return pt.round((pt.sqrt(8.0 * length + 1) - 1) / 2).astype("int64")


def _lower_positions(order: Any) -> Any:
    """Rows and columns of the lower triangle, by rows: numbers if the order is one."""
    return (np if isinstance(order, int) else pt).tril_indices(order)


def _rows_and_diagonal(packed_values: TensorVariable) -> tuple[Any, Any, Any]:
    """Order of a packed triangle, the row of each entry, and whether it lies on the diagonal."""
    n = _order_of_packed(known_length(packed_values))
    rows, columns = _lower_positions(n)
    return n, rows, rows == columns if isinstance(n, int) else pt.eq(rows, columns)
