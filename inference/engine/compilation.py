"""Choice of a compiler for a PyTensor graph.

numba takes 10 to 30 seconds to compile the gradient of a model, and then evaluates it some fifty
times as fast as NumPy node by node. So graphs that are evaluated a few thousand times run in
Python, and the gradients of chains are compiled by numba, PyTensor's default.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import pytensor
from pytensor.compile.mode import Mode, get_mode
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.link.basic import PerformLinker
from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Softplus
from pytensor.tensor.elemwise import Elemwise
from scipy.special import log_expit

from ...numerics.compiled import numba_compiles
from ...validation import argument_error

# Position among PyTensor's rewrites: those that look for these operations have been applied.
AFTER_SPECIALIZATION = 4


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


NUMPY_REWRITE = out2in(_softplus_by_scipy, name=_softplus_by_scipy.__name__), AFTER_SPECIALIZATION

# Python takes 1 to 4 ms per gradient: this many gradients take as long as numba's compilation.
MANY_EVALUATIONS = 10_000


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node.

    Fusion is off: a fused operation is a loop over elements, which is slow without a compiler.
    """
    return Mode(linker="py", optimizer="fast_run").excluding("fusion").register(NUMPY_REWRITE)


def mode_worth(evaluations: float) -> Mode:
    """Choose the mode for a graph by its number of evaluations: numba for many, Python for few.

    It is always Python with ``NUMBA_DISABLE_JIT=1``, for which PyTensor's numba mode fails.
    """
    many = evaluations > MANY_EVALUATIONS and numba_compiles()
    return get_mode("NUMBA") if many else python_mode()


# PyTensor's default mode and C compiler before the first open block, and those of each open block.
_OPEN: list[tuple[Any, str]] = []
_LOCK = Lock()


@contextmanager
def compiling_with(mode: Mode) -> Iterator[None]:
    """Make a mode PyTensor's default while the context is open.

    Blocks of several threads may overlap: the last one that is open counts.
    """
    config: Any = pytensor.config
    with _LOCK:
        if not _OPEN:
            _OPEN.append((config.mode, config.cxx))
        # Random variables ask for C, which takes several seconds for a graph that is called once.
        block = mode, "" if isinstance(mode.linker, PerformLinker) else _OPEN[0][1]
        _OPEN.append(block)
        config.mode, config.cxx = block
    try:
        yield
    finally:
        with _LOCK:
            del _OPEN[next(i for i, each in enumerate(_OPEN) if each is block)]
            config.mode, config.cxx = _OPEN[-1]
            if len(_OPEN) == 1:
                _OPEN.clear()


def check_compile_kwargs(compile_kwargs: Mapping[str, Any] | None, owner: str) -> Mode | None:
    """Return the user's mode or None; raise ValueError unless it is a mode."""
    got: Any = {} if compile_kwargs is None else compile_kwargs
    if isinstance(got, Mapping):
        unknown = sorted(got.keys() - {"mode"})
        got = unknown[0] if unknown else got.get("mode")
        if got is None:
            return None
        with suppress(ValueError):
            if not unknown and isinstance(mode := get_mode(got), Mode):
                return mode
    rule = "a dict with the key 'mode': a PyTensor Mode or its name, such as 'NUMBA' or 'JAX'"
    raise argument_error("compile_kwargs", owner, rule, repr(got))
