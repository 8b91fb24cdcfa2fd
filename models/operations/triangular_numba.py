"""Cholesky factors and triangular systems in PyTensor's numba graphs.

Innermost loops run along rows, so that they compile to vector instructions.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from pytensor.graph.basic import Apply
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from ...numerics.compiled import compiled, source_digest
from .triangular import (
    CholeskyFactor,
    CholeskySlope,
    LogDeterminant,
    Packed,
    ReciprocalDiagonal,
    TriangularSolve,
    Unpacked,
)

__all__ = [
    "numba_cholesky_factor",
    "numba_cholesky_slope",
    "numba_log_determinant",
    "numba_packed",
    "numba_reciprocal_diagonal",
    "numba_triangular_solve",
    "numba_unpacked",
]

# PyTensor caches compiled code by the operation's name and this number, which changes with the
# source.
SALT = int(source_digest("models/operations/triangular_numba.py"), 16)

# Allow reordered sums, but keep the semantics of infinities and NaN.
_cached = compiled(
    "models/operations/triangular_numba.py",
    fastmath={"contract", "reassoc", "nsz"},
    error_model="numpy",
)


@_cached
def _factorise(a):  # type: ignore[no-untyped-def]
    """Overwrite a matrix `a` (n, n) with its factor, or with NaN if it has none."""
    n = a.shape[0]
    for i in range(n):
        for j in range(i + 1):
            total = a[i, j]
            for k in range(j):
                total -= a[i, k] * a[j, k]
            if i > j:
                a[i, j] = total / a[j, j]
            elif total > 0.0:
                a[i, i] = math.sqrt(total)
            else:
                for row in range(n):
                    for column in range(n):
                        a[row, column] = math.nan
                return
        for j in range(i + 1, n):
            a[i, j] = 0.0


@_cached
def _solve(factor, x, transposed):  # type: ignore[no-untyped-def]
    """Overwrite the right-hand side `x` (n, m) with the solution, given the `factor` (n, n)."""
    n, m = x.shape
    if transposed:
        for i in range(n - 1, -1, -1):
            diagonal = factor[i, i]
            for c in range(m):
                x[i, c] /= diagonal
            for k in range(i):
                entry = factor[i, k]
                for c in range(m):
                    x[k, c] -= entry * x[i, c]
    else:
        for i in range(n):
            for k in range(i):
                entry = factor[i, k]
                for c in range(m):
                    x[i, c] -= entry * x[k, c]
            diagonal = factor[i, i]
            for c in range(m):
                x[i, c] /= diagonal


@_cached
def _slope(factor, s):  # type: ignore[no-untyped-def]
    """Overwrite `s` (n, n), the slope in the factor, with the slope in the matrix."""
    n = factor.shape[0]
    # The loops of the factorisation in reverse order.
    for i in range(n - 1, -1, -1):
        for j in range(i, -1, -1):
            if i == j:
                s[i, i] /= 2 * factor[i, i]
                twice = 2 * s[i, i]
                for k in range(i):
                    s[i, k] -= twice * factor[i, k]
            else:
                s[i, j] /= factor[j, j]
                of_total = s[i, j]
                s[j, j] -= of_total * factor[i, j]
                for k in range(j):
                    s[i, k] -= of_total * factor[j, k]
                for k in range(j):
                    s[j, k] -= of_total * factor[i, k]
        for j in range(i + 1, n):
            s[i, j] = 0.0


@register_funcify_default_op_cache_key(CholeskyFactor)
def numba_cholesky_factor(
    op: CholeskyFactor, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a matrix (n, n), and the salt of its cache key."""

    @numba_njit
    def cholesky_factor(a):  # type: ignore[no-untyped-def]
        n = a.shape[0]
        if a.shape[1] != n:
            raise ValueError("A Cholesky factor needs a square matrix.")
        out = np.empty((n, n))
        for i in range(n):
            for j in range(n):
                out[i, j] = a[i, j]
        _factorise(out)
        return out

    return cholesky_factor, SALT


