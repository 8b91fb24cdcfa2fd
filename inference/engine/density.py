"""Log densities of the declaration at many draws: for Pareto k-hat, `az.loo` and calibration."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.logprob.basic import conditional_logp
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from .engine import Kind
from .evaluation import compile_over_draws

type Draws = Mapping[str, np.ndarray]
type _Terms = tuple[list[Variable], dict[Variable, Any]]


def compile_densities(
    model: pm.Model,
) -> Callable[[Draws], tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Make a function of draws (draw, ...) of every free variable.

    It gives the log joint density (draw,), and the log likelihoods (draw, ...) of the observed
    variables. No Jacobian enters. A density on the simplex is with respect to the first
    coordinates, as in the usual form of the Dirichlet distribution.
    """
    values, terms = _terms(model)
    total = pt.sum([term.sum() for term in terms.values()])
    observed = {str(rv.name): terms[rv] for rv in model.observed_RVs}
    evaluate = compile_over_draws(model, values, [total, *observed.values()])

    def densities(draws: Draws) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        joint, *observations = evaluate(draws)
        return joint, dict(zip(observed, observations, strict=True))

    return densities


def log_density(model: pm.Model, draws: Draws) -> np.ndarray:
    """Log joint density (draw,) of the declaration at constrained draws."""
    joint, _ = compile_densities(model)(draws)
    return joint


def compile_log_likelihood(model: pm.Model) -> Callable[[Draws, Draws], np.ndarray]:
    """Make a function from draws and data to the log likelihood (draw,) of all observations."""
    values = {rv: rv.type(name=rv.name) for rv in (*model.free_RVs, *model.observed_RVs)}
    terms = conditional_logp(values)
    total = pt.sum([terms[values[rv]].sum() for rv in model.observed_RVs])
    evaluate = compile_over_draws(model, list(values.values()), [total])

    def likelihood(draws: Draws, data: Draws) -> np.ndarray:
        number = len(next(iter(draws.values())))
        repeated = {name: np.broadcast_to(x, (number, *np.shape(x))) for name, x in data.items()}
        (found,) = evaluate({**draws, **repeated})
        return found

    return likelihood


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
    asked = {str(rv.name): terms[rv] for rv in variables}
    evaluate = compile_over_draws(model, values, list(asked.values()))
    flat = {
        str(rv.name): (x := posterior[rv.name].to_numpy()).reshape(-1, *x.shape[2:])
        for rv in model.free_RVs
    }
    found = dict(zip(asked, evaluate(flat), strict=True))
    return density_dataset(model, found, posterior)


def density_dataset(model: pm.Model, values: Draws, posterior: xr.Dataset) -> xr.Dataset:
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
    """Values of the free variables, and the log density of every variable and potential."""
    variables = [*model.free_RVs, *model.observed_RVs, *model.potentials]
    known, terms = _TERMS.get(model, ([], ([], {})))
    if known != variables:
        free = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
        values = {**free, **{rv: model.rvs_to_values[rv] for rv in model.observed_RVs}}
        variable_of = {value: rv for rv, value in values.items()}
        densities = {variable_of[value]: term for value, term in conditional_logp(values).items()}
        potentials = graph_replace(model.potentials, values, strict=False)
        densities |= zip(model.potentials, potentials, strict=True)
        terms = [*free.values()], densities
        _TERMS[model] = variables, terms
    return terms
