"""The page of the certificates: counts, a table of cells, and the figures behind the colours."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .cells import Cell
from .findings import ALPHA, CHECKS, COLOURS, ERROR_RATE

if TYPE_CHECKING:
    from .run import Certificate

__all__ = ["page"]

_MISSING = "not run yet"
_INTRODUCTION = f"""\
# Certificates

Does each engine do on each model what it says? Each cell below is a variant of a model and an
engine that applies to it, on a problem small enough to prove it. `make test-certificates` writes
this page and one JSON file per cell in `docs/certificates/`; it makes the cells that are missing,
or that were made by other libraries, settings or checks, and fails at a red one. The versions that
made them are at the end of the page.

- **green**: all checks that apply passed, a decisive one among them.
- **amber**: an approximation whose error could be measured, or an answer that the engine itself
  marks as not converged; the list below says which, and how large the error is.
- **red**: a check failed.
- **unfinished**: the time of a check was over.
- **{_MISSING}**: no decisive check has been run yet.

What is checked:

- *declaration*: two evaluations of the log density are equal, and its gradient is that of central
  differences.
- *Exact, Gibbs, NUTS, SMC*: ranks of true parameters among posterior draws are uniform
  (`kz.calibrate`), and means and spreads are those of the best other sampler.
- *VB*: the bound equals the mean of log p - log q over draws, and never falls; where the evidence
  is known, the bound is below it; bias against the best sampler on the data, and by the ranks of
  true parameters over data from the prior.
- *ADVI, Laplace, Pathfinder*: the bound, or the mode and the curvature; biases likewise.
- *EM, MAP*: the gradient vanishes at the answer, and no search from nearby finds a higher density.

Random checks fail right engines with a probability below {ERROR_RATE:.0%} over the whole table:
each of at most {CHECKS} has the level {ALPHA:.0e}. Biases are means of normal scores of the
reference's draws: biases in standard deviations, without the infinite variances of some matrices.
Ranks end at the outermost draws: truths that spread twice as far as draws may spread further.
"""


def page(certificates: "Mapping[str, Certificate]", cells: Sequence[Cell]) -> str:
    """Write the page in Markdown.

    Parameters
    ----------
    certificates : mapping of str to Certificate
        By cell.
    cells : sequence of Cell
        All cells that should have one.
    """
    colours = {cell.slug: _colour(certificates.get(cell.slug)) for cell in cells}
    counts = Counter(colours.values())
    told = ", ".join(f"{counts[c]} {c}" for c in (*COLOURS[:-1], _MISSING) if counts[c])
    seconds = sum(c.seconds for c in certificates.values() if c.cell in colours)
    made = sorted({_versions(c) for c in certificates.values()})
    parts = [
        _INTRODUCTION,
        f"**{len(cells)} cells: {told}.** {seconds / 60:.0f} minutes of one core.",
        _matrix(cells, colours),
        *(_list(colour, cells, certificates, colours) for colour in ("red", "amber")),
        _figures(cells, certificates),
        f"Source: the files in `docs/certificates`; versions: {'; '.join(made)}." if made else "",
    ]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _colour(certificate: "Certificate | None") -> str:
    if certificate is None or certificate.verdict == "not run":
        return _MISSING
    return certificate.verdict


def _versions(certificate: "Certificate") -> str:
    return ", ".join(f"{name} {number}" for name, number in certificate.versions.items())


def _matrix(cells: Sequence[Cell], colours: Mapping[str, str]) -> str:
    """Variants by engines."""
    engines = list(dict.fromkeys(cell.engine for cell in cells))
    variants = list(dict.fromkeys(cell.variant for cell in cells))
    of = {(cell.variant.slug, cell.engine): colours[cell.slug] for cell in cells}
    rows = [
        [variant.title, *(of.get((variant.slug, engine), "") for engine in engines)]
        for variant in variants
    ]
    return _markdown(["", *engines], rows)


def _list(
    colour: str,
    cells: Sequence[Cell],
    certificates: "Mapping[str, Certificate]",
    colours: Mapping[str, str],
) -> str:
    """Cells of a colour with the findings that gave it."""
    outcome = {"red": "failed", "amber": "biased"}[colour]
    lines = [
        f"- **{cell.slug}**: "
        + "; ".join(
            f"{finding.check}: {finding.message}"
            for finding in certificates[cell.slug].checks
            if finding.outcome == outcome
        ).replace("\n", " ")
        for cell in cells
        if colours[cell.slug] == colour
    ]
    return f"## {colour.capitalize()}\n\n" + "\n".join(lines) if lines else ""


def _figures(cells: Sequence[Cell], certificates: "Mapping[str, Certificate]") -> str:
    """Every finding of every cell."""
    rows = [
        [
            cell.slug if not i else "",
            finding.check,
            finding.outcome,
            _number(finding.statistic),
            _number(finding.threshold),
            finding.message,
        ]
        for cell in cells
        if cell.slug in certificates
        for i, finding in enumerate(certificates[cell.slug].checks)
    ]
    if not rows:
        return ""
    header = ["cell", "check", "outcome", "statistic", "threshold", "figures"]
    return f"## All findings\n\n{_markdown(header, rows)}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
