"""Unconstrained coordinates of positive definite matrices."""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor import TensorLike, TensorVariable

from ...numerics import packed_factor
from ..operations.arrays import cholesky_or_nan, matrix_product

_LOG2 = np.log(2.0)


class PositiveDefinite(Transform):
    r"""Transform between positive definite matrices and unconstrained vectors.

    :math:`X = LL^\top` is packed as the lower triangle of L by rows, with the logarithms of its
    diagonal: n(n+1)/2 numbers. The order n is read from the values: one instance serves all.
    :math:`\log|J| = n \log 2 + \sum_{k=1}^n (n - k + 2) \log L_{kk}`.

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
        rows, columns, diagonal = _triangle(known_length(value))
        values = cholesky_or_nan(value)[..., rows, columns]
        return pt.switch(diagonal, pt.log(pt.switch(diagonal, values, 1.0)), values)

    @override
    def backward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Matrices (..., n, n) of packed vectors (..., n(n+1)/2)."""
        value = pt.as_tensor_variable(value)
        n = _order_of_packed(value)
        rows, columns, diagonal = _triangle(n)
        # Off-diagonal entries may be large and must not be exponentiated.
        on_diagonal = pt.exp(pt.switch(diagonal, value, 0.0))
        shape = *(value.shape[axis] for axis in range(value.ndim - 1)), n, n
        entries = pt.switch(diagonal, on_diagonal, value)
        factor = pt.zeros(shape)[..., rows, columns].set(entries)
        return matrix_product(factor, factor.mT)

    @override
    def log_jac_det(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Log of the Jacobian determinant of `backward` (...)."""
        value = pt.as_tensor_variable(value)
        n = _order_of_packed(value)
        rows, _, diagonal = _triangle(n)
        return n * _LOG2 + pt.switch(diagonal, (n + 1.0 - rows) * value, 0.0).sum(-1)


def known_length(x: TensorVariable) -> Any:
    """Length of the last axis: a number if PyTensor knows it, otherwise symbolic."""
    static = x.type.shape[-1]
    return x.shape[-1] if static is None else static


def _order_of_packed(values: TensorVariable) -> Any:
    """Order n of matrices whose packed values (..., n(n+1)/2) are given, a number or a tensor."""
    length = known_length(values)
    if isinstance(length, int):
        return packed_factor.order_of_packed(length)
    return pt.round((pt.sqrt(8.0 * length + 1) - 1) / 2).astype("int64")


def _triangle(n: Any) -> tuple[Any, Any, Any]:
    """Rows and columns of the lower triangle, by rows, and whether they are on the diagonal."""
    numbers: Any = np if isinstance(n, int) else pt
    rows, columns = numbers.tril_indices(n)
    return rows, columns, pt.eq(rows, columns)
