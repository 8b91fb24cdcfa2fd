"""Choice of a compiler for a PyTensor graph.

numba takes 10 to 30 seconds to compile the gradient of a model, and then evaluates it some fifty
times as fast as NumPy node by node. So graphs that are evaluated a few thousand times run in
Python, and the gradients of chains are compiled by numba, PyTensor's default.

PyTensor has one default mode for the whole process. Fits that run in threads at the same time share
it: the mode of the fit begun last among the running ones counts for all. This changes no result,
only the seconds of compilation and evaluation, and only where a fit has its own mode
(``compile_kwargs``) or is so long that the graph of its recorded variables is compiled.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
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


class _Defaults:
    """PyTensor's default mode while `compiling_with` blocks are open in any thread.

    A mode that compiles nothing also turns off C for inner graphs: those of random variables ask
    for C, which takes several seconds for a graph that is called once.

    A block cannot simply restore the mode that it found: when two blocks overlap, the second one
    would restore the mode of the first after both have ended.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._config: Any = pytensor.config
        self._open: dict[object, Mode] = {}
        self._before: Any = None

    def enter(self, block: object, mode: Mode) -> None:
        """Make the mode of an opening block the default."""
        with self._lock:
            if not self._open:
                self._before = self._config.mode, self._config.cxx
            self._open[block] = mode
            self._apply()

    def leave(self, block: object) -> None:
        """Restore the mode of the last block still open, or the one before all blocks."""
        with self._lock:
            del self._open[block]
            self._apply()

    def _apply(self) -> None:
        mode, self._config.cxx = self._before
        if self._open:
            mode = next(reversed(self._open.values()))
            if isinstance(mode.linker, PerformLinker):
                self._config.cxx = ""
        self._config.mode = mode


_DEFAULTS = _Defaults()


@contextmanager
def compiling_with(mode: Mode) -> Iterator[None]:
    """Make a mode PyTensor's default while the context is open."""
    block = object()
    _DEFAULTS.enter(block, mode)
    try:
        yield
    finally:
        _DEFAULTS.leave(block)


def check_compile_kwargs(compile_kwargs: Mapping[str, Any] | None, owner: str) -> Mode | None:
    """Return the user's mode or None; raise ValueError unless it is a mode."""
    if not isinstance(compile_kwargs, Mapping | None):
        rule = "a dict with the key 'mode'"
        raise argument_error("compile_kwargs", owner, rule, repr(compile_kwargs))
    given = dict(compile_kwargs or {})
    if unknown := sorted(given.keys() - {"mode"}):
        names = ", ".join(map(repr, unknown))
        raise argument_error("compile_kwargs", owner, "a dict with the key 'mode'", names)
    if given.get("mode") is None:
        return None
    try:
        mode: Mode = get_mode(given["mode"])
    except ValueError:
        mode = None  # type: ignore[assignment]
    if not isinstance(mode, Mode):
        raise argument_error(
            "compile_kwargs",
            owner,
            "a dict with the key 'mode': a PyTensor Mode or its name, such as 'NUMBA', 'JAX', "
            "'FAST_COMPILE'",
            repr(given["mode"]),
        )
    return mode
