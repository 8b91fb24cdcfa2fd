"""Execute every notebook of notebooks/ in memory, two at a time.

The run fails on an exception in any cell and on a notebook that is kept without its outputs.
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
CELL_SECONDS = 600
# First runs compile for minutes, on one core.
AT_A_TIME = 2
# The notebook that takes longest begins first.
LONGEST = "tour"


def was_executed(notebook: nbformat.NotebookNode) -> bool:
    """Whether the notebook as kept holds the outputs of every cell of code."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    return all(cell.execution_count is not None for cell in code)


def execute(path: Path) -> str:
    """Run one notebook from its own folder; return what is wrong with it, or nothing."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    if not was_executed(notebook):
        return "kept without its outputs"
    # Sockets are files: ports may be taken by the kernels of the site's build, beside this one.
    with TemporaryDirectory() as folder:
        sockets = {"transport": "ipc", "ip": f"{folder}/kernel"}
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            config=Config({"KernelManager": sockets}),
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            return str(error)
    return ""


def report(path: Path) -> bool:
    """Run one notebook and print how that went; return whether it failed."""
    start = time.perf_counter()
    problem = execute(path)
    print(f"{path.name}: {problem or 'passed'} ({time.perf_counter() - start:.0f} s)", flush=True)
    return bool(problem)


def main() -> int:
    """Execute all notebooks; return the number of those that failed."""
    paths = sorted(FOLDER.glob("*.ipynb"), key=lambda path: (path.stem != LONGEST, path))
    if not paths:
        print("no notebooks yet")
    # Threads will do: each notebook runs in a process of its own.
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return sum(pool.map(report, paths))


if __name__ == "__main__":
    sys.exit(main())
