"""Quiet fits and tables for benchmarks, and a file of what they print for the documentation."""

import json
import os
import platform
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pymc as pm
from rich.console import Console
from rich.table import Table
from xarray import DataTree

from kernelzoo.inference import ApproximationWarning, Engine, fit

#: Libraries on which times depend.
VERSIONED = ("kernelzoo", "pymc", "pytensor", "numpy", "scipy", "scikit-learn")


def quiet_fit(model: pm.Model, engine: Engine, *, seed: int = 1, **options: Any) -> DataTree:
    """Fit without the progress bar and without warnings that only time and predictions ignore."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ApproximationWarning)
        warnings.filterwarnings("ignore", "VB did not converge")
        return fit(
            model, engine, random_seed=seed, progressbar=False, log_likelihood=False, **options
        )


def table_of(title: str, names: Sequence[str], numbers: Sequence[str]) -> Table:
    """Make a table with columns of names, on the left, and columns of numbers, on the right."""
    table = Table(*names, title=title)
    for column in numbers:
        table.add_column(column, justify="right")
    return table


class RecordingConsole(Console):
    """Console that keeps the tables and lines that it prints."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.parts: list[dict[str, Any]] = []

    def print(self, *objects: Any, **options: Any) -> None:
        """Keep, and print unless the output is full or has no reader."""
        self.parts += map(_part, objects)
        with suppress(OSError):
            super().print(*objects, **options)

    def on_broken_pipe(self) -> None:
        """Go on, silently."""
        self.quiet = True


def _part(printed: Any) -> dict[str, Any]:
    if not isinstance(printed, Table):
        return {"text": str(printed)}
    columns = [[str(cell) for cell in column.cells] for column in printed.columns]
    return {
        "title": str(printed.title or ""),
        "columns": [str(column.header) for column in printed.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }


def write_record(path: Path, name: str, console: RecordingConsole, seconds: float) -> None:
    """Write what a benchmark printed and how long it took, with the machine and the versions."""
    record = {
        "benchmark": name,
        "machine": f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores",
        "blas_threads": os.environ.get("OMP_NUM_THREADS", "all"),
        "versions": {name: version(name) for name in VERSIONED},
        "seconds": round(seconds),
        "parts": console.parts,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
