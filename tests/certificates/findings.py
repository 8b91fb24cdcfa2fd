"""What a check finds, and the colour of a cell's findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ALPHA",
    "CHECKS",
    "COLOURS",
    "ERROR_RATE",
    "Colour",
    "Finding",
    "Outcome",
    "colour_of",
    "passed_if",
]

#: Probability that any random check of all cells fails although every engine is right.
ERROR_RATE = 0.01
#: There are fewer random checks than this; each may fail with the probability `ALPHA`.
CHECKS = 500
ALPHA = ERROR_RATE / CHECKS

type Outcome = Literal["passed", "biased", "failed", "unfinished", "not run"]
type Colour = Literal["green", "amber", "red", "unfinished", "not run"]

COLOURS: tuple[Colour, ...] = ("green", "amber", "red", "unfinished", "not run")


@dataclass(frozen=True)
class Finding:
    """Finding of one check of a cell.

    Attributes
    ----------
    check : str
        Name of the check.
    measures : str
        What its statistic is.
    outcome : {"passed", "biased", "failed", "unfinished", "not run"}
        "biased" is for errors that an approximation has by design, "unfinished" for checks whose
        time was over, "not run" for those that do not apply to the cell.
    message : str
        Sentence with the figures, or the reason why the check was not run.
    statistic, threshold : float, optional
        None where the check has no figure.
    decisive : bool
        Whether passing proves something of the engine by itself.
    figures : dict of str to float
        Further measurements.
    seconds : float
    """

    check: str
    measures: str
    outcome: Outcome
    message: str
    statistic: float | None = None
    threshold: float | None = None
    decisive: bool = True
    figures: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def passed_if(right: bool) -> Outcome:
    """Outcome of a check without errors by design."""
    return "passed" if right else "failed"


def colour_of(findings: Sequence[Finding]) -> Colour:
    """Colour of a cell: its worst finding counts.

    Green needs a decisive check that passed, and none whose time was over.
    """
    outcomes = {finding.outcome for finding in findings}
    if "failed" in outcomes:
        return "red"
    if "biased" in outcomes:
        return "amber"
    if "unfinished" in outcomes:
        return "unfinished"
    if any(finding.outcome == "passed" and finding.decisive for finding in findings):
        return "green"
    return "not run"
