"""The operations in PyTensor's numba graphs.

Innermost loops run along rows, so that they compile to vector instructions; they are compiled for
one memory layout only, into which the functions copy their operands.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.link.numba.dispatch.basic import numba_njit, register_funcify_default_op_cache_key

from ...numerics.compiled import compiled, source_digest
from ...numerics.probit import default_nodes
from ...numerics.probit_compiled import SOURCES, fill_hessian, fill_log_probability
from .arrays import CholeskyFactor, MatrixProduct, TriangularSolve
from .probit_likelihood import ProbitHessian, ProbitLogProbability

_FILE = "models/operations/linker_numba.py"
# Allow reordered sums, but keep the semantics of infinities and NaN.
_cached = compiled(_FILE, fastmath={"contract", "reassoc", "nsz"}, error_model="numpy")


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
def _solve(factor, x, lower):  # type: ignore[no-untyped-def]
    """Overwrite the right-hand side `x` (n, m) with the solution, given the `factor` (n, n)."""
    n, m = x.shape
    for row in range(n):
        i = row if lower else n - 1 - row
        for k in range(0 if lower else i + 1, i if lower else n):
            entry = factor[i, k]
            for c in range(m):
                x[i, c] -= entry * x[k, c]
        diagonal = factor[i, i]
        for c in range(m):
            x[i, c] /= diagonal


@numba_njit
def _matrix_product(a, b):  # type: ignore[no-untyped-def]
    return np.dot(np.ascontiguousarray(a), np.ascontiguousarray(b))


@numba_njit
def _cholesky_factor(a):  # type: ignore[no-untyped-def]
    if a.shape[0] != a.shape[1]:
        raise ValueError("A Cholesky factor needs a square matrix.")
    out = a.copy()
    _factorise(out)
    return out


@numba_njit
def _solution(factor, right, lower):  # type: ignore[no-untyped-def]
    if factor.shape[0] != factor.shape[1] or factor.shape[0] != right.shape[0]:
        raise ValueError(
            "A triangular system needs a square factor with as many rows as the right-hand side."
        )
    out = right.copy()
    _solve(np.ascontiguousarray(factor), out, lower)
    return out


@numba_njit
def _solve_lower(factor, right):  # type: ignore[no-untyped-def]
    return _solution(factor, right, True)


@numba_njit
def _solve_upper(factor, right):  # type: ignore[no-untyped-def]
    return _solution(factor, right, False)


_default_nodes = njit(default_nodes)


@numba_njit
def _checked(f, t):  # type: ignore[no-untyped-def]
    """Scores and codes in one memory layout, for which the loops are compiled."""
    if t.shape[0] != f.shape[0]:
        raise ValueError("The multinomial probit needs one class code per object.")
    return np.ascontiguousarray(f), np.ascontiguousarray(t)


@numba_njit
def _log_probability_and_gradient(f, t):  # type: ignore[no-untyped-def]
    scores, codes = _checked(f, t)
    log_p = np.empty(len(scores))
    gradient = np.empty(scores.shape)
    fill_log_probability(scores, codes, _default_nodes(scores.shape[1]), log_p, gradient)
    return log_p, gradient


@numba_njit
def _hessian(f, t):  # type: ignore[no-untyped-def]
    scores, codes = _checked(f, t)
    out = np.zeros((len(scores), scores.shape[1], scores.shape[1]))
    fill_hessian(scores, codes, _default_nodes(scores.shape[1]), out)
    return out


#: Compiled function of an operation.
FUNCTIONS: dict[type[Op], Callable[[Any], Any]] = {
    MatrixProduct: lambda op: _matrix_product,
    CholeskyFactor: lambda op: _cholesky_factor,
    TriangularSolve: lambda op: _solve_lower if op.lower else _solve_upper,
    ProbitLogProbability: lambda op: _log_probability_and_gradient,
    ProbitHessian: lambda op: _hessian,
}
# PyTensor caches compiled code by the operation and this number, which changes with the sources.
_SALT = int(source_digest(*SOURCES, _FILE), 16)


def _numba_function(op: Any, node: Apply, **kwargs: Any) -> tuple[Any, int]:
    return FUNCTIONS[type(op)](op), _SALT


for _operation in FUNCTIONS:
    register_funcify_default_op_cache_key(_operation)(_numba_function)
