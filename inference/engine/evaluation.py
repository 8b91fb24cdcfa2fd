"""How graphs are compiled, and functions of a model's variables at one point or at many draws.

numba takes 15 to 40 seconds to compile the gradient of a model, and then evaluates it some fifty
times as fast as NumPy node by node. So graphs that are evaluated a few thousand times run in
Python, and the gradients of chains are compiled by numba, PyTensor's default. Functions of many
draws run in Python, too: each operation takes a block of draws at once, so that Python's overhead
is small. Only models that are not unamended declarations are evaluated draw by draw.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from threading import local
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import compile as compile_graph
from pytensor.compile.executor import Function
from pytensor.compile.mode import Mode, get_mode
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import clone_replace, graph_replace, vectorize_graph
from pytensor.graph.rewriting.basic import node_rewriter, out2in
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import UnaryScalarOp, upgrade_to_float
from pytensor.scalar.math import Softplus
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor
from scipy.special import log_expit

from ...models.declaration import Declaration
from ...models.initial_point import NO_INNER_GRAPHS
from ...numerics.compiled import numba_compiles
from .shared_settings import settings_kept


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


# At position 4 among PyTensor's rewrites, those that look for softplus have been applied.
NUMPY_REWRITE = out2in(_softplus_by_scipy, name=_softplus_by_scipy.__name__), 4

# Python takes 1 to 4 ms per gradient: this many gradients take as long as numba's compilation.
MANY_EVALUATIONS = 10_000


def python_mode() -> Mode:
    """Make the mode that compiles nothing: NumPy evaluates the graph node by node."""
    # Fusion is off: a fused operation is a loop over elements, which is slow without a compiler.
    mode = Mode(linker="py", optimizer="fast_run").excluding("fusion")
    return mode.register(NO_INNER_GRAPHS, NUMPY_REWRITE)


def mode_worth(evaluations: float) -> Mode:
    """Choose the mode for a graph by its number of evaluations: numba for many, Python for few."""
    # PyTensor's numba mode fails with ``NUMBA_DISABLE_JIT=1``.
    many = evaluations > MANY_EVALUATIONS and numba_compiles()
    return get_mode("NUMBA") if many else python_mode()


def compiled_by(mode: Mode, model: pm.Model) -> pm.Model:
    """Return the model for PyMC, which compiles in this mode where it names none."""
    view = object.__new__(type(model))
    vars(view).update(vars(model), compile_fn=partial(_compile, model, mode))
    return view


def _compile(model: pm.Model, default: Mode, *args: Any, mode: Any = None, **options: Any) -> Any:
    return model.compile_fn(*args, mode=default if mode is None else mode, **options)


# Largest output of an operation for a block of draws, in bytes: estimated by the largest input, or
# by the graph where that leaves blocks of less than a few draws.
BLOCK_BYTES = 1 << 24
FEW_DRAWS = 4
# Number of compiled functions that are kept.
MOST_FUNCTIONS = 16
# Operations that select the entries where a mask is true.
PICKING = AdvancedSubtensor, AdvancedIncSubtensor


@settings_kept()
def compile_at_point(
    model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., list[NDArray]]:
    """Make a function of `inputs`; terms that depend on data alone are computed once, here."""
    # Their values are arguments, not constants of the compiled code, whose memory is never freed.
    rest, stand_ins, arrays = _apart_from_data(model, outputs)
    function = compile_graph(
        [*inputs, *stand_ins], rest, on_unused_input="ignore", mode=python_mode(), trust_input=True
    )
    return lambda *values: function(*values, *arrays)


def compile_over_draws(
    model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[[Mapping[str, NDArray]], list[NDArray]]:
    """Make a function of draws (draw, ...) of the inputs, by name, to draws of each output."""
    if not _takes_stacks(model, inputs, outputs):
        each = compile_at_point(model, inputs, outputs)

        def one_by_one(values: Mapping[str, NDArray]) -> list[NDArray]:
            points = zip(*_arrays(inputs, values), strict=True)
            return [np.stack(column) for column in zip(*(each(*p) for p in points), strict=True)]

        return one_by_one

    rest, stand_ins, arrays = _apart_from_data(model, outputs)
    function = _function_over_draws(inputs, stand_ins, rest)
    of_data = [*arrays, *arrays_in(rest)]

    def of_draws(values: Mapping[str, NDArray]) -> list[NDArray]:
        given = _arrays(inputs, values)
        n_draws = len(given[0])
        one = [np.zeros(x.shape[1:], x.dtype) for x in given]
        size = max(1, BLOCK_BYTES // max(8, *(x.nbytes for x in (*one, *of_data))))
        if size < min(FEW_DRAWS, n_draws):
            largest = _largest_output([*inputs, *stand_ins], [*one, *arrays], rest)
            size = max(1, BLOCK_BYTES // largest)
        blocks = []
        for start in range(0, max(n_draws, 1), size):
            block = [array[start : start + size] for array in given]
            found = function(*block, *arrays)
            # Outputs without the axis of draws do not depend on them.
            blocks.append(
                [
                    x if x.ndim > v.type.ndim else np.broadcast_to(x, (len(block[0]), *x.shape))
                    for x, v in zip(map(np.asarray, found), rest, strict=True)
                ]
            )
        return [np.concatenate(parts) for parts in zip(*blocks, strict=True)]

    return of_draws


def _largest_output(inputs: Sequence[Variable], values: Sequence[NDArray], outputs: Any) -> int:
    """Bytes of the largest output of a graph's operations at values of its inputs."""
    # Integers are lengths, on which shapes depend.
    known = [
        pt.constant(x) if x.dtype.kind == "i" else v.type.clone(shape=x.shape)()
        for v, x in zip(inputs, values, strict=True)
    ]
    shaped = clone_replace(outputs, dict(zip(inputs, known, strict=True)), rebuild_strict=False)
    shapes = [getattr(v.type, "shape", ()) for node in toposort(shaped) for v in node.outputs]
    return max(BLOCK_BYTES if None in shape else 8 * prod(shape) for shape in shapes)


