"""Products, Cholesky factors and triangular systems, each as one node of a graph.

numba takes 3 to 8 seconds to compile each of PyTensor's operations of linear algebra, one variant
of a product per memory layout, and gradients need several. The loops of `linker_numba` take a tenth
of that, because they handle one memory layout and signal errors only by NaN; gradients use them,
too. A density of `WishartCompletion` compiles in 26 processor seconds with them, and in 111 with
PyTensor's. Other layouts are copied: gradients transpose only slopes, which are small in the
models, not the stacks of kernels.
"""

from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.linalg.decomposition.cholesky import Cholesky
from pytensor.tensor.linalg.solvers.triangular import SolveTriangular
from pytensor.tensor.math import Dot


class MatrixProduct(Op):
    """Product (N, M) of real (N, K) and (K, M); no `Dot`, which PyTensor's rewrites replace."""

    __props__ = ()
    gufunc_signature = "(n,k),(k,m)->(n,m)"

    @override
    def make_node(self, left: TensorLike, right: TensorLike) -> Apply:  # type: ignore[override]
        matrices = [pt.as_tensor(matrix).astype("float64") for matrix in (left, right)]
        return Apply(self, matrices, [Dot().make_node(*matrices).outputs[0].type()])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        output_storage[0][0] = np.dot(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the product from those of the matrices."""
        return [(shapes[0][0], shapes[1][1])]

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        (left, right) = inputs
        (slope,) = cotangents
        # Transposing the products avoids copies of the operands, which may be large.
        products: list[Any] = [self(right, slope.T), self(slope.T, left)]
        return [product.T for product in products]


@_vectorize_node.register(MatrixProduct)
def _products_of_stack(op: MatrixProduct, node: Apply, left: Any, right: Any) -> Any:
    """Products of a stack; with one matrix they are one product, which takes BLAS far less time."""
    if left.ndim > 2 or right.ndim != 3:
        return _each(op, left, right).owner
    stack, rows, columns = right.shape
    product: Any = op(left, right.transpose(1, 0, 2).reshape((rows, stack * columns)))
    return [product.reshape((left.shape[0], stack, columns)).transpose(1, 0, 2)]


class CholeskyFactor(Cholesky):
    """PyTensor's Cholesky factor; its gradient (arXiv 1602.07527, eq 10) is a graph of these."""

    @override
    def pullback(self, inputs: Any, outputs: Any, gradients: Any) -> list[Any]:
        (factor,) = outputs
        (slope,) = gradients
        weights = _triangle(pt.ones_like(factor), True) - pt.eye(factor.shape[0]) / 2
        half = _SOLVE[False](factor.T, _product(factor.T, slope) * weights)
        whole = _SOLVE[False](factor.T, half.T)
        return [(whole + whole.T) * weights]


class TriangularSolve(SolveTriangular):
    """PyTensor's solution of a triangular system; its gradient is a graph of these operations."""

    @override
    def pullback(self, inputs: Any, outputs: Any, output_gradients: Any) -> list[Any]:
        of_right = _SOLVE[not self.lower](inputs[0].T, output_gradients[0])
        return [-_triangle(_product(of_right, outputs[0].T), self.lower), of_right]


def _triangle(matrix: TensorVariable, lower: bool) -> TensorVariable:
    """Lower or upper triangle of a square matrix, by a constant mask if its order is known."""
    order = matrix.type.shape[0]
    if order is None:
        return pt.tril(matrix) if lower else pt.triu(matrix)
    return matrix * (np.tri(order) if lower else np.tri(order).T)


def _each(op: Op, *matrices: Any) -> Any:
    """Apply an operation to matrices, or to each of a stack."""
    return (op if all(matrix.ndim == 2 for matrix in matrices) else Blockwise(op))(*matrices)


_product: Any = MatrixProduct()
_cholesky_factor: Any = CholeskyFactor(lower=True)
_SOLVE: dict[bool, Any] = {lower: TriangularSolve(lower=lower, b_ndim=2) for lower in (True, False)}


def matrix_product(a: TensorLike, b: TensorLike) -> TensorVariable:
    """Product (..., N, M) of matrices (..., N, K) and (..., K, M); either may be a vector (K,)."""
    left: Any = pt.as_tensor(a)
    right: Any = pt.as_tensor(b)
    if left.ndim > 2 and right.ndim <= 2:
        # One product with all rows of the stack.
        *lengths, n_columns = _lengths(left)
        flat: Any = matrix_product(left.reshape((-1, n_columns)), right)
        return flat.reshape((*lengths, *_lengths(right)[1:]))
    rows = left[None, :] if left.ndim == 1 else left
    product = _each(_product, rows, right[:, None] if right.ndim == 1 else right)
    if left.ndim == 1:
        product = product[..., 0, :]
    return product[..., 0] if right.ndim == 1 else product


def _lengths(array: TensorVariable) -> list[Any]:
    """Lengths of all axes: integers where they are known, otherwise symbols."""
    known = array.type.shape
    return [array.shape[i] if length is None else length for i, length in enumerate(known)]


def weighted_sum(stack: TensorLike, weights: TensorLike) -> TensorVariable:
    """Sum (N, M) of the matrices of a stack (S, N, M) times their weights (S,). O(S N M)."""
    matrices: Any = pt.as_tensor(stack)
    n_matrices, n_rows, n_columns = _lengths(matrices)
    flat = matrices.reshape((n_matrices, n_rows * n_columns))
    return matrix_product(weights, flat).reshape((n_rows, n_columns))


def cholesky_or_nan(matrix: TensorLike) -> TensorVariable:
    """Lower Cholesky factors (..., n, n) of the lower triangles, with NaN if there is none."""
    return _each(_cholesky_factor, pt.as_tensor(matrix).astype("float64"))


def solve_lower(
    factor: TensorLike, right: TensorLike, *, transposed: bool = False
) -> TensorVariable:
    """Solution (..., n, m) of L X = B, or of L'X = B, for lower triangular L (..., n, n)."""
    lower, rows = (pt.as_tensor(matrix).astype("float64") for matrix in (factor, right))
    return _each(_SOLVE[not transposed], lower.mT if transposed else lower, rows)


def log_det(factor: TensorVariable) -> TensorVariable:
    """Log determinants (...) of LL' given L (..., n, n)."""
    return 2 * pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def impossible_if_nan(log_density: TensorVariable) -> TensorVariable:
    """Log density that is -inf, not NaN, if a matrix has no Cholesky factor."""
    return pt.switch(pt.isnan(log_density), -np.inf, log_density)
