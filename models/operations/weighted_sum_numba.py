"""Weighted sums of a stack of matrices in PyTensor's numba graphs.

Both functions are memory-bound: they read the stack once, in memory order.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from ...numerics.compiled import compiled, source_digest
from .weighted_sum import InnerProducts, SumOfMatrices

__all__ = ["numba_inner_products", "numba_sum_of_matrices"]

# PyTensor caches compiled code by the operation's name and this number, which changes with the
# source.
SALT = int(source_digest("models/operations/weighted_sum_numba.py"), 16)

# Allow reordered sums, but keep the semantics of infinities and NaN.
_cached = compiled(
    "models/operations/weighted_sum_numba.py", fastmath={"contract", "reassoc", "nsz"}
)


@_cached
def _add(matrix, weight, out):  # type: ignore[no-untyped-def]
    """Add a `matrix` (N, M) times a `weight` to `out` (N, M)."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            out[i, j] += weight * matrix[i, j]


@_cached
def _inner(a, b):  # type: ignore[no-untyped-def]
    """Inner product of two matrices (N, M)."""
    total = 0.0
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            total += a[i, j] * b[i, j]
    return total


@register_funcify_default_op_cache_key(SumOfMatrices)
def numba_sum_of_matrices(
    op: SumOfMatrices, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a stack (S, N, M) and weights (S,), and its salt."""

    @numba_njit
    def sum_of_matrices(stack, weights):  # type: ignore[no-untyped-def]
        if stack.shape[0] != weights.shape[0]:
            raise ValueError("A weighted sum needs one weight per matrix.")
        out = np.zeros((stack.shape[1], stack.shape[2]))
        for s in range(stack.shape[0]):
            _add(stack[s], weights[s], out)
        return out

    return sum_of_matrices, SALT


@register_funcify_default_op_cache_key(InnerProducts)
def numba_inner_products(
    op: InnerProducts, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a stack (S, N, M) and a matrix (N, M), and its salt."""

    @numba_njit
    def inner_products(stack, matrix):  # type: ignore[no-untyped-def]
        if stack.shape[1] != matrix.shape[0] or stack.shape[2] != matrix.shape[1]:
            raise ValueError("Inner products need matrices of one shape.")
        out = np.empty(stack.shape[0])
        for s in range(stack.shape[0]):
            out[s] = _inner(stack[s], matrix)
        return out

    return inner_products, SALT
