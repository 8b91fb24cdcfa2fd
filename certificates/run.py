"""Certificates of cells: made one by one, written at once, resumed, and shown in a table."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from ..inference import Engine
from ..inference.engine import track
from ..inference.engine.provenance import declared, versions
from ..inference.engine.workers import completed
from ..validation import check_count, check_positive
from .case import Case, NotRunError, UnfinishedError, fingerprint, reference
from .cells import (
    DECLARATION,
    Cell,
    all_cells,
    chosen,
    needs_long_reference,
    problem_of,
    with_reference,
)
from .checks import OF_DECLARATIONS, Check, checks_of
from .findings import Colour, Finding, colour_of
from .table import page

__all__ = ["Certificate", "certify", "read"]

OWNER = "certify"
#: Folder, in that of the certificates, of references and finished replicates.
SCRATCH = "scratch"
#: Engines in the order of their cost, so that a run that is stopped early has many cells.
_ORDER = (
    *(DECLARATION, "EM", "MAP", "VB", "Laplace", "Exact", "Gibbs", "Nested", "Pathfinder"),
    *("SMC", "ADVI", "NUTS"),
)
# How much longer than planned a cell or a reference may take for the least that proves something.
_LONGEST = 15


@dataclass(frozen=True)
class Certificate:
    """What the checks of a cell found.

    Attributes
    ----------
    cell, model, variant, engine : str
    verdict : {"green", "amber", "red", "not run"}
    checks : tuple of Finding
    settings : dict
        Settings of the engine in force.
    seed : int
    seconds : float
    versions : dict of str to str
    recipe : str
        Fingerprint of all that the certificate depends on.
    """

    cell: str
    model: str
    variant: str
    engine: str
    verdict: Colour
    checks: tuple[Finding, ...]
    settings: dict[str, Any]
    seed: int
    seconds: float
    versions: dict[str, str]
    recipe: str

    def write(self, folder: Path) -> None:
        """Write the file of the cell; a reader never sees a part of it."""
        path = folder / f"{self.cell}.json"
        partial = path.with_suffix(f".{os.getpid()}")
        text = json.dumps(asdict(self), indent=1, default=repr, allow_nan=False)
        partial.write_text(f"{text}\n", encoding="utf-8")
        partial.replace(path)


def read(folder: Path) -> dict[str, Certificate]:
    """Certificates in a folder by cell.

    Raises
    ------
    ValueError
        When a file is no certificate.
    """
    found = {}
    for path in sorted(folder.glob("*.json")):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            checks = tuple(Finding(**finding) for finding in content.pop("checks"))
            certificate = Certificate(**content, checks=checks)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a certificate: {error}. Move it away.") from error
        found[certificate.cell] = certificate
    return found


def certify(
    out: str | os.PathLike[str],
    console: Console,
    *,
    cells: Sequence[str] = (),
    seconds: float = 60.0,
    jobs: int = 1,
    random_seed: int = 1,
    again: bool = False,
) -> dict[str, Certificate]:
    """Check every engine on every variant of every model that it applies to.

    Parameters
    ----------
    out : path
        Folder for a file ``CELL.json`` for each cell. The table is written beside the folder, with
        the ending ``.md``.
    console : Console
    cells : sequence of str, optional
        Names of cells, variants, models or engines. Default: all cells.
    seconds : float, default=60
        Time of a cell: calibration makes as many replicates as fit. The least that proves something
        (20 replicates, a complete fit, a reference) may take fifteen times as long; a check that
        needs more is listed as unfinished.
    jobs : int, default=1
        Number of processes. The workers of an active Dask client, which must share `out` with this
        process, take their place.
    random_seed : int, default=1
    again : bool, default=False
        Repeat cells that have a certificate of the same checks, settings, seed and libraries, with
        new replicates and references. Certificates of an earlier kernelzoo stay otherwise; they
        name it.

    Returns
    -------
    dict of str to Certificate
        All certificates of the folder, by cell.

    Raises
    ------
    ValueError
        For an unknown cell, a number out of range, or a file in `out` that is no certificate.

    Notes
    -----
    Cells with a certificate are not repeated, unless a check of theirs is unfinished. Cheap cells
    come first.
    """
    check_positive(seconds, "seconds", OWNER)
    check_count(jobs, "jobs", OWNER)
    folder = Path(out).absolute()
    wanted = sorted(chosen(tuple(cells), OWNER), key=_cost)
    scratch = folder / SCRATCH
    scratch.mkdir(parents=True, exist_ok=True)
    known = read(folder)
    left = [cell for cell in wanted if again or not _is_done(cell, known, random_seed)]
    if again:
        _remove_records(left, scratch)
    try:
        with track(len(wanted), "Certificates", visible=console.is_terminal) as bar:
            bar.skip(len(wanted) - len(left))
            for certificate in _made(left, folder, random_seed, seconds, jobs):
                certificate.write(folder)
                bar.advance(cell=certificate.cell)
                told = f"{certificate.cell}: {certificate.verdict} ({certificate.seconds:.0f} s)"
                console.print(told, highlight=False)
    finally:
        every = read(folder)
        folder.with_suffix(".md").write_text(page(every, all_cells()), encoding="utf-8")
    return every


def _remove_records(cells: Sequence[Cell], scratch: Path) -> None:
    """Remove replicates and references of cells, which may be of other code of this version."""
    for cell in cells:
        shutil.rmtree(scratch / f"calibration-{cell.slug}", ignore_errors=True)
        name = f"reference-{with_reference(cell.variant).slug}-{'[0-9a-f]' * 16}.nc"
        for path in scratch.glob(name):
            path.unlink()


def _cost(cell: Cell) -> tuple[bool, int]:
    place = _ORDER.index(cell.engine) if cell.engine in _ORDER else len(_ORDER)
    compared = any(getattr(check, "against_reference", False) for check in _checks(cell))
    return compared and needs_long_reference(cell.variant), place


def _made(
    cells: Sequence[Cell], folder: Path, seed: int, seconds: float, jobs: int
) -> Iterator[Certificate]:
    """Make certificates in any order."""
    with closing(completed(_Making(folder, seed, seconds), cells, jobs, OWNER)) as outcomes:
        for index, outcome in outcomes:
            if "error" in outcome:
                raise RuntimeError(f"{cells[index].slug}: {outcome['error']}")
            yield outcome["certificate"]


@dataclass(frozen=True)
class _Making:
    """Task that makes the certificate of a cell."""

    folder: Path
    seed: int
    seconds: float

    def __call__(self, cell: Cell) -> dict[str, Certificate]:
        return {"certificate": _certificate(cell, self.folder, self.seed, self.seconds)}


def _engine(cell: Cell) -> Engine | None:
    return None if cell.engine == DECLARATION else Engine.registry[cell.engine.lower()]()


def _checks(cell: Cell) -> Sequence[Check]:
    engine = _engine(cell)
    return OF_DECLARATIONS if engine is None else checks_of(engine)


def _settings(cell: Cell) -> dict[str, Any]:
    engine = _engine(cell)
    return {} if engine is None else engine.settings_on(problem_of(cell.variant))


def _recipe(cell: Cell, seed: int) -> str:
    """Fingerprint of a cell's problem, engine, checks, seed and libraries."""
    problem = declared(problem_of(cell.variant))
    checks = [(check.name, repr(check)) for check in _checks(cell)]
    libraries = {name: number for name, number in versions().items() if name != "kernelzoo"}
    return fingerprint(cell.slug, _settings(cell), checks, seed, problem, libraries)


