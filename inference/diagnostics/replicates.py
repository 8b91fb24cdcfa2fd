"""Replicates of a calibration: simulated data, their fits, and the ranks of the truths."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pymc as pm
from threadpoolctl import threadpool_limits

from ...validation import argument_error
from ..engine.clock import quiet_sampler
from ..engine.compilation import compiling_with, python_mode
from ..engine.density import arrays_in, compile_log_likelihood
from ..engine.engine import Engine
from ..engine.fit import fit
from ..engine.same_model import data_of, declared, versions
from .ranks import ranks, thinned
from .simulation import (
    FromPosterior,
    FromPrior,
    Values,
    observation,
    set_observations,
)

__all__ = ["OWNER", "Record", "Replicates"]

OWNER = "calibrate"
QUIET: dict[str, Any] = {"progressbar": False, "log_likelihood": False}

#: Ranks of one replicate, or the message of its failure, as JSON values.
type Record = Mapping[str, Any]


@dataclass(frozen=True)
class Replicates:
    """Task of one calibration: simulate the data of a replicate, fit them, and rank the truth.

    Parameters
    ----------
    model : pm.Model
    engine : Engine
    method : {"prior", "posterior"}
    seed : int
        The seeds of a replicate depend on this and on its number only.
    options : mapping
        Arguments of `fit`.
    truths : mapping of str to array (draw, ...), optional
        Draws of the posterior, with method "posterior".
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
        run = [type(self.model).__name__, declared(self.model), self.method, self.seed, versions()]
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
            raise argument_error(
                "draws",
                OWNER,
                "large enough for two effective draws per replicate on the model's data",
                f"{effective} independent draws for {replicates} replicates",
            )
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
