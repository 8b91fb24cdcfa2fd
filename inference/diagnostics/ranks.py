"""Ranks of a truth among posterior draws that are independent as far as their ESS says."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from xarray import DataTree

from ..engine.density import lacks
from ..engine.paper import identified
from ..engine.result import draws_to_tree, stamp, with_group

__all__ = ["DRAWS", "LOG_LIKELIHOOD", "Rank", "ranks", "thinned"]

#: Independent posterior draws among which a truth is ranked.
DRAWS = 31
LOG_LIKELIHOOD = "log_likelihood"


type LogLikelihood = Callable[[Mapping[str, NDArray]], NDArray]


class Rank(NamedTuple):
    """Fractional ranks, in (0, 1), by the dims of a quantity, among a number of draws."""

    dims: list[str]
    values: Any
    draws: int


def ranks(
    model: pm.Model,
    result: DataTree,
    truth: Mapping[str, NDArray],
    log_likelihood: LogLikelihood,
    rng: np.random.Generator,
) -> dict[str, Rank]:
    """Fractional ranks of the truth of each identified quantity, and of the log likelihood.

    The model holds the data of the fit. `log_likelihood` maps draws (draw, ...) of the free
    variables to an array (draw,). A truth is placed at random among equal draws, and its rank
    within its interval, so that fractional ranks are uniform for discrete quantities and any number
    of draws.
    """
    posterior = result["posterior"].to_dataset()
    if not _has_chains(result.attrs):
        posterior = posterior.isel(draw=_evenly(posterior.sizes["draw"], DRAWS))
        result = with_group(result.copy(), "posterior", posterior)
    drawn = {str(name): truth[str(name)] for name in posterior.data_vars if name in truth}
    point = stamp(draws_to_tree(model, {name: v[None] for name, v in drawn.items()}), model)
    known = identified(point)
    fitted = {
        str(name): (values, known[name].values[0, 0])
        for name, values in identified(result).data_vars.items()
        if name in known
    }
    free = [str(rv.name) for rv in model.free_RVs]
    if not lacks(free, [*drawn]):
        # One call for the draws and the truth, so that rounding makes equal values no different.
        sizes = posterior.sizes["chain"], posterior.sizes["draw"]
        draws = {n: posterior[n].to_numpy().reshape(-1, *np.shape(truth[n])) for n in free}
        *at, true = log_likelihood({n: np.stack([*draws[n], truth[n]]) for n in free})
        values = xr.DataArray(np.reshape(at, sizes), dims=("chain", "draw"))
        fitted[LOG_LIKELIHOOD] = values, true
    found = {}
    for name, (values, true) in fitted.items():
        kept = thinned(values, result.attrs)
        if np.isnan(kept).any() or np.isnan(true).any():
            raise ValueError(f"{name} has draws or a true value that are NaN.")
        equal, below = (kept == true).sum(0), (kept < true).sum(0)
        place = below + rng.uniform(size=np.shape(below)) * (equal + 1)
        dims = [str(dim) for dim in values.dims if dim not in ("chain", "draw")]
        found[name] = Rank(dims, (place / (len(kept) + 1)).tolist(), len(kept))
    return found


def thinned(values: xr.DataArray, attributes: Mapping[Any, Any], most: int = DRAWS) -> NDArray:
    """Draws (draw, ...) of a quantity, evenly spaced in its chains.

    Chains keep half as many as the least ESS of the elements: neighbours are then hardly
    correlated. Draws that engines make without chains are kept as they are. At most `most` remain.
    """
    stacked = values.stack(sample=("chain", "draw")).transpose("sample", ...).to_numpy()
    kept = len(stacked)
    if _has_chains(attributes):
        sizes = az.ess(values.to_dataset(name="x"))["x"] if values.sizes["draw"] > 3 else 1.0
        kept = int(np.nan_to_num(np.nanmin(sizes), nan=1.0) / 2)
    return stacked[_evenly(len(stacked), max(1, min(kept, most)))]


def _has_chains(attributes: Mapping[Any, Any]) -> bool:
    return "independent" not in attributes and attributes.get("kind", "mcmc") == "mcmc"


def _evenly(number: int, kept: int) -> NDArray:
    """Positions of evenly spaced draws."""
    return np.linspace(0, number - 1, min(kept, number)).round().astype(int)
