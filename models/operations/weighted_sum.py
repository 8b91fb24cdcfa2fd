"""Weighted sum of a stack of matrices as a separate operation.

A sum and its gradient are two nodes of a graph. As products of a vector and a reshaped matrix they
would be ten nodes, which take numba several seconds to compile.
"""

from typing import Any, override

import numpy as np
from pytensor.tensor import TensorLike, TensorVariable

from .array_operation import ArrayOperation

__all__ = ["InnerProducts", "SumOfMatrices", "weighted_sum"]


class SumOfMatrices(ArrayOperation):
    """Sum (N, M) of the matrices of a stack (S, N, M) times their weights (S,)."""

    gufunc_signature = "(s,n,m),(s)->(n,m)"

    @override
    def evaluate(self, stack: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return np.dot(weights, stack.reshape((len(stack), -1))).reshape(stack.shape[1:])

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        (stack, weights), (slope,) = inputs, cotangents
        return [weights[:, None, None] * slope, _inner_products(stack, slope)]


class InnerProducts(ArrayOperation):
    """Inner products (S,) of each matrix of a stack (S, N, M) with one matrix (N, M)."""

    gufunc_signature = "(s,n,m),(n,m)->(s)"

    @override
    def evaluate(self, stack: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return np.dot(stack.reshape((len(stack), -1)), matrix.ravel())

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        (stack, matrix), (slopes,) = inputs, cotangents
        return [slopes[:, None, None] * matrix, _sum_of_matrices(stack, slopes)]


_sum_of_matrices: Any = SumOfMatrices()
_inner_products: Any = InnerProducts()


def weighted_sum(stack: TensorLike, weights: TensorLike) -> TensorVariable:
    """Sum (N, M) of the matrices of a stack (S, N, M) times their weights (S,). O(S N M)."""
    total: TensorVariable = _sum_of_matrices(stack, weights)
    return total
