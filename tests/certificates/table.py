"""The page of the certificates, a table of coloured cells, and the evidence on each card."""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING

from .cells import Cell
from .code import fingerprint_of_code
from .findings import ALPHA, CHECKS, COLOURS, ERROR_RATE, RULES
from .variants import Variant

if TYPE_CHECKING:
    from .run import Certificate

__all__ = ["evidence", "page"]

_MISSING = "not run yet"
_NAMES = {colour: _MISSING if colour == "not run" else colour for colour in RULES}
_RULES = "\n".join(
    f'- <span class="certificate {name.replace(" ", "-")}">{name}</span>: {RULES[colour]}.'
    for colour, name in _NAMES.items()
)
_INTRODUCTION = """\
# Certificates

Is each engine correct on each model? Each cell is a variant of a model and an engine that
applies to it, on a problem small enough to prove it. A cell leads to its evidence."""
_LEGEND = f"""\
## What the colours mean

The first rule that holds gives the colour:

{_RULES}"""
_ALL_STALE = """\
All certificates shown were made by an earlier version of the code: they say what was proved
then."""
_HATCHED = """\
A hatched cell is **stale**: the code of its declaration, engine or steps has changed since. It is
marked "stale" on the cards, too. What models share (distributions, combinations, numerics) makes no
cell stale: its own tests prove it at every change."""
_METHOD = f"""\
`make test-certificates` makes anew the cells that are missing, that are stale because the code of
their declaration, engine or steps has changed since, or that were made by other libraries, settings
or checks. It writes one JSON file for each in `docs/certificates/`, and fails at a red one.

## What is checked

- *declaration*: two evaluations of the log density are equal, and its gradient is that of central
  differences. (That steps keep the joint distribution of the declaration has no cell here:
  the [joint tests](howto/extending.md#prove-it) are in `tests/custom_steps/`, and a failure blocks
  the change.)
- *Exact, Gibbs, NUTS, SMC*: ranks of true parameters among posterior draws are uniform
  (`kz.calibrate`), and means and spreads are those of the best other sampler.
- *VB*: the bound equals the mean of log p - log q over draws, and never falls; where the evidence
  is known, the bound is below it; bias against the best sampler on the data, and by the ranks of
  true parameters over data from the prior.
- *ADVI, Laplace, Pathfinder*: the bound, or the mode and the curvature; biases likewise.
- *EM, MAP*: the gradient vanishes at the answer, and no search from nearby finds a higher density.

Each of at most {CHECKS} random checks fails a correct engine with probability {ALPHA:.0e}, so the
whole table has a false alarm with probability below {100 * ERROR_RATE:.0f} %. Biases are means of
normal scores of the reference's draws: biases in standard deviations, without the infinite
variances of some matrices. Ranks cannot show how far a truth lies beyond all draws, so a ratio near
2 is a lower limit."""


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
    stale, hatched = _stale(certificates, cells)
    all_stale = bool(stale) and not hatched
    counts = Counter(colours.values())
    told = [f"{counts[c]} {c}" for c in (*COLOURS[:-1], _MISSING) if counts[c]]
    told += [f"{len(hatched)} of them stale"] if hatched else []
    seconds = sum(c.seconds for c in certificates.values() if c.cell in colours)
    made = sorted({_versions(c) for c in certificates.values()})
    parts = [
        _INTRODUCTION,
        f"**{_ALL_STALE}**" if all_stale else "",
        f"**{len(cells)} cells: {', '.join(told)}.** {seconds / 60:.0f} minutes of one core.",
        _matrix(cells, colours, stale, hatched),
        _HATCHED if hatched else "",
        _LEGEND,
        f"Source: the files in `docs/certificates`; versions: {'; '.join(made)}." if made else "",
        _METHOD,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _colour(certificate: "Certificate | None") -> str:
    if certificate is None or certificate.verdict == "not run":
        return _MISSING
    return certificate.verdict


def _is_stale(cell: Cell, certificate: "Certificate | None") -> bool:
    return certificate is not None and certificate.code != fingerprint_of_code(cell)


def _stale(
    certificates: "Mapping[str, Certificate]", cells: Sequence[Cell]
) -> tuple[set[str], set[str]]:
    """Cells that are stale, and those that are hatched: the same, but none where all are stale."""
    run = {c.slug for c in cells if _colour(certificates.get(c.slug)) != _MISSING}
    stale = {c.slug for c in cells if _is_stale(c, certificates.get(c.slug))}
    return stale, set() if run <= stale else stale


def _kind(slug: str, colour: str, hatched: set[str]) -> str:
    """Class of a cell of HTML, for its colour."""
    return colour.replace(" ", "-") + " stale" * (slug in hatched)


def _versions(certificate: "Certificate") -> str:
    return ", ".join(f"{name} {number}" for name, number in certificate.versions.items())


def _matrix(
    cells: Sequence[Cell], colours: Mapping[str, str], stale: set[str], hatched: set[str]
) -> str:
    """Variants by engines, in HTML: cells are links, with a class for the colour."""
    engines = list(dict.fromkeys(cell.engine for cell in cells))
    of = {(cell.variant.slug, cell.engine): cell.slug for cell in cells}
    heads = "".join(f'<th scope="col">{engine}</th>' for engine in ("", *engines))
    rows = []
    for variant in dict.fromkeys(cell.variant for cell in cells):
        row = (
            f'<th scope="row"><a href="cards/{variant.slug}.html">{escape(variant.title)}</a></th>'
        )
        for engine in engines:
            slug = of.get((variant.slug, engine), "")
            kind = _kind(slug, colours.get(slug, "none"), hatched)
            told = f"{colours.get(slug)}{', stale' * (slug in stale)}"
            link = f'<a href="cards/{variant.slug}.html#{slug}">{told}</a>'
            row += f'<td class="{kind}">{link if slug else ""}</td>'
        rows.append(f"<tr>{row}</tr>")
    body = "\n".join(rows)
    return (
        '<div class="pst-scrollable-table-container"><table class="table certificates">\n'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def evidence(
    variant: Variant, certificates: "Mapping[str, Certificate]", cells: Sequence[Cell]
) -> str:
    """Every finding on a variant, for its card, in Markdown, with the colours of the page."""
    rows, (stale, hatched) = [], _stale(certificates, cells)
    for cell in cells:
        if cell.variant is not variant:
            continue
        certificate = certificates.get(cell.slug)
        told = _colour(certificate)
        kind = _kind(cell.slug, told, hatched)
        colour = f'<span class="certificate {kind}">{told}{", stale" * (cell.slug in stale)}</span>'
        name = f'<a id="{cell.slug}"></a>{cell.engine}'
        checks = certificate.checks if certificate else ()
        rows += [
            [
                *([name, colour] if not i else ["", ""]),
                *(finding.check, finding.outcome, finding.message),
                *map(_number, (finding.statistic, finding.threshold)),
            ]
            for i, finding in enumerate(checks)
        ] or [[name, colour, *[""] * 5]]
    header = ["engine", "colour", "check", "outcome", "figures", "statistic", "threshold"]
    return _markdown(header, rows)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2g}"


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
