"""What a benchmark printed, as a file that the documentation shows."""

import json
import os
import platform
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["RecordingConsole", "write_record"]

#: Libraries on which times depend.
VERSIONED = ("kernelzoo", "pymc", "pytensor", "numpy", "scipy", "scikit-learn")


class RecordingConsole(Console):
    """Console that keeps the tables and lines that it prints.

    Attributes
    ----------
    parts : list of dict
        Tables with ``title``, ``columns`` and ``rows``, and lines with ``text``, in their order.
    """

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
    """Write what a benchmark printed, with the machine and the versions.

    Parameters
    ----------
    path : Path
    name : str
        Name of the benchmark.
    console : RecordingConsole
        That it printed to.
    seconds : float
        How long it took.
    """
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
