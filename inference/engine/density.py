"""Densities of the declaration, and other functions of its variables, over many draws at once.

A compiler takes longer than a few thousand evaluations. Each operation takes a block of draws at
once, so that Python's overhead is small; only models that are not unamended declarations are
evaluated draw by draw. Pareto k-hat, `az.loo` and moments need these functions.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import local
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.logprob.basic import conditional_logp
from pymc.pytensorf import compile as compile_graph
from pytensor.compile.executor import Function
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, Variable, equal_computations
from pytensor.graph.replace import graph_replace, vectorize_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.basic import Nonzero
from pytensor.tensor.subtensor import AdvancedIncSubtensor, AdvancedSubtensor

from ...models.declaration import Declaration
from .compilation import python_mode
from .engine import Kind

# Expected size of an operation's output for a block of draws, in bytes.
BLOCK = 1 << 26
# Number of compiled functions that are kept.
MOST = 16
# Operations that select the entries where a mask is true.
PICKING = AdvancedSubtensor, AdvancedIncSubtensor


def compile_at_point(
    model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[..., list[NDArray]]:
    """Make a function of `inputs`; terms that depend on data alone are computed once, here.

    Their values are arguments, not constants of the compiled code, whose memory is never freed.
    """
    rest, stand_ins, arrays = _apart_from_data(model, outputs)
    function = compile_graph(
        [*inputs, *stand_ins], rest, on_unused_input="ignore", mode=python_mode()
    )
    function.trust_input = True
    return lambda *values: function(*values, *arrays)


def compile_over_draws(
    model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]
) -> Callable[[Mapping[str, NDArray]], list[NDArray]]:
    """Make a function of draws (draw, ...) of the inputs, by name, to draws of each output.

    The inputs have the names of the model's variables; outputs depend on them and on its data.
    """
    if not _takes_stacks(model, inputs, outputs):
        each = compile_at_point(model, inputs, outputs)

        def one_by_one(values: Mapping[str, NDArray]) -> list[NDArray]:
            points = zip(*_arrays(inputs, values), strict=True)
            return [np.stack(column) for column in zip(*(each(*p) for p in points), strict=True)]

        return one_by_one

    rest, stand_ins, arrays = _apart_from_data(model, outputs)
    function = _FUNCTIONS.over_draws(inputs, stand_ins, rest)
    of_data = max((array.nbytes for array in (*arrays, *arrays_in(rest))), default=0)

    def of_draws(values: Mapping[str, NDArray]) -> list[NDArray]:
        given = _arrays(inputs, values)
        n_draws = len(given[0])
        largest = max(of_data, *(array.nbytes // max(n_draws, 1) for array in given), 1)
        size = max(1, BLOCK // largest)
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


def compile_deterministics(
    model: pm.Model, names: Sequence[str]
) -> Callable[[Mapping[str, NDArray]], dict[str, NDArray]]:
    """Make a function from draws (draw, ...) of the free variables to draws of deterministics."""
    if not names:
        return lambda draws: {}
    inputs = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    replacements = {**inputs, **observed}
    outputs = graph_replace([model[name] for name in names], replacements, strict=False)
    evaluate = compile_over_draws(model, list(inputs.values()), outputs)
    return lambda draws: dict(zip(names, evaluate(draws), strict=True))


class _Functions(local):
    """Functions over draws that this thread compiled last.

    Models of the same structure, such as those of cross-validation, have equal graphs apart from
    their data. Comparing two graphs takes a hundredth of the time of compiling one. Threads do not
    share functions, whose calls are not safe at the same time.
    """

    def __init__(self) -> None:
        self._known: deque[tuple[list[Any], list[Any], Function]] = deque(maxlen=MOST)

    def over_draws(
        self, inputs: Sequence[Variable], fixed: Sequence[Variable], outputs: list[Any]
    ) -> Function:
        """Return the function of draws of `inputs`, followed by the values of `fixed`."""
        # Variables that two calls share would count as equal wherever they stand.
        own: list[Any] = [v.type(name=v.name) for v in inputs]
        replaced = graph_replace(outputs, dict(zip(inputs, own, strict=True)), strict=False)
        outputs = [*replaced]
        arguments: list[Any] = [*own, *fixed]
        for others, theirs, function in self._known:
            same = len(others) == len(arguments) and len(theirs) == len(outputs)
            if same and equal_computations(outputs, theirs, arguments, others):
                return function
        draws = [pt.tensor(v.name, dtype=v.type.dtype, shape=(None, *v.type.shape)) for v in own]
        stacked = vectorize_graph(outputs, replace=dict(zip(own, draws, strict=True)))
        function = compile_graph(
            [*draws, *fixed], stacked, on_unused_input="ignore", mode=python_mode()
        )
        function.trust_input = True
        self._known.appendleft((arguments, outputs, function))
        return function


_FUNCTIONS = _Functions()


def _takes_stacks(model: pm.Model, inputs: Sequence[Variable], outputs: Sequence[Variable]) -> bool:
    """Whether the graph is known to be correct on a stack of draws.

    PyTensor gives wrong values, and no error, where an index or a shape depends on the values.
    Tests exclude this for declarations, but not for additions and models of users.
    """
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
    found = []
    for variable in ancestors(outputs):
        if isinstance(variable, Constant):
            found.append(np.asarray(variable.data))
        elif isinstance(variable, SharedVariable):
            found.append(np.asarray(variable.get_value(borrow=True)))
    return found


type _Terms = tuple[dict[Variable, Variable], dict[Variable, Any]]


class Densities(NamedTuple):
    """Log joint density (draw,), and log likelihoods (draw, ...) of the observed variables."""

    joint: np.ndarray
    observations: dict[str, np.ndarray]


def compile_densities(model: pm.Model) -> Callable[[Mapping[str, np.ndarray]], Densities]:
    """Make a function of `Densities` at draws (draw, ...) of every free variable.

    No Jacobian enters. A density on the simplex is with respect to the first coordinates, as in the
    usual form of the Dirichlet distribution.
    """
    values, terms = _terms(model)
    known = {**values, **{rv: model.rvs_to_values[rv] for rv in model.observed_RVs}}
    potentials = graph_replace(model.potentials, known, strict=False)
    total = pt.sum([term.sum() for term in (*terms.values(), *potentials)])
    observed = {str(rv.name): terms[model.rvs_to_values[rv]] for rv in model.observed_RVs}
    evaluate = compile_over_draws(model, list(values.values()), [total, *observed.values()])

    def densities(draws: Mapping[str, np.ndarray]) -> Densities:
        joint, *observations = evaluate(draws)
        return Densities(joint, dict(zip(observed, observations, strict=True)))

    return densities


def compile_log_likelihood(
    model: pm.Model,
) -> Callable[[Mapping[str, np.ndarray], Mapping[str, np.ndarray]], np.ndarray]:
    """Make a function from draws and data to the log likelihood (draw,) of all observations."""
    values = {rv: rv.type(name=rv.name) for rv in (*model.free_RVs, *model.observed_RVs)}
    terms = conditional_logp(values)
    total = pt.sum([terms[values[rv]].sum() for rv in model.observed_RVs])
    evaluate = compile_over_draws(model, list(values.values()), [total])

    def likelihood(draws: Mapping[str, np.ndarray], data: Mapping[str, np.ndarray]) -> np.ndarray:
        number = len(next(iter(draws.values())))
        repeated = {name: np.broadcast_to(x, (number, *np.shape(x))) for name, x in data.items()}
        (found,) = evaluate({**draws, **repeated})
        return found

    return likelihood


def log_density(model: pm.Model, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log joint density (draw,) of the declaration at constrained draws (see `Densities`)."""
    return compile_densities(model)(draws).joint