def _is_done(cell: Cell, known: dict[str, Certificate], seed: int) -> bool:
    certificate = known.get(cell.slug)
    if certificate is None or certificate.verdict == "not run":
        return False
    if any(finding.outcome == "unfinished" for finding in certificate.checks):
        return False
    return certificate.recipe == _recipe(cell, seed)


def _certificate(cell: Cell, folder: Path, seed: int, seconds: float) -> Certificate:
    """Run the checks of a cell."""
    begun = time.perf_counter()
    checks, model = _checks(cell), problem_of(cell.variant)
    own = cell.seed(seed)
    longest = _LONGEST * seconds
    case = Case(cell, model, _engine(cell), own, folder / SCRATCH, 0.0, time.monotonic() + longest)
    if any(getattr(check, "against_reference", False) for check in checks):
        # The checks that need a reference say why there is none.
        with suppress(Exception):
            reference(case)
    now = time.monotonic()
    case = replace(case, planned=now + seconds, ends=now + longest)
    findings = tuple(_finding(check, case) for check in checks)
    return Certificate(
        *(cell.slug, cell.variant.model.__name__, cell.variant.told, cell.engine),
        colour_of(findings),
        findings,
        {name: _plain(value) for name, value in _settings(cell).items()},
        *(own, round(time.perf_counter() - begun, 1), versions(), _recipe(cell, seed)),
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str | None) else repr(value)


def _with_finite_figures(finding: Finding) -> Finding:
    """Leave out figures that JSON cannot hold; a check whose statistic is not finite has failed."""
    figures = {name: value for name, value in finding.figures.items() if np.isfinite(value)}
    finding = replace(finding, figures=figures)
    if finding.statistic is None or np.isfinite(finding.statistic):
        return finding
    message = f"{finding.message}; the statistic is {finding.statistic}"
    return replace(finding, outcome="failed", statistic=None, message=message)


def _finding(check: Check, case: Case) -> Finding:
    """Run a check: an error is a failure, with its message."""
    begun = time.perf_counter()
    try:
        finding = _with_finite_figures(check(case))
    except NotRunError as reason:
        finding = Finding(check.name, check.measures, "not run", str(reason))
    except UnfinishedError as reason:
        finding = Finding(check.name, check.measures, "unfinished", str(reason))
    except Exception as error:  # any error: the other checks go on, and the cell is red
        message = f"{type(error).__name__}: {error}"
        finding = Finding(check.name, check.measures, "failed", message)
    return replace(finding, seconds=round(time.perf_counter() - begun, 1))