@register_funcify_default_op_cache_key(TriangularSolve)
def numba_triangular_solve(
    op: TriangularSolve, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a factor (n, n) and a right side (n, m)."""
    transposed = op.transposed

    @numba_njit
    def triangular_solve(factor, right):  # type: ignore[no-untyped-def]
        n, m = right.shape
        if factor.shape != (n, n):
            raise ValueError(
                "A triangular system needs a square factor with as many rows as the right-hand "
                "side."
            )
        rows, out = np.empty((n, n)), np.empty((n, m))
        for i in range(n):
            for j in range(n):
                rows[i, j] = factor[i, j]
            for j in range(m):
                out[i, j] = right[i, j]
        _solve(rows, out, transposed)
        return out

    return triangular_solve, SALT


@register_funcify_default_op_cache_key(CholeskySlope)
def numba_cholesky_slope(
    op: CholeskySlope, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a factor (n, n) and the slope in it (n, n)."""

    @numba_njit
    def cholesky_slope(factor, slope):  # type: ignore[no-untyped-def]
        n = factor.shape[0]
        rows, out = np.empty((n, n)), np.empty((n, n))
        for i in range(n):
            for j in range(n):
                rows[i, j] = factor[i, j]
                out[i, j] = slope[i, j]
        _slope(rows, out)
        return out

    return cholesky_slope, SALT


@register_funcify_default_op_cache_key(Packed)
def numba_packed(op: Packed, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a matrix (n, n)."""

    @numba_njit
    def packed(matrix):  # type: ignore[no-untyped-def]
        n = matrix.shape[0]
        if matrix.shape[1] != n:
            raise ValueError("A packed triangle needs a square matrix.")
        out = np.empty(n * (n + 1) // 2)
        place = 0
        for i in range(n):
            for j in range(i + 1):
                out[place] = matrix[i, j]
                place += 1
        return out

    return packed, SALT


@register_funcify_default_op_cache_key(Unpacked)
def numba_unpacked(op: Unpacked, node: Apply, **kwargs: Any) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of the entries (n(n+1)/2,)."""

    @numba_njit
    def unpacked(entries):  # type: ignore[no-untyped-def]
        n = 0
        while (n + 1) * (n + 2) // 2 <= entries.shape[0]:
            n += 1
        if n * (n + 1) // 2 != entries.shape[0]:
            raise ValueError("Packed entries need the length n(n+1)/2.")
        out = np.empty((n, n))
        place = 0
        for i in range(n):
            for j in range(i + 1):
                out[i, j] = entries[place]
                place += 1
            for j in range(i + 1, n):
                out[i, j] = 0.0
        return out

    return unpacked, SALT


@register_funcify_default_op_cache_key(LogDeterminant)
def numba_log_determinant(
    op: LogDeterminant, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a factor (n, n)."""

    @numba_njit
    def log_determinant(factor):  # type: ignore[no-untyped-def]
        if factor.shape[0] != factor.shape[1]:
            raise ValueError("A log determinant needs a square factor.")
        total = 0.0
        for i in range(factor.shape[0]):
            total += math.log(factor[i, i])
        return np.asarray(2 * total)

    return log_determinant, SALT


@register_funcify_default_op_cache_key(ReciprocalDiagonal)
def numba_reciprocal_diagonal(
    op: ReciprocalDiagonal, node: Apply, **kwargs: Any
) -> tuple[Callable[..., Any], int]:
    """Return the compiled function of a matrix (n, n)."""

    # A zero on the diagonal gives infinity, where Python's division would raise.
    @numba_njit(error_model="numpy")
    def reciprocal_diagonal(matrix):  # type: ignore[no-untyped-def]
        n = matrix.shape[0]
        out = np.zeros((n, n))
        for i in range(n):
            out[i, i] = 1.0 / matrix[i, i]
        return out

    return reciprocal_diagonal, SALT
