"""Replicates of a calibration: simulated data, their fits, and the ranks of the truths."""

import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import cloudpickle
import numpy as np
import pymc as pm
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from ...validation import argument_error
from ..engine.compilation import compiling_with, python_mode
from ..engine.density import compile_log_likelihood
from ..engine.engine import Engine
from ..engine.evaluation import arrays_in
from ..engine.fit import fit
from ..engine.progress import quiet_sampler
from ..engine.provenance import data_of, declared, versions
from .ranks import ranks, thinned
from .simulation import (
    FromPosterior,
    FromPrior,
    Simulator,
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
    """The fits of one calibration.

    Parameters
    ----------
    model : pm.Model
    engine : Engine
    method : {"prior", "posterior"}
    seed : int
        The seeds of a replicate depend on this and on its number only.
    options : mapping
        Arguments of `fit`.
    """

    model: pm.Model
    engine: Engine
    method: str
    seed: int
    options: Mapping[str, Any]

    @property
    def recipe(self) -> str:
        """Fingerprint of all that a replicate's ranks depend on."""
        model = self.model
        terms = [*model.free_RVs, *model.observed_RVs, *model.potentials]
        digest = hashlib.sha256()
        for array in (*arrays_in(terms), *data_of(model).values()):
            if array.dtype.kind in "biuf":
                digest.update(f"{array.shape} {array.dtype}".encode())
                digest.update(np.ascontiguousarray(array).tobytes())
        engine = [self.engine.name, self.engine.settings_on(model), dict(self.options)]
        run = [type(model).__name__, declared(model), self.method, self.seed, versions()]
        text = json.dumps([*engine, *run], default=repr, sort_keys=True)
        digest.update(text.encode())
        return digest.hexdigest()[:16]

    def run(self, numbers: Sequence[int], replicates: int, jobs: int) -> Iterator[Record]:
        """Run the replicates of these numbers, out of so many, in any order."""
        if not numbers:
            return
        from joblib import Parallel, delayed

        with threadpool_limits(1, user_api="blas"):
            simulator = self._simulator(replicates)
            shipped = cloudpickle.dumps((simulator.model, self.engine, dict(self.options)))
            parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1)
            tasks = (self._task(simulator, shipped, number) for number in numbers)
            yield from parallel(delayed(task)(*arguments) for task, *arguments in tasks)

    def _simulator(self, replicates: int) -> Simulator:
        if self.method == "prior":
            return FromPrior(self.model)
        return FromPosterior(self.model, self._truths(replicates))

    def _task(self, simulator: Simulator, shipped: bytes, number: int) -> tuple[Any, ...]:
        """Simulate a replicate here, where the simulator is compiled, and leave its fit to do."""
        sequence = np.random.SeedSequence(self.seed, spawn_key=(number,))
        first, *seeds = map(int, sequence.generate_state(3))
        try:
            return _replicate, shipped, number, seeds, *simulator.draw(number, first)
        except Exception as error:  # any error: the other replicates go on, and it is listed
            return _failure, number, f"{type(error).__name__}: {error}"

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
                "so many that chains of the model's data have two effective draws a replicate",
                f"{effective} independent draws for {replicates} replicates",
            )
        order = np.random.default_rng(self.seed).permutation(number)
        stacked = posterior.stack(sample=("chain", "draw")).transpose("sample", ...)
        return {str(name): values.to_numpy()[order] for name, values in stacked.items()}


@lru_cache(maxsize=1)
def _unpacked(shipped: bytes) -> tuple[pm.Model, Engine, dict[str, Any], Any]:
    """Model, engine, options and the compiled log likelihood, once a process."""
    model, engine, options = cloudpickle.loads(shipped)
    with compiling_with(python_mode()):
        return model, engine, options, compile_log_likelihood(model)


def _failure(number: int, message: str) -> Record:
    return {"replicate": number, "error": message}


def _replicate(
    shipped: bytes,
    number: int,
    seeds: Sequence[int],
    truth: Mapping[str, NDArray],
    data: Mapping[str, NDArray],
) -> Record:
    """Fit the data of a replicate and rank its truth."""
    model, engine, options, likelihood = _unpacked(shipped)
    fit_seed, rank_seed = seeds
    try:
        with warnings.catch_warnings(), quiet_sampler():
            # What a fit warns of would come once a replicate; the record says what matters.
            warnings.simplefilter("ignore")
            set_observations(model, data)
            result = fit(model, engine, random_seed=fit_seed, **QUIET, **options)
            if (by := result.attrs.get("ended_by")) == "interrupt":
                raise KeyboardInterrupt
            if by:
                raise RuntimeError(result.attrs["note"])
            observed = {str(rv.name): observation(model, rv) for rv in model.observed_RVs}
            rng = np.random.default_rng(rank_seed)
            found = ranks(model, result, truth, partial(likelihood, data=observed), rng)
    except Exception as error:  # any error: the other replicates go on, and it is listed
        return _failure(number, f"{type(error).__name__}: {error}")
    converged = result.attrs["converged"]
    return {"replicate": number, "converged": converged, "ranks": found}