def log_likelihood(model: pm.Model, posterior: xr.Dataset) -> xr.Dataset:
    """Log likelihood of every observation: `pm.compute_log_likelihood`, over many draws at once."""
    return _densities_of(model, posterior, model.observed_RVs)


def log_prior(model: pm.Model, posterior: xr.Dataset) -> xr.Dataset:
    """Log density of every free variable given its parents: `pm.compute_log_prior`."""
    return _densities_of(model, posterior, model.free_RVs)


def by_observation(model: pm.Model) -> bool:
    """Whether every observed variable has one log likelihood per observation."""
    supports = [(rv, rv.owner.op.ndim_supp) for rv in model.observed_RVs]
    return bool(supports) and all(n == 0 or rv.ndim > n for rv, n in supports)


def why_no_log_likelihood(model: pm.Model, kind: Kind | None, kept: Collection[str]) -> str | None:
    """Why draws of the variables kept give no log likelihood of each observation, or None."""
    if kind == "point":
        return "az.loo needs draws from the posterior, not a point"
    if not model.observed_RVs:
        return "the model has no observed variable"
    if not by_observation(model):
        return "observations are dependent given the variables, so that az.loo has no meaning"
    return lacks((str(rv.name) for rv in model.free_RVs), kept)


def lacks(names: Iterable[str], kept: Collection[str]) -> str | None:
    """Say which variables have no draws; None if all have."""
    missing = sorted({*names} - {*kept})
    if not missing:
        return None
    return f"it needs draws of {', '.join(missing)}, which fit(..., var_names=[...]) keeps"


def _densities_of(
    model: pm.Model, posterior: xr.Dataset, variables: Sequence[Variable]
) -> xr.Dataset:
    """Log densities (chain, draw, ...) of variables, given their parents, at draws."""
    values, terms = _terms(model)
    known = {**values, **{rv: model.rvs_to_values[rv] for rv in model.observed_RVs}}
    asked = {str(rv.name): terms[known[rv]] for rv in variables}
    evaluate = compile_over_draws(model, list(values.values()), list(asked.values()))
    flat = {
        str(rv.name): (x := posterior[rv.name].to_numpy()).reshape(-1, *x.shape[2:])
        for rv in model.free_RVs
    }
    found = dict(zip(asked, evaluate(flat), strict=True))
    return density_dataset(model, found, posterior)


def density_dataset(
    model: pm.Model, values: Mapping[str, np.ndarray], posterior: xr.Dataset
) -> xr.Dataset:
    """Dataset of log densities (chain * draw, ...), with the posterior's coordinates."""
    shape = posterior.sizes["chain"], posterior.sizes["draw"]
    coords, dims = coords_and_dims_for_inferencedata(model)
    labels = {name: names for name, names in coords.items() if names is not None}
    return az.dict_to_dataset(
        {name: array.reshape(*shape, *array.shape[1:]) for name, array in values.items()},
        coords={**labels, "chain": posterior["chain"], "draw": posterior["draw"]},
        dims=dims,
        # A variable with vectors or matrices as values has one density for each.
        skip_event_dims=True,
    ).drop_attrs()


#: Variables and results of `_terms`, which takes longer than an evaluation.
_TERMS: WeakKeyDictionary[pm.Model, tuple[list[Variable], _Terms]] = WeakKeyDictionary()


def _terms(model: pm.Model) -> _Terms:
    """Values of the free variables, and the log density of every variable by its value."""
    variables = [*model.free_RVs, *model.observed_RVs]
    known, terms = _TERMS.get(model, ([], ({}, {})))
    if known != variables:
        values = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
        observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
        terms = values, conditional_logp({**values, **observed})
        _TERMS[model] = variables, terms
    return terms
