"""What a check finds, and the colour of a cell's findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "ALPHA",
    "CHECKS",
    "COLOURS",
    "ERROR_RATE",
    "RULES",
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
type Colour = Literal["green", "pale", "amber", "red", "unfinished", "not run"]

#: Largest bias of means and range of ratios of standard deviations, against the reference's, and
#: largest Pareto k-hat, of a green cell.
BIAS, RATIOS, K_HAT = 0.3, (0.8, 1.25), 0.7
#: Bias, in standard deviations, that the checks of a green cell would find.
SEEN = 0.5

#: One rule for each colour, the worst first: the first that holds is the cell's.
RULES: dict[Colour, str] = {
    "red": "a check failed",
    "amber": f"""an approximation differs from the reference beyond the errors of both; or, for any
  engine, means differ by more than {BIAS} standard deviations, standard deviations by a factor
  outside of {RATIOS[0]} to {RATIOS[1]}, or k-hat is above {K_HAT}""",
    "unfinished": "a check ran out of time",
    "green": f"""a decisive check passed that computes the answer itself, such as a gradient at a
  mode, or would find a bias of {SEEN} standard deviations""",
    "pale": f"checks passed, but none would find a bias of {SEEN} standard deviations",
    "not run": "no decisive check has been run",
}
COLOURS: tuple[Colour, ...] = ("green", "pale", "amber", "red", "unfinished", "not run")


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
    """Colour of a cell by `RULES`."""
    outcomes = {finding.outcome for finding in findings}
    proofs = [each for each in findings if each.outcome == "passed" and each.decisive]
    if "failed" in outcomes:
        return "red"
    if "biased" in outcomes or any(map(_is_off, findings)):
        return "amber"
    if "unfinished" in outcomes:
        return "unfinished"
    if any(_finds(proof) <= SEEN for proof in proofs):
        return "green"
    return "pale" if proofs else "not run"


def _is_off(finding: Finding) -> bool:
    """Whether an engine differs from the reference more than a green one may."""
    figures = finding.figures
    if "resolution" not in figures:
        return False
    ratios = figures["least_sd_ratio"], figures["largest_sd_ratio"]
    apart = ratios[0] < RATIOS[0] or ratios[1] > RATIOS[1]
    return abs(figures["bias"]) > BIAS or apart or figures.get("pareto_k", 0.0) > K_HAT


def _finds(finding: Finding) -> float:
    """Bias, in standard deviations, that a check finds; 0 if it computes the answer itself."""
    return finding.figures.get("resolution", finding.figures.get("bias_found", 0.0))
