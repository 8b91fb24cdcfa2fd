"""Checks of variational bounds: the closed form against draws, its rise, and the log evidence."""

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from scipy import stats
from xarray import DataTree

from kernelzoo.models import CompositeKernelClassification, MultinomialProbit

from .case import Case, NotRunError, reference
from .cells import references
from .findings import ALPHA, Finding, passed_if

__all__ = ["BelowEvidence", "Bound", "BoundRises", "bound_is_looser"]

#: Relative rounding error of a bound.
_ROUNDING = 1e-7


@singledispatch
def bound_is_looser(model: Any) -> str:
    """Why the reported bound lies below E_q[log p - log q] of the declaration; empty if it equals.

    Models register why their variational algorithm bounds more than the declaration has.
    """
    return ""


@bound_is_looser.register
def _(model: MultinomialProbit) -> str:
    return "the bound has the auxiliary variables Y, which the declaration integrates out"


@bound_is_looser.register
def _(model: CompositeKernelClassification) -> str:
    return "the bound replaces the logistic likelihood by Jaakkola's lower bound"


@dataclass(frozen=True)
class Bound:
    """Reported bound against the mean of log p - log q over draws from q.

    Parameters
    ----------
    draws : int, default=4000
    last : int, default=1
        Number of last values of the trajectory whose mean is the reported bound, for noisy ones.
    drift : float, default=0
        Error of the reported bound, in nats, since q still moves during its last iterations.
    """

    draws: int = 4_000
    last: int = 1
    drift: float = 0.0

    name = "bound"
    measures = "p-value that the reported bound is the mean of log p - log q over draws"

    def __call__(self, case: Case) -> Finding:
        """Compare the bound of a fit with its draws, and with the log evidence if it is known."""
        result = case.fit(draws=self.draws)
        noisy = reported(result)[-self.last :]
        bound = float(noisy.mean())
        ratios = result["sample_stats"]["lp"] - result["sample_stats"]["lq"]
        values = ratios.to_numpy().ravel()
        if not np.isfinite(values).all():
            raise ValueError(f"{np.sum(~np.isfinite(values))} draws have no finite density.")
        mean = float(values.mean())
        errors = [values.std() / len(values) ** 0.5, _ROUNDING * max(1.0, abs(bound)), self.drift]
        errors.append(noisy.std() / len(noisy) ** 0.5)
        z = (bound - mean) / float(np.hypot.reduce(errors))
        why = bound_is_looser(case.model)
        p = float(stats.norm.sf(z) if why else 2 * stats.norm.sf(abs(z)))
        message = f"reported {bound:.4f}, draws {mean:.4f} nats"
        if why:
            message += f": it may be lower, since {why}"
        outcome = passed_if(p >= ALPHA)
        figures = {"bound": bound, "by_draws": mean}
        return Finding(self.name, self.measures, outcome, message, p, ALPHA, figures=figures)


@dataclass(frozen=True)
class BoundRises:
    """Largest fall of the bound between two iterations of any start."""

    name = "bound rises"
    measures = "largest fall of the bound in an iteration, relative to the bound"

    def __call__(self, case: Case) -> Finding:
        """Look at the trajectories of a fit."""
        table = case.fit(draws=25)["trajectory"]["elbo"].to_numpy()
        # NaNs at the end of a row stand for iterations after the start had converged.
        rows = [row[: np.flatnonzero(~np.isnan(row)).max(initial=-1) + 1] for row in table]
        steps = np.concatenate([-np.diff(row) for row in rows])
        if not len(steps):
            raise NotRunError("the posterior has a closed form, without iterations")
        scale = max(1.0, float(np.nanmax(np.abs(table))))
        fall = float(np.max(steps, initial=0.0)) / scale
        outcome = passed_if(fall <= _ROUNDING)
        message = f"{len(steps)} iterations in {len(table)} starts"
        return Finding(self.name, self.measures, outcome, message, fall, _ROUNDING, decisive=False)


@dataclass(frozen=True)
class BelowEvidence:
    """Reported bound against the log evidence of the exact posterior."""

    name = "below the evidence"
    against_reference = True
    measures = "bound minus log evidence, in nats"

    def __call__(self, case: Case) -> Finding:
        """Compare the bound with the attribute ``log_evidence`` of the reference."""
        variant = case.cell.variant
        if references(variant) != "Exact":
            raise NotRunError("the log evidence is not known")
        base = reference(case)
        evidence = float(base.attrs["log_evidence"])
        bound = float(reported(case.fit(draws=25))[-1])
        allowed = _ROUNDING * max(1.0, abs(evidence))
        outcome = passed_if(bound - evidence <= allowed)
        message = f"bound {bound:.4f}, log evidence {evidence:.4f}"
        above = bound - evidence
        return Finding(self.name, self.measures, outcome, message, above, allowed, decisive=False)


def reported(result: DataTree) -> np.ndarray:
    """Bound by iteration (iteration,) of the best start of a result."""
    trajectory = result["trajectory"].to_dataset()
    row = trajectory["elbo"].isel(start=trajectory.attrs["best_start"]).to_numpy()
    return row[np.isfinite(row)]
