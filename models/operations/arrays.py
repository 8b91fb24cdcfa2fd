"""Products, Cholesky factors and triangular systems, each as one node of a graph.

numba takes 3 to 8 seconds to compile each of PyTensor's operations of linear algebra, one variant
of a product per memory layout, and gradients need several. These take a tenth of that, because
their loops handle one memory layout and signal errors only by NaN; gradients use them, too. The
first fits of the three completion models by NUTS take 30 to 50 processor seconds with them, and 66
to 85 with PyTensor's. Other layouts are copied: gradients transpose only slopes, which are small in
the models, not the stacks of kernels.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.blockwise import Blockwise
from scipy.linalg.blas import dtrsm
from scipy.linalg.lapack import dpotrf

__all__ = [
    "ArrayOperation",
    "CholeskyFactor",
    "MatrixProduct",
    "TriangularSolve",
    "cholesky_or_nan",
    "impossible_if_nan",
    "log_det",
    "matrix_product",
    "solve_lower",
    "weighted_sum",
]


class ArrayOperation(Op):
    """Operation on float64 arrays with one output, with shapes given by its signature.

    The signature is that of a NumPy generalised ufunc. Operands of mismatched lengths raise a
    ValueError: in the graph if they are known, otherwise in evaluation. `evaluate` is the operation
    on NumPy arrays; `linker_numba` and `linker_jax` have it for their linkers.
    """

    __props__: tuple[str, ...] = ()
    gufunc_signature: ClassVar[str]
    evaluate: ClassVar[Callable[..., Any]]

    @cached_property
    def _letters(self) -> tuple[Any, Any]:
        """Letters of the signature for each operand, and for the output."""
        each = Blockwise(self)
        return each.inputs_sig, each.outputs_sig[0]

    def make_node(self, *operands: TensorLike) -> Apply:
        """Return the node of a graph, whose output has all known lengths of the operands."""
        arrays: list[Any] = [pt.as_tensor(operand).astype("float64") for operand in operands]
        shape = self.output_shape([array.type.shape for array in arrays])
        return Apply(self, arrays, [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        # LAPACK and NumPy accept some mismatched lengths.
        self.output_shape([operand.shape for operand in inputs])
        output_storage[0][0] = self.evaluate(*inputs)

    def infer_shape(self, node: Apply, shapes: Sequence[Any]) -> list[Any]:
        """Shape of the output from the shapes of the operands."""
        return [self.output_shape(shapes)]

    def output_shape(self, shapes: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        """Shape of the output: integers, symbols, or None for unknown lengths."""
        operands, output = self._letters
        lengths: dict[str, Any] = {}
        for letters, shape in zip(operands, shapes, strict=True):
            for letter, length in zip(letters, shape, strict=True):
                known = lengths.get(letter)
                if known is None:
                    lengths[letter] = length
                elif isinstance(known, int) and isinstance(length, int) and known != length:
                    got = ", ".join(str(tuple(shape)) for shape in shapes)
                    name, signature = type(self).__name__, self.gufunc_signature
                    raise ValueError(f"{name} has shapes {signature}. Got {got}.")
        return tuple(lengths[letter] for letter in output)

    def each(self, *operands: Any) -> Any:
        """Apply the operation to one set of operands, or to each of a stack."""
        cores = self._letters[0]
        single = all(x.ndim == len(core) for x, core in zip(operands, cores, strict=True))
        return (self if single else Blockwise(self))(*operands)


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


@_vectorize_node.register(MatrixProduct)
def _products_of_stack(op: MatrixProduct, node: Apply, left: Any, right: Any) -> Any:
    """Products of a stack; with one matrix they are one product, which takes BLAS far less time."""
    if left.ndim > 2 or right.ndim != 3:
        return op.each(left, right).owner
    stack, rows, columns = right.shape
    product: Any = op(left, right.transpose(1, 0, 2).reshape((rows, stack * columns)))
    return [product.reshape((left.shape[0], stack, columns)).transpose(1, 0, 2)]


class CholeskyFactor(ArrayOperation):
    """Lower Cholesky factor (n, n) of a matrix, from its lower triangle.

    Without a factor, entries are NaN, always including the last diagonal entry.

    References
    ----------
    I. Murray (2016), Differentiation of the Cholesky decomposition, arXiv 1602.07527: eq (10), the
    pullback.
    """

    gufunc_signature = "(n,n)->(n,n)"

    @override
    def evaluate(self, matrix: np.ndarray) -> np.ndarray:
        factor, failed = dpotrf(matrix, lower=1, clean=1)
        return np.full_like(factor, np.nan) if failed else factor

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        (factor,), (slope,) = outputs, cotangents
        weights = _lower(pt.ones_like(factor)) - pt.eye(factor.shape[0]) / 2
        half = _SOLVE[True](factor, _product(factor.T, slope) * weights)
        whole = _SOLVE[True](factor, half.T)
        return [(whole + whole.T) * weights]


class TriangularSolve(ArrayOperation):
    """Solution X (n, m) of L X = B, or of L'X = B, for a lower triangular matrix L.

    Infinite or NaN if the diagonal has a zero.
    """

    __props__ = ("transposed",)
    gufunc_signature = "(n,n),(n,m)->(n,m)"

    def __init__(self, transposed: bool):
        self.transposed = transposed

    @override
    def evaluate(self, factor: np.ndarray, right: np.ndarray) -> np.ndarray:
        # BLAS reads C-ordered arrays as their transposes.
        return dtrsm(1.0, factor.T, right.T, side=1, trans_a=self.transposed).T

    @override
    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Any]:
        of_right = _SOLVE[not self.transposed](inputs[0], cotangents[0])
        left, right = (outputs[0], of_right) if self.transposed else (of_right, outputs[0])
        return [-_lower(_product(left, right.T)), of_right]


def _lower(matrix: TensorVariable) -> TensorVariable:
    """Lower triangle of a square matrix, by a constant mask if its order is known."""
    order = matrix.type.shape[0]
    return pt.tril(matrix) if order is None else matrix * np.tri(order)


_product: Any = MatrixProduct()
_cholesky_factor: Any = CholeskyFactor()
_SOLVE: dict[bool, Any] = {transposed: TriangularSolve(transposed) for transposed in (False, True)}


def matrix_product(a: TensorLike, b: TensorLike) -> TensorVariable:
    """Product (..., N, M) of matrices (..., N, K) and (..., K, M); either may be a vector (K,)."""
    left: Any = pt.as_tensor(a)
    right: Any = pt.as_tensor(b)
    if left.ndim > 2 and right.ndim <= 2:
        # One product with all rows of the stack.
        *lengths, n_columns = _lengths(left)
        rows: Any = matrix_product(left.reshape((-1, n_columns)), right)
        return rows.reshape((*lengths, *_lengths(right)[1:]))
    product: Any = _product.each(
        left[None, :] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right
    )
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
    """Lower Cholesky factors (..., n, n), with NaN if there is none."""
    return _cholesky_factor.each(pt.as_tensor(matrix))


def solve_lower(
    factor: TensorLike, right: TensorLike, *, transposed: bool = False
) -> TensorVariable:
    """Solution (..., n, m) of L X = B, or of L'X = B, for lower triangular L (..., n, n)."""
    return _SOLVE[transposed].each(pt.as_tensor(factor), pt.as_tensor(right))


def log_det(factor: TensorVariable) -> TensorVariable:
    """Log determinants (...) of LL' given L (..., n, n)."""
    return 2 * pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def impossible_if_nan(log_density: TensorVariable) -> TensorVariable:
    """Log density that is -inf, not NaN, if a matrix has no Cholesky factor."""
    return pt.switch(pt.isnan(log_density), -np.inf, log_density)
