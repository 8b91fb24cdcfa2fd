"""The contracts between the rooms find what breaks them: each fails on a planted violation."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = (
    *("custom_steps", "datasets", "estimators", "inference", "models", "numerics"),
    *("benchmarks", "studies"),
)
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["contracts"]

# Name of the contract, file, and the import that is added to it.
VIOLATIONS = {
    "Rooms import downwards only": [
        ("models/declaration.py", "from ..inference import fit"),
        ("validation.py", "from .numerics import probit"),
        ("inference/scores.py", "from ..estimators import KernelBlocks"),
    ],
    "Data sets know no model": [
        ("datasets/catalogue.py", "from ..models.declaration import Declaration"),
    ],
    "Papers' engines know no other paper's": [
        ("inference/composite_kernel/vb.py", "from ..kernel_completion import exact"),
    ],
    "Papers' steps know no other paper's": [
        ("custom_steps/composite_kernel/steps.py", "from ..multinomial_probit import cone"),
    ],
    "What serves every model knows no paper": [
        ("inference/engine/fit.py", "from ..multinomial_probit import vb"),
        ("custom_steps/moves/hamiltonian.py", "from ..multinomial_probit import cone"),
    ],
    "Numerics and validation know NumPy, SciPy and numba only": [
        ("numerics/probit.py", "import pytensor.tensor"),
        ("validation.py", "import pandas"),
    ],
    "Kernels, their combinations, distributions and operations know no declaration": [
        ("models/combinations/sums.py", "from ..multinomial_probit import MultinomialProbit"),
    ],
    "The package knows nothing beside it": [
        ("inference/scores.py", "from studies import report"),
        ("estimators/blocks.py", "from ..benchmarks import cold"),
    ],
    "Studies and benchmarks import what packages export": [
        ("studies/study.py", "from kernelzoo.inference.engine.result import with_group"),
        ("benchmarks/cold.py", "from kernelzoo.models.kernels.stack import as_stack"),
    ],
}
CASES = [(law, *violation) for law, planted in VIOLATIONS.items() for violation in planted]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """Copy of what the laws are about, in a folder of the package's name."""
    package = tmp_path_factory.mktemp("laws") / "kernelzoo"
    for room in ROOMS:
        shutil.copytree(ROOT / room, package / room, ignore=shutil.ignore_patterns("__pycache__"))
    for file in (*ROOT.glob("*.py"), ROOT / "pyproject.toml"):
        shutil.copy(file, package / file.name)
    return package


def kept_and_broken(package):
    """Run import-linter as `make lint` does: whether each contract was kept, by its name."""
    script = "from importlinter.cli import lint_imports_command as run; run()"
    options = ["--no-logo", "--no-cache", "--config", str(package / "pyproject.toml")]
    done = subprocess.run(
        [sys.executable, "-c", script, *options],
        cwd=package,
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
    )
    verdicts = {}
    for line in done.stdout.splitlines():
        for verdict in ("KEPT", "BROKEN"):
            name, found, _ = line.partition(f" {verdict}")
            if found:
                verdicts[name] = verdict == "KEPT"
    assert verdicts, done.stdout + done.stderr
    return verdicts


def test_every_law_is_kept_and_has_a_violation(copy):
    verdicts = kept_and_broken(copy)
    assert verdicts.keys() == VIOLATIONS.keys() == {contract["name"] for contract in CONTRACTS}
    assert all(verdicts.values())


@pytest.mark.parametrize(("law", "file", "line"), CASES)
def test_a_violation_is_found(copy, law, file, line):
    path = copy / file
    before = path.read_text(encoding="utf-8")
    path.write_text(f"{before}\n{line}\n", encoding="utf-8")
    try:
        assert not kept_and_broken(copy)[law]
    finally:
        path.write_text(before, encoding="utf-8")
