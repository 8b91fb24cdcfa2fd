"""Replicates of a calibration: simulated data, their fits, and the ranks of the truths."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from xarray import DataTree

from ...validation import argument_error
from ..engine.clock import quiet_sampler
from ..engine.compilation import compiling_with, python_mode
from ..engine.density import arrays_in, compile_log_likelihood, lacks
from ..engine.engine import Engine
from ..engine.fit import fit
from ..engine.paper import identified
from ..engine.result import data_of, draws_to_tree, stamp, term_fingerprints, versions, with_group
from .simulation import OWNER, FromPosterior, FromPrior, Values, observation, set_observations

__all__ = ["DRAWS", "OWNER", "Record", "Replicates", "ranks", "thinned"]

#: Independent posterior draws among which a truth is ranked.
DRAWS = 31
LOG_LIKELIHOOD = "log_likelihood"
QUIET: dict[str, Any] = {"progressbar": False, "log_likelihood": False}

#: Ranks of one replicate, or the message of its failure, as JSON values.
type Record = Mapping[str, Any]


@dataclass(frozen=True)
class Replicates:
    """Task of one calibration: simulate the data of a replicate, fit them, and rank the truth.

    `options` are arguments of `fit`; `truths`, with method "posterior", draws of the posterior.
    """

    model: pm.Model
    engine: Engine
    method: str
    seed: int
    options: Mapping[str, Any]
    truths: Values | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Workers get the declaration, and compile it themselves.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def recipe(self) -> str:
        """Fingerprint of all that a replicate's ranks depend on."""
        from joblib import hash as hash_of

        terms = [*self.model.free_RVs, *self.model.observed_RVs, *self.model.potentials]
        arrays = [*arrays_in(terms), *data_of(self.model).values()]
        numbers = [array for array in arrays if array.dtype.kind in "biuf"]
        engine = [self.engine.name, self.engine.settings_on(self.model), dict(self.options)]
        run = [
            type(self.model).__name__,
            term_fingerprints(self.model),
            self.method,
            self.seed,
            versions(),
        ]
        return str(hash_of([numbers, *map(repr, engine), *run]))[:16]

    def prepared(self, replicates: int) -> "Replicates":
        """Draw as many truths as needed, and compile what simulates."""
        task = self
        if self.method == "posterior":
            with threadpool_limits(1, user_api="blas"):
                task = replace(self, truths=self._truths(replicates))
        # Here, so that a model that cannot be simulated is refused before any replicate.
        _ = task.simulator
        return task

    def _truths(self, replicates: int) -> Values:
        """Draws of the posterior of the model's data in random order."""
        with quiet_sampler():
            result = fit(self.model, self.engine, random_seed=self.seed, **QUIET, **self.options)
        posterior = result["posterior"].to_dataset()
        number = posterior.sizes["chain"] * posterior.sizes["draw"]
        effective = min(len(thinned(v, result.attrs, number)) for v in posterior.values())
        if effective < replicates:
            rule = "large enough for two effective draws per replicate on the model's data"
            got = f"{effective} independent draws for {replicates} replicates"
            raise argument_error("draws", OWNER, rule, got)
        order = np.random.default_rng(self.seed).permutation(number)
        stacked = posterior.stack(sample=("chain", "draw")).transpose("sample", ...)
        return {str(name): values.to_numpy()[order] for name, values in stacked.items()}

    @cached_property
    def simulator(self) -> FromPrior | FromPosterior:
        """Source of truths and data, compiled once per process."""
        if self.truths is None:
            return FromPrior(self.model)
        return FromPosterior(self.model, self.truths)

    @cached_property
    def _log_likelihood(self) -> Any:
        with compiling_with(python_mode()):
            return compile_log_likelihood(self.simulator.model)

    def __call__(self, number: int) -> Record:
        """Run the replicate of a number."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(number,))
        seed, fit_seed, rank_seed = map(int, sequence.generate_state(3))
        model = self.simulator.model
        truth, data = self.simulator.draw(number, seed)
        with warnings.catch_warnings(), quiet_sampler():
            # What a fit warns of would come once per replicate; the record says what matters.
            warnings.simplefilter("ignore")
            set_observations(model, data)
            result = fit(model, self.engine, random_seed=fit_seed, **QUIET, **self.options)
            if (by := result.attrs.get("ended_by")) == "interrupt":
                raise KeyboardInterrupt
            if by:
                raise RuntimeError(result.attrs["note"])
            observed = {str(rv.name): observation(model, rv) for rv in model.observed_RVs}
            rng = np.random.default_rng(rank_seed)
            likelihood = partial(self._log_likelihood, data=observed)
            found = ranks(model, result, truth, likelihood, rng)
        return {"converged": result.attrs["converged"], "ranks": found}


class Rank(NamedTuple):
    """Fractional ranks, in (0, 1), by the dims of a quantity, among a number of draws."""

    dims: list[str]
    values: Any
    draws: int


def ranks(
    model: pm.Model,
    result: DataTree,
    truth: Values,
    log_likelihood: Callable[[Values], NDArray],
    rng: np.random.Generator,
) -> dict[str, Rank]:
    """Fractional ranks of the truth of each identified quantity, and of the log likelihood.

    A truth is placed at random among equal draws, and its rank within its interval, so that
    fractional ranks are uniform for discrete quantities and any number of draws.
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
