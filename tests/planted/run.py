"""Plant known bugs one at a time and check that the tests named for each of them fail.

The bugs are data: TOML files of this folder with entries

    [[bug]]
    name = "shape-in-place-of-rate"     unique
    file = "models/distributions/wishart.py"          the file that gets the bug
    old = "text"                        occurs exactly once in the file
    new = "text"                        what a developer may have written in its place
    tests = "tests/models/distributions/test_wishart.py::test_density"    arguments of pytest
    bug = "One sentence that says what is wrong."

The checkout is copied; the bugs are planted in the copy only.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
LEFT_OUT = (".*", "__pycache__", "results", "build", "dist", "notebooks", "_build", "*.egg-info")
OUTCOMES = {0: "survived", 1: "caught"}


@dataclass(frozen=True)
class Bug:
    """An entry of a data file."""

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
            if argument.partition("::")[0].endswith(".py"):
                file, *names = argument.partition("[")[0].split("::")
                if not (root / file).is_file():
                    return f"there is no file {file}"
                if names and f"def {names[-1]}(" not in (root / file).read_text():
                    return f"there is no {names[-1]} in {file}"
        return ""


def read(folder: Path = FOLDER) -> list[Bug]:
    """Return the bugs of all data files of a folder."""
    files = sorted(folder.glob("*.toml"))
    return [Bug(**entry) for path in files for entry in tomllib.loads(path.read_text())["bug"]]


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """Copy the checkout; in the context, new processes import the package from the copy."""
    with tempfile.TemporaryDirectory(prefix="planted_") as folder:
        copy = Path(folder).resolve() / "kernelzoo"
        shutil.copytree(root, copy, ignore=shutil.ignore_patterns(*LEFT_OUT))
        os.environ |= {"PYTHONPATH": str(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"}
        compile_anew(copy)
        yield copy


def compile_anew(copy: Path) -> None:
    """Give what numba and PyTensor compile from now on a folder of its own.

    They keep compiled code by the source of a function, not of those that it calls.
    """
    flags = re.sub(r",?base_compiledir=[^,]*", "", os.environ.get("PYTENSOR_FLAGS", ""))
    folder = tempfile.mkdtemp(prefix="compiled_", dir=copy.parent)
    os.environ["PYTENSOR_FLAGS"] = ",".join(filter(None, [flags, f"base_compiledir={folder}"]))


def is_compiled(path: Path) -> bool:
    """Tell whether numba compiles functions of a file."""
    return bool(re.search("numba|compiled", path.read_text()))


def pytest(tests: str) -> list[str]:
    """Return the command that runs tests until the first fails."""
    options = ["-x", "-q", "--tb=line", "--color=no", "-p", "no:cacheprovider", "-m", "not slow"]
    options += ["--hypothesis-seed=0", *shlex.split(tests)]
    return [sys.executable, "-P", "-m", "pytest", *options]


def run(tests: str, copy: Path, limit: float | None) -> tuple[int, str]:
    """Return pytest's status, -1 if the time ran out, and the line that says most."""
    process = subprocess.Popen(
        pytest(tests), cwd=copy, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        lines = process.communicate(timeout=limit)[0].splitlines() or [""]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return -1, f"no end after {limit:g} s"
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return process.returncode, failed[0] if failed else lines[-1]


def judge(bug: Bug, copy: Path, limit: float) -> tuple[str, str]:
    """Return whether the tests catch a bug, and what that was decided by."""
    if reason := bug.stale(copy):
        return "stale", reason
    path = copy / bug.file
    text = path.read_text()
    path.write_text(text.replace(bug.old, bug.new))
    if is_compiled(path):
        compile_anew(copy)
    try:
        status, line = run(bug.tests, copy, limit)
    finally:
        path.write_text(text)
    return OUTCOMES.get(status, "broken"), line


def main(
    arguments: Sequence[str] | None = None, *, folder: Path = FOLDER, root: Path = ROOT
) -> int:
    """Run the command; return 1 if a bug was not caught."""
    parser = argparse.ArgumentParser(description="Plant known bugs; the tests must fail.")
    parser.add_argument("names", nargs="*", help="bugs (all)")
    parser.add_argument("--limit", type=float, default=120, help="seconds of a bug's tests (120)")
    options = parser.parse_args(arguments)
    bugs = [bug for bug in read(folder) if not options.names or bug.name in options.names]
    if not bugs:
        parser.error("no bug has these names")
    counts: Counter[str] = Counter()
    with copy_of(root) as copy:
        tests = dict.fromkeys(bug.tests for bug in bugs if not bug.stale(copy))
        status, line = run(" ".join(tests), copy, None) if tests else (0, "")
        if status:
            print(f"The tests must pass without a bug: {line}")
            return 1
        for bug in bugs:
            outcome, line = judge(bug, copy, options.limit)
            counts[outcome] += 1
            print(f"{outcome:9} {bug.name}  {line}", flush=True)
    print(*(f"{count} {outcome}" for outcome, count in counts.items()), sep=", ")
    return int(counts["caught"] < len(bugs))


if __name__ == "__main__":
    sys.exit(main())
