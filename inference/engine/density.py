"""Densities of the declaration at constrained draws, for Pareto k-hat and `az.loo`."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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

__all__ = [
    "by_observation",
    "compile_densities",
    "compile_log_likelihood",
    "density_dataset",
    "lacks",
    "log_density",
    "log_likelihood",
    "log_prior",
    "why_no_log_likelihood",
]


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
    """Whether every observed variable has one log likelihood an observation."""
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
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    coords, dims = coords_and_dims_for_inferencedata(model)
    found = {}
    for name, array in values.items():
        every = dims.get(name) or [f"{name}_dim_{i}" for i in range(array.ndim - 1)]
        # A variable with vectors or matrices as values has one density for each.
        own = every[: array.ndim - 1]
        found[name] = (("chain", "draw", *own), array.reshape(chains, draws, *array.shape[1:]))
    used = {dim for own, _ in found.values() for dim in own} & coords.keys()
    known = {dim: coords[dim] for dim in used if coords[dim] is not None}
    return xr.Dataset(found, {"chain": posterior["chain"], "draw": posterior["draw"], **known})


def _terms(model: pm.Model) -> tuple[dict[Variable, Variable], dict[Variable, Any]]:
    """Values of the free variables, and the log density of every variable by its value."""
    values = {rv: rv.type(name=rv.name) for rv in model.free_RVs}
    observed = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    return values, conditional_logp({**values, **observed})
