"""Unconstrained coordinates of positive definite matrices."""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor import TensorLike, TensorVariable

from ..operations.matrix_product import matrix_product
from ..operations.triangular import cholesky_or_nan, order_of_packed, packed, unpacked

__all__ = ["PositiveDefinite", "known_length"]

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


def _rows_and_diagonal(packed_values: TensorVariable) -> tuple[Any, Any, Any]:
    """Order of a packed triangle, the row of each entry, and whether it lies on the diagonal."""
    length = known_length(packed_values)
    n = order_of_packed(length)
    known = isinstance(length, int)
    numbers: Any = np if known else pt
    rows, columns = numbers.tril_indices(n)
    return n, rows, rows == columns if known else pt.eq(rows, columns)
