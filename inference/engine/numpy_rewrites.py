"""Rewrites of graphs that NumPy evaluates node by node, without a compiler."""

from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Softplus
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from scipy.special import log_expit

from ...models.operations.matrix_product import MatrixProduct
from ...models.operations.weighted_sum import SumOfMatrices

__all__ = ["NUMPY_REWRITES"]

# Position among PyTensor's rewrites: those that look for these operations have been applied.
AFTER_SPECIALIZATION = 4
# Fewer columns are multiplied with each matrix, and the products added up: memory limits the speed.
FEW_COLUMNS = 16


class _LogExpit(UnaryScalarOp):
    """Logarithm of the logistic function, evaluated by SciPy."""

    nfunc_spec = ("scipy.special.log_expit", 1, 1)

    @staticmethod
    def impl(x: float) -> float:
        return float(log_expit(x))


_log_expit: Any = Elemwise(_LogExpit(upgrade_to_float, name="log_expit"))  # type: ignore[abstract]


@node_rewriter([Elemwise])
def _softplus_by_scipy(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Replace PyTensor's softplus, a Python function that takes twenty times as long."""
    if not isinstance(node.op.scalar_op, Softplus):
        return None
    x: Any = node.inputs[0]
    return [-_log_expit(-x)]


class SummedProducts(Op):
    """Products (D, N, C) of D weighted sums of the same matrices (1, S, N, M) with D matrices.

    The weights are (D, S), the factors on the right (D, M, C); either D may be 1. The sums (D, N,
    M) are not stored, which takes most of the time of separate operations.
    """

    __props__ = ()

    def make_node(self, *inputs: Any) -> Apply:
        stack, weights, right = inputs
        draws = weights.type.shape[0] if weights.type.shape[0] != 1 else right.type.shape[0]
        shape = (draws, stack.type.shape[2], right.type.shape[2])
        return Apply(self, list(inputs), [pt.tensor(dtype="float64", shape=shape)])

    @override
    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        (stack,), weights, right = inputs
        draws = len(right) if len(weights) == 1 else len(weights)
        columns = right.shape[2]
        weights = np.broadcast_to(weights, (draws, len(stack)))
        right = np.broadcast_to(right, (draws, *right.shape[1:]))
        if columns == 1:
            # One product a matrix for all draws.
            products = stack @ right[:, :, 0].T
            out = np.einsum("snd,ds->dn", products, weights)[:, :, None]
        else:
            flat = stack.reshape(len(stack), -1)
            out = np.empty((draws, stack.shape[1], columns))
            for w, b, product in zip(weights, right, out, strict=True):
                if columns < FEW_COLUMNS:
                    np.dot(w, (stack @ b).reshape(len(stack), -1), out=product.reshape(-1))
                else:
                    np.dot(np.dot(w, flat).reshape(stack.shape[1:]), b, out=product)
        output_storage[0][0] = out


_summed_products: Any = SummedProducts()


@node_rewriter([Blockwise])
def _products_of_sums(fgraph: FunctionGraph, node: Apply) -> list[Any] | None:
    """Multiply with weighted sums without storing the sums of all draws."""
    if not isinstance(node.op.core_op, MatrixProduct):
        return None
    total, right = node.inputs
    each = total.owner and total.owner.op
    if not (isinstance(each, Blockwise) and isinstance(each.core_op, SumOfMatrices)):
        return None
    stack, weights = total.owner.inputs
    if stack.type.shape[0] != 1 or stack.type.ndim != 4 or len(fgraph.clients[total]) > 1:
        return None
    return [_summed_products(stack, weights, right)]


NUMPY_REWRITES = tuple(
    (out2in(rewriter, name=rewriter.__name__), AFTER_SPECIALIZATION)
    for rewriter in (_softplus_by_scipy, _products_of_sums)
)
