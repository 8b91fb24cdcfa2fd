"""Certificates of cells: one JSON file each."""

import json
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kernelzoo.inference import Engine
from kernelzoo.inference.engine.provenance import term_fingerprints, versions

from .case import Case, NotRunError, UnfinishedError, fingerprint, reference
from .cells import (
    DECLARATION,
    Cell,
    problem_of,
)
from .checks import OF_DECLARATIONS, Check, checks_of
from .code import fingerprint_of_code
from .findings import Colour, Finding, colour_of

__all__ = ["Certificate", "certify", "is_done", "read"]

#: Folder, in that of the certificates, of references and finished replicates.
SCRATCH = "scratch"
#: Seconds and seed of a cell.
SECONDS, SEED = 60.0, 1
# How much longer than planned a cell or a reference may take for the least that proves something.
_LONGEST = 15


@dataclass(frozen=True)
class Certificate:
    """What the checks of a cell found.

    Attributes
    ----------
    cell, model, variant, engine : str
    checks : tuple of Finding
    settings : dict
        Settings of the engine in force.
    seed : int
    seconds : float
    versions : dict of str to str
    recipe : str
        Fingerprint of problem, settings, checks, seed and libraries.
    code : str
        Fingerprint of the code that it proves; files of older versions have none.
    """

    cell: str
    model: str
    variant: str
    engine: str
    checks: tuple[Finding, ...]
    settings: dict[str, Any]
    seed: int
    seconds: float
    versions: dict[str, str]
    recipe: str
    code: str = ""

    @property
    def verdict(self) -> Colour:
        """Colour of the cell."""
        return colour_of(self.checks)

    def write(self, folder: Path) -> None:
        """Write the file of the cell; a reader never sees a part of it."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.cell}.json"
        partial = path.with_suffix(f".{os.getpid()}")
        text = json.dumps(
            {"verdict": self.verdict} | asdict(self), indent=1, default=repr, allow_nan=False
        )
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
            # The rules of colours may have changed since.
            content.pop("verdict")
            checks = tuple(Finding(**finding) for finding in content.pop("checks"))
            certificate = Certificate(**content, checks=checks)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"{path} is not a certificate: {error}. Move it away.") from error
        found[certificate.cell] = certificate
    return found


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
    problem = term_fingerprints(problem_of(cell.variant))
    checks = [(check.name, repr(check)) for check in _checks(cell)]
    libraries = {name: number for name, number in versions().items() if name != "kernelzoo"}
    return fingerprint(cell.slug, _settings(cell), checks, seed, problem, libraries)


def is_done(cell: Cell, certificate: Certificate | None, seed: int = SEED) -> bool:
    """Whether a certificate is complete and of the same code, checks, settings and libraries."""
    if certificate is None or certificate.verdict == "not run":
        return False
    if any(finding.outcome == "unfinished" for finding in certificate.checks):
        return False
    same_code = certificate.code == fingerprint_of_code(cell)
    return same_code and certificate.recipe == _recipe(cell, seed)


def certify(cell: Cell, folder: Path, *, seconds: float = SECONDS, seed: int = SEED) -> Certificate:
    """Run the checks of a cell, and write what they find to ``CELL.json`` in a folder.

    Calibration makes as many replicates as fit into the seconds. The least that proves something
    (20 replicates, a complete fit, a reference) may take fifteen times as long; a check that needs
    more is listed as unfinished.
    """
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
    certificate = Certificate(
        *(cell.slug, cell.variant.model.__name__, cell.variant.told, cell.engine),
        findings,
        {name: _plain(value) for name, value in _settings(cell).items()},
        *(own, round(time.perf_counter() - begun, 1), versions(), _recipe(cell, seed)),
        fingerprint_of_code(cell),
    )
    certificate.write(folder)
    return certificate


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