def compile_deterministics(
    model: pm.Model, names: Sequence[str]
) -> Callable[[Mapping[str, NDArray]], dict[str, NDArray]]:
    """Make a function from draws (draw, ...) of the free variables to draws of deterministics."""
    if not names:
        return lambda draws: {}
    inputs = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    outputs = graph_replace([model[name] for name in names], inputs | observed, strict=False)
    evaluate = compile_over_draws(model, list(inputs.values()), outputs)
    return lambda draws: dict(zip(names, evaluate(draws), strict=True))


# Functions over draws that each thread compiled last, which are not safe to call at the same time.
_COMPILED = local()


@settings_kept()
def _function_over_draws(
    inputs: Sequence[Variable], fixed: Sequence[Variable], outputs: list[Any]
) -> Function:
    """Make the function of draws of `inputs`, followed by the values of `fixed`."""
    known = vars(_COMPILED).setdefault("functions", deque(maxlen=MOST_FUNCTIONS))
    # Variables that two calls share would count as equal wherever they stand.
    own: list[Any] = [v.type(name=v.name) for v in inputs]
    outputs = [*graph_replace(outputs, dict(zip(inputs, own, strict=True)), strict=False)]
    arguments: list[Any] = [*own, *fixed]
    function: Function
    # Models of the same structure, such as those of cross-validation, have equal graphs apart from
    # their data. Comparing two graphs takes a hundredth of the time of compiling one.
    for others, theirs, function in known:
        same = len(others) == len(arguments) and len(theirs) == len(outputs)
        if same and equal_computations(outputs, theirs, arguments, others):
            return function
    draws = [pt.tensor(v.name, dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in own]
    stacked = vectorize_graph(outputs, replace=dict(zip(own, draws, strict=True)))
    function = compile_graph(
        [*draws, *fixed], stacked, on_unused_input="ignore", mode=python_mode(), trust_input=True
    )
    known.appendleft((arguments, outputs, function))
    return function


def _takes_stacks(model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether the graph is known to be correct on a stack of draws."""
    # PyTensor gives wrong values, and no error, where an index or a shape depends on the values.
    # Tests exclude this for declarations, but not for additions and models of users.
    if not isinstance(model, Declaration) or model.amendments():
        return False
    drawn = set(inputs)
    for node in toposort(outputs):
        if not drawn.isdisjoint(node.inputs):
            drawn.update(node.outputs)
            masks = [v for v in node.inputs if v in drawn and v.type.dtype == "bool"]
            if isinstance(node.op, Nonzero) or (masks and isinstance(node.op, PICKING)):
                return False
    return True


def _arrays(inputs: Sequence[Variable], values: Mapping[str, NDArray]) -> list[NDArray]:
    return [np.ascontiguousarray(values[str(v.name)], dtype=v.type.dtype) for v in inputs]


def _apart_from_data(
    model: pm.Model, outputs: Sequence[Variable]
) -> tuple[list[Variable], list[Variable], list[NDArray]]:
    """Replace terms that depend on data alone: the new outputs, the stand-ins and their values."""
    known = _of_data_alone(model, outputs)
    stand_ins = [variable.type() for variable in known]
    rest = graph_replace(list(outputs), dict(zip(known, stand_ins, strict=True)), strict=False)
    derived = [variable for variable in known if not isinstance(variable, SharedVariable)]
    found = iter(compile_graph([], derived, mode=python_mode())() if derived else [])
    arrays = [
        v.get_value(borrow=True) if isinstance(v, SharedVariable) else next(found) for v in known
    ]
    return rest, stand_ins, arrays


def _of_data_alone(model: pm.Model, outputs: Sequence[Variable]) -> list[Variable]:
    """Variables, as late in the graph as possible, that depend on the model's data alone."""
    lengths = [v for v in model.dim_lengths.values() if isinstance(v, SharedVariable)]
    fixed = {*model.data_vars, *lengths}
    frontier: dict[Variable, None] = {}
    for node in toposort(outputs):
        needed = [v for v in node.inputs if not isinstance(v, Constant)]
        if needed and fixed.issuperset(needed):
            fixed.update(node.outputs)
        else:
            frontier |= dict.fromkeys(v for v in needed if v in fixed)
    return [*(frontier | dict.fromkeys(v for v in outputs if v in fixed))]


def arrays_in(outputs: Iterable[Variable]) -> list[NDArray]:
    """Arrays that a graph contains."""
    leaves = [v for v in ancestors(outputs) if isinstance(v, Constant | SharedVariable)]
    values = (v.data if isinstance(v, Constant) else v.get_value(borrow=True) for v in leaves)
    return list(map(np.asarray, values))
