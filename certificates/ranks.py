"""Simulation-based calibration of a cell, with as many replicates as its time allows."""

import io
import json
import time
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xarray import DataTree

from ..inference import calibrate
from ..inference.diagnostics.calibrate import POWER
from ..inference.diagnostics.uniformity import Band, detectable_bias, detectable_scale
from .case import Case, NotRunError, silent
from .findings import ALPHA, Finding

__all__ = ["Calibration", "smallest_p"]

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
        Share of the time left that is used.
    """

    replicates: int
    options: dict[str, Any] = field(default_factory=dict)
    share: float = 0.8

    name = "calibration"
    measures = "p-value that the ranks of true parameters are uniform"

    def __call__(self, case: Case) -> Finding:
        """Double the number of replicates until the time is over."""
        assert case.engine is not None
        if not case.model.observed_RVs:
            raise NotRunError("the declaration has no observed variable to simulate")
        self._check_time(case)
        begun, ends = time.monotonic(), time.monotonic() + self.share * case.left
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
        """Raise NotRunError if the fewest replicates would take more than twice the time left."""
        begun = time.monotonic()
        case.fit(chains=1, **self.options)
        needed = _LEAST * (time.monotonic() - begun)
        if needed > 2 * max(case.left, 0):
            raise NotRunError(f"{_LEAST} replicates would take {needed:.0f} s, more than its time")

    def _ranks(self, case: Case, number: int) -> DataTree:
        assert case.engine is not None
        with silent(), redirect_stdout(io.StringIO()):
            return calibrate(
                case.model,
                case.engine,
                replicates=number,
                random_seed=case.seed,
                out=case.scratch / f"calibration-{case.cell.slug}",
                progressbar=False,
                **self.options,
            )

    def _finding(self, ranks: DataTree) -> Finding:
        p, worst, elements = smallest_p(ranks)
        replicates = ranks["prior_sbc"].sizes["draw"]
        band = Band(replicates, 1 - ALPHA / elements)
        draws = int(ranks.attrs["draws"])
        bias, scale = (find(band, draws, POWER) for find in (detectable_bias, detectable_scale))
        failures = json.loads(ranks.attrs["failures"])
        message = (
            f"{replicates} replicates, {elements} elements, the least uniform in {worst}; a bias "
            f"of {bias:.2g} sd would be found with a probability of {POWER:.0%}"
        )
        if unfinished := int(ranks.attrs["not_converged"]):
            message += f"; {unfinished} fits did not converge"
        if failures:
            message += f"; {len(failures)} fits failed, the first: {next(iter(failures.values()))}"
        figures = {"replicates": float(replicates), "bias_found": bias, "scale_found": scale}
        right = p >= ALPHA and not failures
        return Finding(
            *(self.name, self.measures, "passed" if right else "failed", message, p, ALPHA),
            figures=figures,
        )


def smallest_p(ranks: DataTree) -> tuple[float, str, int]:
    """Bonferroni p-value over all elements, the quantity of the smallest, and their number.

    Parameters
    ----------
    ranks : DataTree
        Result of `calibrate`.
    """
    group = ranks["prior_sbc"].to_dataset()
    band = Band(group.sizes["draw"], 0.5)
    found = [
        (band.p_value(column), str(name))
        for name, values in group.data_vars.items()
        for column in values.to_numpy().reshape(group.sizes["draw"], -1).T
    ]
    least, worst = min(found)
    return float(np.minimum(1.0, least * len(found))), worst, len(found)
