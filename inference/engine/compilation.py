"""Choice of a compiler for a PyTensor graph.

numba takes 10 to 30 seconds to compile the gradient of a model, and then evaluates it some fifty
times as fast as NumPy node by node. So graphs that are evaluated a few thousand times run in
Python, and the gradients of chains are compiled by numba, PyTensor's default.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import RLock
from typing import Any, override

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.link.basic import PerformLinker
from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Softplus
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import Elemwise
from scipy.special import log_expit

from ...models.operations.matrix_product import MatrixProduct
from ...models.operations.weighted_sum import SumOfMatrices
from ...numerics.compiled import numba_compiles
from ...validation import argument_error

__all__ = [
    "NUMPY_REWRITES",
    "check_compile_kwargs",
    "compiling_with",
    "mode_worth",
    "python_mode",
]

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
    """Products (D, N, C) of D weighted sums of matrices (1, S, N, M) with D matrices (D, M, C).

    The weights are (D, S); they or the matrices on the right may be one for all D. The sums
    (D, N, M) are not stored, which takes most of the time of separate operations.
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


# Python takes 1 to 4 ms a gradient: so many gradients take as long as numba's compilation.
MANY_EVALUATIONS = 10_000


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node.

    Fusion is off: a fused operation is a loop over elements, which is slow without a compiler.
    """
    return Mode(linker="py", optimizer="fast_run").excluding("fusion").register(*NUMPY_REWRITES)


def mode_worth(evaluations: float) -> Mode:
    """Choose the mode for a graph by its number of evaluations: numba for many, Python for few.

    It is always Python with ``NUMBA_DISABLE_JIT=1``, for which PyTensor's numba mode fails.
    """
    many = evaluations > MANY_EVALUATIONS and numba_compiles()
    return get_mode("NUMBA") if many else python_mode()


# PyTensor has one default mode for the whole process.
_TURN = RLock()


@contextmanager
def compiling_with(mode: Mode) -> Iterator[None]:
    """Make a mode PyTensor's default while the context is open; threads take turns."""
    flags: dict[str, Any] = {"mode": mode}
    if isinstance(mode.linker, PerformLinker):
        # Random variables ask for C, which takes several seconds for a graph that is called once.
        flags["cxx"] = ""
    with _TURN, pytensor.config.change_flags(**flags):
        yield


def check_compile_kwargs(compile_kwargs: Mapping[str, Any] | None, owner: str) -> Mode | None:
    """Return the user's mode or None; raise ValueError unless it is a mode."""
    given = {} if compile_kwargs is None else compile_kwargs
    if not isinstance(given, Mapping):
        got = given
    elif unknown := sorted(given.keys() - {"mode"}):
        got = unknown[0]
    elif (got := given.get("mode")) is None:
        return None
    else:
        with suppress(ValueError):
            if isinstance(mode := get_mode(got), Mode):
                return mode
    rule = "a dict with the key 'mode': a PyTensor Mode or its name, such as 'NUMBA' or 'JAX'"
    raise argument_error("compile_kwargs", owner, rule, repr(got))
