"""Densities of the declaration at constrained draws, for Pareto k-hat and `az.loo`."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.backends.arviz import coords_and_dims_for_inferencedata
from pymc.logprob.basic import conditional_logp
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace

from .evaluation import compile_over_draws

__all__ = ["compile_log_density", "log_density", "log_likelihood"]


def compile_log_density(model: pm.Model) -> Callable[[Mapping[str, np.ndarray]], np.ndarray]:
    """Make a function of the log joint density of the declaration at values of its free variables.

    No Jacobian enters. A density on the simplex is with respect to the first coordinates, as in the
    usual form of the Dirichlet distribution.

    Parameters
    ----------
    model : pm.Model

    Returns
    -------
    callable
        From a mapping of str to array (draw, ...), draws of every free variable, to an array
        (draw,).
    """
    values, terms = _terms(model)
    potentials = graph_replace(model.potentials, values, strict=False)
    total = pt.sum([term.sum() for term in (*terms.values(), *potentials)])
    evaluate = compile_over_draws(model, list(values.values()), [total])
    return lambda draws: evaluate(draws)[0]


def log_density(model: pm.Model, draws: Mapping[str, np.ndarray]) -> np.ndarray:
    """Log joint density of the declaration at constrained draws (see `compile_log_density`)."""
    return compile_log_density(model)(draws)


def log_likelihood(model: pm.Model, posterior: xr.Dataset) -> xr.Dataset:
    """Log likelihood of every observation: `pm.compute_log_likelihood`, over many draws at once.

    Parameters
    ----------
    model : pm.Model
    posterior : Dataset
        Draws (chain, draw, ...) of every free variable.

    Returns
    -------
    Dataset
        One variable (chain, draw, ...) for every observed variable.
    """
    values, terms = _terms(model)
    names = [str(rv.name) for rv in model.observed_RVs]
    evaluate = compile_over_draws(
        model, list(values.values()), [terms[model.rvs_to_values[rv]] for rv in model.observed_RVs]
    )
    chains, draws = posterior.sizes["chain"], posterior.sizes["draw"]
    flat = {
        str(rv.name): (x := posterior[rv.name].to_numpy()).reshape(-1, *x.shape[2:])
        for rv in model.free_RVs
    }
    coords, dims = coords_and_dims_for_inferencedata(model)
    found = {}
    for name, array in zip(names, evaluate(flat), strict=True):
        every = dims.get(name) or [f"{name}_dim_{i}" for i in range(array.ndim - 1)]
        # A matrix-valued observation has one density.
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
