"""Plant known bugs one at a time and check that the tests named for each of them fail.

The bugs are data: a TOML file of this folder for each family, with entries

    [[bug]]
    name = "shape-in-place-of-rate"     unique within the family
    file = "models/distributions/wishart.py"          the file that gets the bug
    old = "text"                        occurs exactly once in the file
    new = "text"                        what a developer may have written in its place
    tests = "tests/models/distributions/test_wishart.py::test_density"    arguments of pytest
    bug = "One sentence that says what is wrong."

The checkout is copied; the bugs are planted in the copy only.
"""

import argparse
import multiprocessing
import os
import resource
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import pytest
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
OUTCOMES = {"caught": "green", "survived": "red", "stale": "yellow", "broken": "magenta"}
# Processes that run tests are forked from one that has imported these: pytest imports the first.
PYTEST = ["pytest", "hypothesis", "hypothesis.internal.observability", "zarr"]
PACKAGES = ["pymc", "arviz", "scipy.stats", "sklearn.svm", "matplotlib.pyplot", "numba"]
LEFT_OUT = (".*", "__pycache__", "results", "build", "dist", "notebooks", "_build", "*.egg-info")
processes = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Bug:
    """An entry of a data file."""

    family: str
    name: str
    file: str
    old: str
    new: str
    tests: str
    bug: str

    def stale(self, root: Path) -> str:
        """Return why the entry no longer applies to the checkout, or an empty string."""
        path = root / self.file
        found = path.read_text().count(self.old) if path.is_file() else 0
        if found != 1:
            return f"the text to replace occurs {found} times in {self.file}"
        if self.old == self.new:
            return "the replacement changes nothing"
        for argument in shlex.split(self.tests):
            if argument.endswith(".py") or ".py::" in argument:
                file, *names = argument.partition("[")[0].split("::")
                if not (root / file).is_file():
                    return f"there is no file {file}"
                if names and f"def {names[-1]}(" not in text_of(root / file):
                    return f"there is no {names[-1]} in {file}"
        return ""


@cache
def text_of(path: Path) -> str:
    """Return what is in a file."""
    return path.read_text()


def read(folder: Path = FOLDER) -> list[Bug]:
    """Return the bugs of all data files of a folder."""
    return [
        Bug(family=path.stem, **entry)
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text())["bug"]
    ]


