"""Positive definite matrices: their Cholesky factors and their unconstrained coordinates."""

import math
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.logprob.transforms import Transform
from pytensor.tensor import TensorLike, TensorVariable

__all__ = ["PositiveDefinite", "cholesky_or_nan", "known_length", "log_det"]

_LOG2 = np.log(2.0)


class PositiveDefinite(Transform):
    r"""Positive definite matrices as unconstrained vectors.

    X = LL' is packed as the lower triangle of L by rows, with the logarithms of its diagonal:
    n(n+1)/2 numbers. The order n is read from whatever is transformed, so that one instance
    serves all orders. log|J| = n log 2 + sum_k (n - k + 2) log L_kk, k = 1..n.
    """

    name = "cholesky"
    ndim_supp = 1

    @override
    def forward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Packed vector (..., n(n+1)/2) of positive definite matrices (..., n, n)."""
        value = pt.as_tensor_variable(value)
        rows, columns, diagonal = _triangle(known_length(value))
        packed = cholesky_or_nan(value)[..., rows, columns]
        return packed[..., diagonal].set(pt.log(packed[..., diagonal]))

    @override
    def backward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Matrices (..., n, n) of packed vectors (..., n(n+1)/2)."""
        value = pt.as_tensor_variable(value)
        n = _order(known_length(value))
        rows, columns, diagonal = _triangle(n)
        packed = value[..., diagonal].set(pt.exp(value[..., diagonal]))
        factor = pt.zeros((*_batch(value, 1), n, n), dtype=value.dtype)
        factor = factor[..., rows, columns].set(packed)
        # PyTensor then knows that the Cholesky factor of the product is this matrix.
        factor.tag.lower_triangular = True
        return factor @ factor.mT

    @override
    def log_jac_det(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Log of the Jacobian determinant of `backward` (...)."""
        value = pt.as_tensor_variable(value)
        n = _order(known_length(value))
        _, _, diagonal = _triangle(n)
        powers = pt.arange(n + 1, 1, -1).astype(value.dtype)
        return n * _LOG2 + (powers * value[..., diagonal]).sum(-1)


def known_length(x: TensorVariable) -> Any:
    """Length of the last axis: a number where PyTensor knows it, else symbolic."""
    static = x.type.shape[-1]
    return x.shape[-1] if static is None else static


def _batch(x: TensorVariable, ndim_supp: int) -> list[Any]:
    """Lengths of the leading axes, numbers where known."""
    static = x.type.shape[: x.ndim - ndim_supp]
    return [x.shape[i] if length is None else length for i, length in enumerate(static)]


def _order(length: Any) -> Any:
    """Find the n of which `length` is n(n+1)/2."""
    if isinstance(length, int):
        return (math.isqrt(8 * length + 1) - 1) // 2
    return pt.round((pt.sqrt(8.0 * length + 1) - 1) / 2).astype("int64")


def _triangle(n: Any) -> tuple[Any, Any, Any]:
    """Rows and columns of the packed lower triangle, and where its diagonal lies."""
    numbers: Any = np if isinstance(n, int) else pt
    rows, columns = numbers.tril_indices(n)
    return rows, columns, numbers.cumsum(numbers.arange(1, n + 1)) - 1


def cholesky_or_nan(matrix: TensorVariable) -> TensorVariable:
    """Lower Cholesky factor; NaN where there is none."""
    return pt.linalg.cholesky(matrix, lower=True, on_error="nan")


def log_det(factor: TensorVariable) -> TensorVariable:
    """Log determinant (...) of LL' given L (..., n, n)."""
    return 2 * pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)
