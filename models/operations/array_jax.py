"""The operations on arrays in JAX."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from pytensor.link.jax.dispatch import jax_funcify

from .arrays import (
    ArrayOperation,
    CholeskyFactor,
    InnerProducts,
    MatrixProduct,
    SumOfMatrices,
    TriangularSolve,
)

__all__ = ["FUNCTIONS"]

#: JAX's function of each operation.
FUNCTIONS: dict[ArrayOperation, Callable[..., Any]] = {
    MatrixProduct(): jnp.matmul,
    SumOfMatrices(): lambda stack, weights: jnp.tensordot(weights, stack, axes=1),
    InnerProducts(): lambda stack, matrix: jnp.tensordot(stack, matrix, axes=2),
    CholeskyFactor(): partial(jnp.linalg.cholesky, symmetrize_input=False),
    TriangularSolve(transposed=False): partial(solve_triangular, lower=True),
    TriangularSolve(transposed=True): partial(solve_triangular, lower=True, trans=1),
}


@jax_funcify.register(ArrayOperation)
def _jax_function(op: ArrayOperation, **kwargs: Any) -> Callable[..., Any]:
    return FUNCTIONS[op]
