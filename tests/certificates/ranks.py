"""Simulation-based calibration of a cell, with as many replicates as its time allows."""

import io
import json
import time
from collections.abc import Sized
from contextlib import redirect_stdout
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from xarray import DataTree

from kernelzoo import calibrate
from kernelzoo.inference.diagnostics.calibrate import POWER, Band, detectable_bias, detectable_scale

from .case import Case, NotRunError, UnfinishedError, silent
from .findings import ALPHA, Finding, Outcome, passed_if

__all__ = ["Calibration", "Least", "Miscalibration", "least_uniform", "p_value"]

#: Least number of replicates of `calibrate`.
_LEAST = 20


@dataclass(frozen=True)
class Calibration:
    """Uniformity of the ranks of true parameters among posterior draws.

    Parameters
    ----------
    replicates : int
        Largest number of replicates.
    options : dict
        Arguments of `fit`.
    share : float, default=0.8
        Share of the planned time left that is used.
    """

    replicates: int
    options: dict[str, Any] = field(default_factory=dict)
    share: float = 0.8

    name = "calibration"
    measures = "p-value that the ranks of true parameters are uniform"

    def __call__(self, case: Case) -> Finding:
        """Double the number of replicates until the planned time is over."""
        assert case.engine is not None
        if not case.model.observed_RVs:
            raise NotRunError("the declaration has no observed variable to simulate")
        self._check_time(case)
        begun = time.monotonic()
        ends = begun + self.share * (case.planned - begun)
        number, before = min(_LEAST, self.replicates), begun
        while True:
            ranks = self._ranks(case, number)
            now = time.monotonic()
            # A round of twice as many replicates makes as many new ones as all before.
            longer = (now - begun if number == _LEAST else now - before) * 1.2
            if number == self.replicates or now + longer > ends:
                return self._finding(ranks)
            number, before = min(2 * number, self.replicates), now

    def _check_time(self, case: Case) -> None:
        """Raise UnfinishedError if the fewest replicates would take twice the time left or more."""
        begun = time.monotonic()
        case.fit(chains=1, **self.options)
        needed = _LEAST * (time.monotonic() - begun)
        if needed > 2 * max(case.left, 0):
            raise UnfinishedError(
                f"{_LEAST} replicates would take {needed:.0f} s, more than its time"
            )

    def _ranks(self, case: Case, number: int) -> DataTree:
        assert case.engine is not None
        with silent(), redirect_stdout(io.StringIO()):
            return calibrate(
                case.model,
                case.engine,
                replicates=number,
                random_seed=case.seed,
                store=case.scratch / f"calibration-{case.cell.slug}",
                progressbar=False,
                **self.options,
            )

    def _finding(self, ranks: DataTree) -> Finding:
        least = least_uniform(ranks)
        replicates = ranks["prior_sbc"].sizes["draw"]
        band = Band(replicates, 1 - ALPHA / least.elements)
        draws = int(ranks.attrs["draws"])
        bias, scale = (find(band, draws, POWER) for find in (detectable_bias, detectable_scale))
        failures = json.loads(ranks.attrs["failures"])
        message = (
            f"{replicates} replicates, {least.elements} elements, the least uniform in "
            f"{least.quantity}{self._told(least)}; a bias of {bias:.2g} sd would be found with a "
            f"probability of {100 * POWER:.0f} %"
        )
        if unfinished := int(ranks.attrs["not_converged"]):
            message += f"; {unfinished} fits did not converge"
        if failures:
            message += f"; {len(failures)} fits failed, the first: {next(iter(failures.values()))}"
        figures = {"replicates": float(replicates), "bias_found": bias, "scale_found": scale}
        return Finding(
            *(self.name, self.measures, self._outcome(least.p >= ALPHA, failures), message),
            *(least.p, ALPHA),
            figures=figures | {"bias": least.bias, "spread": least.spread},
        )

    def _told(self, least: "Least") -> str:
        """Error of the least uniform element, where it is one by design."""
        return ""

    def _outcome(self, uniform: bool, failures: Sized) -> Outcome:
        return passed_if(uniform and not failures)


@dataclass(frozen=True)
class Miscalibration(Calibration):
    """How far the ranks of true parameters among draws of an approximation are from uniform."""

    def _told(self, least: "Least") -> str:
        return (
            f" (bias {least.bias:+.2f} sd, truths spread {least.spread:.2f} times as far as draws)"
        )

    def _outcome(self, uniform: bool, failures: Sized) -> Outcome:
        if failures:
            return "failed"
        return "passed" if uniform else "biased"


@dataclass(frozen=True)
class Least:
    """The element whose ranks are the least uniform.

    Attributes
    ----------
    p : float
        Bonferroni p-value over all elements.
    quantity : str
    elements : int
        Number of all elements.
    bias, spread : float
        Mean of the draws less the truth, and spread of the truths about it, on average over
        replicates, in standard deviations of the draws: 0 and 1 for a right engine. Ranks end at
        the outermost draws, so that a spread near 2 is a lower bound.
    """

    p: float
    quantity: str
    elements: int
    bias: float
    spread: float


def p_value(band: Band, values: NDArray) -> float:
    """Probability that uniform numbers are as extreme as `values` (n,) at any point of the band."""
    counts = np.searchsorted(np.sort(values), band.points, side="right")
    below = stats.binom.cdf(counts, band.n, band.points)
    above = stats.binom.sf(counts - 1, band.n, band.points)
    extreme = float(np.minimum(below, above).min()) * (1 + 1e-9)
    less_extreme = copy(band)
    less_extreme.bound_each(2 * extreme)
    return float(np.clip(1 - less_extreme.holds(band.points), 0.0, 1.0))


def least_uniform(ranks: DataTree) -> Least:
    """Find the element whose ranks are the least uniform.

    Parameters
    ----------
    ranks : DataTree
        Result of `calibrate`.
    """
    group = ranks["prior_sbc"].to_dataset()
    band = Band(group.sizes["draw"], 0.5)
    columns = [
        (str(name), column)
        for name, values in group.data_vars.items()
        for column in values.to_numpy().reshape(group.sizes["draw"], -1).T
    ]
    p = [p_value(band, column) for _, column in columns]
    worst = int(np.argmin(p))
    quantity, column = columns[worst]
    scores = stats.norm.ppf(column)
    return Least(
        p=float(np.minimum(1.0, p[worst] * len(p))),
        quantity=quantity,
        elements=len(p),
        bias=float(-scores.mean()),
        spread=float(scores.std()),
    )
