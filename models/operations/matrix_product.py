"""Product of two matrices as a separate operation.

numba compiles PyTensor's products in one variant per memory layout, which takes 20 seconds, two
thirds of the time for the gradient of a whole model. This operation has one variant, which copies
operands that are not contiguous. Gradients transpose only slopes, which are small in the models,
not operands: the larger operand is a contiguous stack of kernels.
"""

from typing import Any, override

import numpy as np
import pytensor.tensor as pt
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
        # Transposing the products avoids copies of the operands, which may be large.
        products: list[Any] = [self(right, slope.T), self(slope.T, left)]
        return [product.T for product in products]


_product: Any = MatrixProduct()


def matrix_product(a: TensorLike, b: TensorLike) -> TensorVariable:
    """Product of two matrices or stacks of matrices; either may be a vector.

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
