"""Products of two matrices as an operation of its own.

PyTensor's products take numba a third of a minute to compile, in as many variants as there are
memory layouts: two thirds of what the gradient of a whole model takes. This one has one variant,
which copies an operand that is not contiguous. Gradients transpose no operand of the product, only
slopes, which are small in the models: the larger operand is a contiguous stack of kernels.
"""

from collections.abc import Callable
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
import wrapt
from pytensor.graph.basic import Apply
from pytensor.tensor import TensorLike, TensorVariable

from .array_operation import ArrayOperation

__all__ = ["MatrixProduct", "matrix_product"]


class MatrixProduct(ArrayOperation):
    """Product (N, M) of matrices (N, K) and (K, M) of real numbers."""

    gufunc_signature = "(n,k),(k,m)->(n,m)"

    @override
    def evaluate(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        return np.dot(left, right)

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        (left, right), (slope,) = inputs, cotangents
        # Transposed as a whole, so that the operands, which may be large, are read as they lie.
        products: list[Any] = [self(right, slope.T), self(slope.T, left)]
        return [product.T for product in products]


_product: Any = MatrixProduct()


def matrix_product(a: TensorLike, b: TensorLike) -> TensorVariable:
    """Product of two matrices or stacks of them, either of which may be a vector.

    Parameters
    ----------
    a : tensor (..., N, K) or (K,)
    b : tensor (..., K, M) or (K,)

    Returns
    -------
    tensor (..., N, M), (..., N), (..., M) or ()
    """
    left: Any = pt.as_tensor(a)
    right: Any = pt.as_tensor(b)
    product: Any = _product.each(
        left[None, :] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right
    )
    if left.ndim == 1:
        product = product[..., 0, :]
    return product[..., 0] if right.ndim == 1 else product


@wrapt.when_imported("pytensor.link.numba.dispatch")
def _register_numba(module: Any) -> None:
    from pytensor.link.numba.dispatch.basic import (
        numba_njit,
        register_funcify_default_op_cache_key,
    )

    @register_funcify_default_op_cache_key(MatrixProduct)
    def numba_product(
        op: MatrixProduct, node: Apply, **kwargs: Any
    ) -> tuple[Callable[..., Any], int]:
        @numba_njit
        def product(a, b):  # type: ignore[no-untyped-def]
            return np.dot(np.ascontiguousarray(a), np.ascontiguousarray(b))

        # PyTensor keeps the compiled code by the operation's name and this number: another source
        # needs another.
        return product, 1


@wrapt.when_imported("pytensor.link.jax.dispatch")
def _register_jax(module: Any) -> None:
    import jax.numpy as jnp

    @module.jax_funcify.register(MatrixProduct)
    def jax_product(op: MatrixProduct, **kwargs: Any) -> Callable[..., Any]:
        return jnp.matmul
