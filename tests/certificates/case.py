"""One cell at work: its model, engine, seed, deadline and scratch folder; reference posteriors."""

import hashlib
import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arviz as az
import pymc as pm
import xarray as xr
from xarray import DataTree

from kernelzoo.inference import Engine, fit, identified
from kernelzoo.inference.engine import quiet_sampler
from kernelzoo.inference.engine.engine import variables_drawn
from kernelzoo.inference.engine.provenance import term_fingerprints, versions

from .cells import Cell, problem_of, references, with_reference

__all__ = ["Case", "NotRunError", "UnfinishedError", "check_mixed", "fingerprint", "reference"]

#: Arguments of `fit` for a reference, by engine.
_LONG: dict[str, dict[str, Any]] = {
    "Exact": {"draws": 4_000},
    "Gibbs": {"draws": 2_500, "tune": 500, "chains": 4},
    "NUTS": {"draws": 1_000, "tune": 1_000, "chains": 4},
}


# Errors of means by the ESS are right where R-hat is a little above the bound of `fit`.
_LARGEST_RHAT = 1.05


class NotRunError(Exception):
    """A check does not apply to the cell, for a reason that says nothing about the engine."""


class UnfinishedError(Exception):
    """The time of a check was over."""


@dataclass(frozen=True)
class Case:
    """A cell's problem, for its checks.

    Attributes
    ----------
    cell : Cell
    model : pm.Model
    engine : Engine or None
        None for the cell of a declaration.
    seed : int
    scratch : Path
        Folder for references and finished replicates.
    planned, ends : float
        Times of `time.monotonic`: until the first, a check may do more than the least that it
        needs; at the second, the cell's time is over.
    """

    cell: Cell
    model: pm.Model
    engine: Engine | None
    seed: int
    scratch: Path
    planned: float
    ends: float

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.ends - time.monotonic()

    def fit(self, engine: Engine | None = None, **options: Any) -> DataTree:
        """Fit the model within the time left, with draws of all variables.

        Raises
        ------
        UnfinishedError
            When the time was over before the fit was complete.
        """
        engine = engine or self.engine
        assert engine is not None
        with silent():
            result = _fitted(self.model, engine, self.left, {"random_seed": self.seed, **options})
        return result


def _fitted(model: pm.Model, engine: Engine, seconds: float, options: dict[str, Any]) -> DataTree:
    if seconds <= 0:
        raise UnfinishedError("its time was over")
    quiet = {"progressbar": False, "log_likelihood": False, "cores": 1}
    kept = {"var_names": variables_drawn(model)}
    try:
        limit = {} if engine.why_no_time_limit() else {"max_seconds": seconds}
        result = fit(model, engine, **{**quiet, **kept, **limit, **options})
    except ValueError as error:
        if "max_seconds" in str(error):
            raise UnfinishedError("its time was over before there was a result") from error
        raise
    if (by := result.attrs.get("ended_by")) == "interrupt":
        raise KeyboardInterrupt
    if by == "max_seconds":
        raise UnfinishedError("its time was over before the fit was complete")
    return result


@contextmanager
def silent() -> Iterator[None]:
    """Leave out warnings and PyMC's messages: a finding says what matters."""
    with warnings.catch_warnings(), quiet_sampler():
        warnings.simplefilter("ignore")
        yield


def fingerprint(*parts: Any) -> str:
    """Short fingerprint of JSON values and of the reprs of others."""
    text = json.dumps(parts, default=repr, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def reference(case: Case) -> DataTree:
    """Load or make the result of the best sampler of the cell's variant, or of its twin, made once.

    Raises
    ------
    UnfinishedError
        When the time was over.
    NotRunError
        When the chains are apart.
    """
    variant = with_reference(case.cell.variant)
    name, model = references(variant), problem_of(variant)
    options = _LONG[name]
    key = fingerprint(variant.slug, name, options, term_fingerprints(model), versions())
    path = case.scratch / f"reference-{variant.slug}-{key}.nc"
    if not path.exists():
        engine = Engine.registry[name.lower()]()
        with silent():
            result = _fitted(model, engine, case.left, {"random_seed": 1, **options})
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        result.to_netcdf(partial)
        partial.replace(path)
    with xr.open_datatree(path) as opened:
        loaded = opened.load()
    check_mixed(loaded, "the reference's")
    return loaded


def check_mixed(result: DataTree, whose: str) -> None:
    """Raise NotRunError for chains that are so apart that their errors are not to be believed."""
    if result.attrs["kind"] != "mcmc" or "independent" in result.attrs:
        return
    largest = az.rhat(identified(result)).to_array().max()
    if float(largest) > _LARGEST_RHAT:
        raise NotRunError(f"{whose} chains have not converged: R-hat is {float(largest):.3f}")
