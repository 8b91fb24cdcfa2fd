"""What a benchmark measured in Markdown, for the documentation."""

import os
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

#: Libraries on which times depend.
VERSIONED = ("kernelzoo", "pymc", "pytensor", "numpy", "scipy", "scikit-learn")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Table in Markdown; one without rows says "None."."""
    cells = [header, ("---",) * len(header), *rows]
    if len(cells) == 2:
        return "None."
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
        for row in cells
    )


def document(name: str, path: Path, parts: Sequence[str], seconds: float) -> str:
    """Name the file under each table, and the command, time, machine and versions at the end."""
    told = [f"{part}\n\nSource: `{path}`." if part.startswith("|") else part for part in parts]
    machine = f"{platform.machine()}, {platform.system()}, {os.cpu_count()} cores"
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    versions = ", ".join(f"{name} {version(name)}" for name in VERSIONED)
    written = (
        f"The file was written by `python -m benchmarks {name} --out {path}` in {seconds:.0f} s "
        f"({machine}, BLAS threads: {threads}; {versions})."
    )
    return "\n\n".join([*told, written]) + "\n"
