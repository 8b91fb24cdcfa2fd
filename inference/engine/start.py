"""Chains that begin at another engine's result, and its curvature as the mass matrix of NUTS."""

from math import inf
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.model.core import ValueGradFunction
from pytensor.tensor import TensorVariable
from xarray import DataArray, Dataset, DataTree

from ...validation import argument_error
from .compilation import python_mode
from .engine import Run
from .mode import curvature

__all__ = ["curvature_at", "initial_values", "mean_and_spread"]


def initial_values(
    start: DataTree, model: pm.Model, chains: int, rng: np.random.Generator
) -> list[dict[str, NDArray]]:
    """Values of a random draw of a result for each chain, each draw once where there are enough."""
    drawn = _usable(start, model)
    n_usable = len(next(iter(drawn.values())).values)
    chosen = rng.choice(n_usable, size=chains, replace=n_usable < chains)
    return [{name: draws.values[i] for name, draws in drawn.items()} for i in chosen]


def mean_and_spread(start: DataTree, model: pm.Model) -> tuple[NDArray, NDArray]:
    """Mean and standard deviation (D,) of a result's draws, in unconstrained coordinates.

    Variables without draws have their initial value. Deviations of 0 are replaced by 1.
    """
    drawn, point = _usable(start, model), model.initial_point()
    means, deviations = [], []
    for value in model.value_vars:
        draws = drawn.get(str(model.values_to_rvs[value].name))
        moved = point[value.name][None] if draws is None else draws.unconstrained
        means.append(moved.mean(axis=0).ravel())
        deviations.append(moved.std(axis=0).ravel())
    spread = np.concatenate(deviations)
    return np.concatenate(means), np.where(spread > 0, spread, 1.0)


class _Draws(NamedTuple):
    """Draws (draw, ...) of a variable, and the same in unconstrained coordinates."""

    values: NDArray
    unconstrained: NDArray


def _usable(start: DataTree, model: pm.Model) -> dict[str, _Draws]:
    """Draws of the free variables at which all are finite and inside their supports."""
    if not isinstance(start, DataTree):
        raise TypeError(f"The 'start' argument of fit must be a result of fit. Got {type(start)}.")
    own = type(model).__name__
    if (theirs := start.attrs.get("model", own)) != own:
        raise argument_error("start", "fit", f"a result of a {own}", f"one of a {theirs}")
    posterior = start["posterior"].to_dataset() if "posterior" in start.children else Dataset()
    drawn = [rv for rv in model.free_RVs if rv.name in posterior]
    if not drawn:
        names = ", ".join(str(rv.name) for rv in model.free_RVs)
        raise argument_error("start", "fit", f"a result with draws of {names}", "none of them")
    found, usable = {}, np.array(True)
    for rv in drawn:
        values = _aligned(posterior[rv.name], model).to_numpy()
        values = values.reshape(-1, *values.shape[2:]).astype(rv.dtype)
        moved = _unconstrained(rv, model.rvs_to_transforms[rv], values)
        inside = np.isfinite(moved).reshape(len(values), -1).all(axis=1)
        if not inside.any():
            rule = f"a result with finite draws inside the support of {rv.name}"
            raise argument_error("start", "fit", rule, "no such draw")
        found[str(rv.name)], usable = _Draws(values, moved), usable & inside
    if not usable.any():
        raise argument_error("start", "fit", "a result with finite draws", "no such draw")
    return {name: _Draws(*(x[usable] for x in draws)) for name, draws in found.items()}


def _unconstrained(rv: TensorVariable, transform: Any, draws: NDArray) -> NDArray:
    """Unconstrained values of draws (draw, ...); not finite outside the support."""
    if transform is None:
        return draws
    with np.errstate(divide="ignore", invalid="ignore"):
        return transform.forward(draws, *rv.owner.inputs).eval(mode=python_mode())


def _aligned(draws: DataArray, model: pm.Model) -> DataArray:
    """Draws (chain, draw, ...) of a variable, in the order of the model's dims and coordinates."""
    if missing := {"chain", "draw"}.difference(draws.dims):
        got = f"{draws.name} without {' and '.join(sorted(missing))}"
        raise argument_error("start", "fit", "a result with the dims chain and draw", got)
    dims = tuple(model.named_vars_to_dims.get(str(draws.name), ()))
    known = set(dims) == set(draws.dims) - {"chain", "draw"}
    order: tuple[Any, ...] = dims if known else (...,)
    draws = draws.transpose("chain", "draw", *order)
    for dim in dims if known else ():
        labels = model.coords.get(dim)
        theirs = draws.indexes.get(dim)
        if labels is None or theirs is None or list(theirs) == list(labels):
            continue
        rule = f"a result on the model's labels of {dim}"
        if absent := [label for label in labels if label not in theirs]:
            got = f"no {absent[0]!r} in {draws.name}"
            raise argument_error("start", "fit", rule, got)
        if not theirs.is_unique:
            repeated = theirs[theirs.duplicated()][0]
            raise argument_error("start", "fit", rule, f"{repeated!r} more than once")
        draws = draws.sel({dim: list(labels)})
    shape = tuple(map(int, model.eval_rv_shapes()[str(draws.name)]))
    if draws.shape[2:] != shape:
        rule = f"a result with {draws.name} of shape {shape}"
        raise argument_error("start", "fit", rule, f"{draws.name} of shape {draws.shape[2:]}")
    return draws


# Least curvature, in inverse squares of the result's standard deviations: variances are at most
# a million times the result's, which may be far too narrow (mean-field VB).
LEAST = 1e-6


def curvature_at(
    start: DataTree, model: pm.Model, run: Run
) -> tuple[NDArray, NDArray, ValueGradFunction]:
    """Minus the Hessian of the log density, made positive definite; its inverse; the density.

    The Hessian is that at the mean of the result's draws, in unconstrained coordinates. Directions
    of negative curvature have its absolute value. 2 D gradients and O(D^3).
    """
    x, spread = mean_and_spread(start, model)
    density = model.logp_dlogp_function(ravel_inputs=True, **run.compile_kwargs(inf))
    density.trust_input = True
    hessian = curvature(lambda x: density([x], extra_vars={})[1], x, run)
    size, directions = np.linalg.eigh(-hessian * np.outer(spread, spread))
    size = np.maximum(np.abs(size), LEAST)
    precision = (directions * size) @ directions.T / np.outer(spread, spread)
    covariance = (directions / size) @ directions.T * np.outer(spread, spread)
    return precision, covariance, density
