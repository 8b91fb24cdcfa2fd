"""Cholesky factors and triangular systems in JAX."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from pytensor.link.jax.dispatch import jax_funcify

from .triangular import (
    CholeskyFactor,
    CholeskySlope,
    LogDeterminant,
    Packed,
    ReciprocalDiagonal,
    TriangularSolve,
    Unpacked,
    order_of_packed,
)

__all__ = [
    "jax_cholesky_factor",
    "jax_cholesky_slope",
    "jax_log_determinant",
    "jax_packed",
    "jax_reciprocal_diagonal",
    "jax_triangular_solve",
    "jax_unpacked",
]


@jax_funcify.register(CholeskyFactor)
def jax_cholesky_factor(op: CholeskyFactor, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a matrix (n, n)."""
    return partial(jnp.linalg.cholesky, symmetrize_input=False)


@jax_funcify.register(TriangularSolve)
def jax_triangular_solve(op: TriangularSolve, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a factor (n, n) and a right side (n, m)."""
    return partial(solve_triangular, lower=True, trans=int(op.transposed))


@jax_funcify.register(CholeskySlope)
def jax_cholesky_slope(op: CholeskySlope, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a factor (n, n) and the slope in it (n, n)."""
    solve = partial(solve_triangular, lower=True, trans=1)

    def cholesky_slope(factor: Any, slope: Any) -> Any:
        weights = jnp.tri(len(factor)) - jnp.eye(len(factor)) / 2
        half = solve(factor, (factor.T @ slope) * weights)
        whole = solve(factor, half.T)
        return (whole + whole.T) * weights

    return cholesky_slope


@jax_funcify.register(Packed)
def jax_packed(op: Packed, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a matrix (n, n)."""
    return lambda matrix: matrix[jnp.tril_indices(len(matrix))]


@jax_funcify.register(Unpacked)
def jax_unpacked(op: Unpacked, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of the entries (n(n+1)/2,)."""

    def unpacked(entries: Any) -> Any:
        order = order_of_packed(len(entries))
        return jnp.zeros((order, order)).at[jnp.tril_indices(order)].set(entries)

    return unpacked


@jax_funcify.register(LogDeterminant)
def jax_log_determinant(op: LogDeterminant, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a factor (n, n)."""
    return lambda factor: 2 * jnp.log(jnp.diag(factor)).sum()


@jax_funcify.register(ReciprocalDiagonal)
def jax_reciprocal_diagonal(op: ReciprocalDiagonal, **kwargs: Any) -> Callable[..., Any]:
    """Return the function of a matrix (n, n)."""
    return lambda matrix: jnp.diag(1 / jnp.diag(matrix))