def test_process(checkout: str, tests: str, log: str, seconds: str, compiled: str | None) -> None:
    """Run tests of a checkout in this process and end it with pytest's status."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(checkout)
    sys.dont_write_bytecode = True
    # The first is the platform's default: what PyMC starts its chains by.
    multiprocessing.set_start_method(multiprocessing.get_all_start_methods()[0], force=True)
    sys.path.insert(0, str(Path(checkout).parent))
    os.environ |= {"PYTHONPATH": sys.path[0], "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    if compiled is not None:
        import pytensor.link.numba.cache as numba_cache

        os.environ["NUMBA_CACHE_DIR"] = compiled
        numba_cache.NUMBA_CACHE_PATH = Path(compiled)
    options = ["-x", "-q", "--tb=line", "--color=no", "-p", "no:cacheprovider", "-m", "not slow"]
    if "hypothesis" in sys.modules:
        options += ["--hypothesis-seed=0"]
    status = pytest.main([*options, *shlex.split(tests)])
    package = sys.modules.get("kernelzoo")
    if package and Path(str(package.__file__)).parent != Path(checkout):
        raise SystemExit("The tests imported the package from another folder.")
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    Path(seconds).write_text(str(sum(each.ru_utime + each.ru_stime for each in usage)))
    raise SystemExit(int(status))


class Worker:
    """A copy of the checkout in which one bug at a time is planted.

    Parameters
    ----------
    root, folder : Path
        The checkout, and an empty folder.
    limit : float
        Seconds after which a run of tests is ended.
    """

    def __init__(self, root: Path, folder: Path, limit: float):
        self.checkout, self.folder, self.limit = folder / "kernelzoo", folder, limit
        shutil.copytree(root, self.checkout, ignore=shutil.ignore_patterns(*LEFT_OUT))
        self.passed: dict[str, str] = {}
        self.seconds = 0.0

    def run(
        self, tests: str, *, number: int = 1, compile_anew: bool = False
    ) -> tuple[int | None, str]:
        """Return pytest's status, None where the time ran out, and the line that says most.

        The time limit is that of a number of runs.
        """
        compiled, log, seconds = (self.folder / name for name in ("compiled", "log", "seconds"))
        shutil.rmtree(compiled, ignore_errors=True)
        compiled.mkdir()
        log.write_text("")
        seconds.write_text(str(self.limit))
        arguments = self.checkout, tests, log, seconds, compiled if compile_anew else None
        texts = [None if argument is None else str(argument) for argument in arguments]
        process = processes.Process(target=test_process, args=texts)
        process.start()
        process.join(number * self.limit)
        if ended := process.exitcode is not None:
            lines = log.read_text(errors="replace").splitlines() or [""]
        else:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
            lines = [f"no end after {self.limit:.0f} s"]
        self.seconds += float(seconds.read_text())
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return process.exitcode if ended else None, failed[0] if failed else lines[-1]

    def pass_without_bugs(self, bugs: Sequence[Bug]) -> None:
        """Run all tests of bugs in one process, which takes less time than one after another."""
        tests = dict.fromkeys(bug.tests for bug in bugs if not bug.stale(self.checkout))
        together = [each for each in tests if "-k" not in shlex.split(each)]
        if together and self.run(" ".join(together), number=len(together))[0] == 0:
            self.passed |= dict.fromkeys(together, "")

    def judge(self, bug: Bug) -> tuple[str, str]:
        """Return the outcome for a bug, and what it was decided by."""
        if reason := bug.stale(self.checkout):
            return "stale", reason
        if bug.tests not in self.passed:
            status, line = self.run(bug.tests)
            self.passed[bug.tests] = "" if status == 0 else f"without the bug: {line}"
        if self.passed[bug.tests]:
            return "broken", self.passed[bug.tests]
        path = self.checkout / bug.file
        text = path.read_text()
        path.write_text(text.replace(bug.old, bug.new))
        try:
            # What numba compiled is kept by the contents of files: never for a planted bug.
            status, line = self.run(bug.tests, compile_anew="numba" in text or "compiled" in text)
        finally:
            path.write_text(text)
        outcome = {0: "survived", 1: "caught"}.get(status, "broken")  # type: ignore[arg-type]
        return outcome, line.removeprefix("FAILED ")


def judged(
    bugs: Sequence[Bug], root: Path, jobs: int, limit: float
) -> Iterator[tuple[Bug, str, str, float]]:
    """Yield each bug with its outcome, what decided it and its processor seconds, as they come."""
    families: dict[str, list[Bug]] = {}
    for bug in bugs:
        families.setdefault(bug.family, []).append(bug)
    found: SimpleQueue[tuple[Bug, str, str, float] | None] = SimpleQueue()
    interrupted = threading.Event()

    def judge(family: list[Bug]) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="planted_") as folder:
                worker = Worker(root, Path(folder).resolve(), limit)
                worker.pass_without_bugs(family)
                for bug in family:
                    if interrupted.is_set():
                        break
                    outcome, line = worker.judge(bug)
                    found.put((bug, outcome, line, worker.seconds))
                    worker.seconds = 0.0
        finally:
            found.put(None)

    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(judge, family) for family in families.values()]
        left = len(futures)
        try:
            while left:
                if (result := found.get()) is None:
                    left -= 1
                else:
                    yield result
        finally:
            interrupted.set()
        for future in futures:
            future.result()


def main(
    arguments: Sequence[str] | None = None, *, folder: Path = FOLDER, root: Path = ROOT
) -> int:
    """Run the command; return 1 if a bug was not caught."""
    parser = argparse.ArgumentParser(description="Plant known bugs; the tests must fail.")
    parser.add_argument("--family", action="append", help="a family alone (can be repeated)")
    parser.add_argument("--only", action="append", metavar="NAME", help="a bug alone")
    parser.add_argument("--jobs", type=int, default=1, help="families at a time (1)")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a run of tests (120)")
    parser.add_argument("--list", action="store_true", help="name the bugs and end")
    options = parser.parse_args(arguments)
    bugs = [
        bug
        for bug in read(folder)
        if (not options.family or bug.family in options.family)
        and (not options.only or bug.name in options.only)
    ]
    console = Console(soft_wrap=True, highlight=False)
    if not bugs:
        parser.error("no bug has these names")
    if options.list:
        for bug in bugs:
            console.print(f"{bug.family}/{bug.name}: {bug.bug}", markup=False)
        return 0

    counts: dict[str, Counter[str]] = {bug.family: Counter() for bug in bugs}
    seconds: Counter[str] = Counter()
    columns = TextColumn("planting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(bugs))
        for bug, outcome, line, taken in judged(bugs, root, options.jobs, options.limit):
            counts[bug.family][outcome] += 1
            seconds[bug.family] += taken
            console.print(f"[{OUTCOMES[outcome]}]{outcome:9}[/]", end="")
            console.print(f"{taken:6.1f} s  {bug.family}/{bug.name}  {line}", markup=False)
            progress.advance(task)

    table = Table("family", *OUTCOMES, "seconds")
    for family, count in counts.items():
        table.add_row(family, *(str(count[o]) for o in OUTCOMES), f"{seconds[family]:.0f}")
    total = sum(counts.values(), Counter())
    table.add_section()
    table.add_row("all", *(str(total[o]) for o in OUTCOMES), f"{seconds.total():.0f}")
    console.print(table)
    return int(total["caught"] < len(bugs))


if __name__ == "__main__":
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_OPT"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("MPLBACKEND", "Agg")
    with tempfile.TemporaryDirectory(prefix="planted_") as compiled:
        flags = [os.environ.get("PYTENSOR_FLAGS", ""), f"base_compiledir={compiled}"]
        os.environ["PYTENSOR_FLAGS"] = ",".join(filter(None, flags))
        processes.set_forkserver_preload([*PYTEST, *PACKAGES])
        sys.exit(main())
