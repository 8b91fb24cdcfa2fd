"""Count the house: lines by room, dispatchers, and what five fits enter.

Run from the root of the checkout: ``.venv/bin/python .ci/house.py``. A trip is one call of
``kz.fit``, or a fit and a prediction of an estimator, with its imports done; counted are our own
files and functions that it enters, its moves (calls of a function of ours from another file of
ours), and our own frames between ``fit`` and the first function of the paper's folder in
``inference``.
"""

import subprocess
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from types import CodeType

ROOT = Path(__file__).resolve().parent.parent
#: Rooms that the wheel leaves out.
BESIDE = ("benchmarks", "certificates", "experiments", "studies", "docs")
#: Folders of `inference` that belong to a paper.
PAPERS = (
    "composite_kernel",
    "gaussian_process",
    "kernel_completion",
    "multinomial_probit",
    "mutual_completion",
)


def sources() -> list[Path]:
    """Python files of the repository, without tests and the gate."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    paths = map(Path, listed.stdout.split())
    return [path for path in paths if path.parts[0] not in ("tests", "notebooks", ".ci")]


def room(path: Path) -> str:
    """Room of a file: two folders deep inside the package, the root's files together."""
    return "/".join(path.parts[:-1][:2]) or "root"


def print_lines(paths: list[Path]) -> None:
    """Print lines and files by room, installed and beside the package."""
    lines, files = Counter(), Counter()
    for path in paths:
        number = len((ROOT / path).read_text(encoding="utf-8").splitlines())
        where = "beside" if path.parts[0] in BESIDE else "installed"
        for name in (room(path), where, "all"):
            lines[name] += number
            files[name] += 1
    for name in sorted(lines, key=lambda n: (n in ("installed", "beside", "all"), n)):
        print(f"{name:36}{lines[name]:8,} lines {files[name]:5} files")


def print_dispatchers(paths: list[Path]) -> None:
    """Print the number of functions that dispatch on a type, and of registrations."""
    texts = [(ROOT / path).read_text(encoding="utf-8") for path in paths]
    for what in ("@singledispatch", ".register(", "def _("):
        print(f"{what:36}{sum(text.count(what) for text in texts):8}")


@cache
def is_own(path: Path) -> bool:
    """Whether a file is one of the package."""
    return path.is_relative_to(ROOT) and not {".venv", ".ci"}.intersection(path.parts)


class Trip:
    """Functions of the package that run while a trip is watched.

    Attributes
    ----------
    entered : set of code objects
    moves : int
        Calls of our own functions from others of our files.
    frames : int or None
        Our own frames above the first function of a paper's folder, `fit` not counted.
    """

    def __init__(self) -> None:
        self.entered: set[CodeType] = set()
        self.moves = 0
        self.frames: int | None = None

    def __enter__(self) -> "Trip":
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.PROFILER_ID, "trip")
        monitoring.register_callback(
            monitoring.PROFILER_ID, monitoring.events.PY_START, self._started
        )
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.PY_START)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
        sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)

    def _started(self, code: CodeType, offset: int) -> object:
        path = Path(code.co_filename)
        if not is_own(path):
            return sys.monitoring.DISABLE
        self.entered.add(code)
        caller = sys._getframe(2)
        while caller is not None and not is_own(Path(caller.f_code.co_filename)):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != code.co_filename:
            self.moves += 1
        parts = path.relative_to(ROOT).parts
        if self.frames is None and parts[0] == "inference" and parts[1] in PAPERS:
            names, frame = [], sys._getframe(2)
            while frame is not None and frame.f_code.co_qualname != "fit":
                if Path(frame.f_code.co_filename).is_relative_to(ROOT):
                    names.append(frame.f_code.co_qualname)
                frame = frame.f_back
            # Settings are asked before the algorithm runs; only what ends in it counts.
            if "run" in " ".join(names) or any("infer" in name for name in names):
                self.frames = len(names)
        return None


def print_trips() -> None:
    """Fit four models, and print what each fit enters."""
    import kernelzoo as kz

    warnings.simplefilter("ignore")
    trips = (
        (kz.MultinomialProbit, kz.VB(), 20),
        (kz.CompositeKernelRegression, kz.Gibbs(), 10),
        (kz.WishartCompletion, kz.Exact(), 10),
        (kz.MutualKernelCompletion, kz.EM(), 10),
    )
    for model_type, engine, draws in trips:
        model = model_type.example()
        options = {"draws": draws, "tune": 5, "chains": 1, "random_seed": 1}
        kz.fit(model, engine, progressbar=False, **options)
        with Trip() as trip:
            kz.fit(model, engine, progressbar=False, **options)
        print_trip(f"{engine.name} on {model_type.__name__}", trip)
    data = kz.datasets.load("wine").split(seed=1)
    estimator = kz.estimators.KernelClassifier(random_state=1)
    estimator.fit(data.X_train, data.y_train).predict_proba(data.X_test)
    with Trip() as trip:
        estimator.fit(data.X_train, data.y_train).predict_proba(data.X_test)
    print_trip("KernelClassifier on wine", trip)


def print_trip(name: str, trip: Trip) -> None:
    """Print what a trip entered."""
    files = {code.co_filename for code in trip.entered}
    print(
        f"{name:36}{len(files):8} files {len(trip.entered):5} functions {trip.moves:7,} moves "
        f"{trip.frames} frames before the paper's"
    )


if __name__ == "__main__":
    print_lines(sources())
    print_dispatchers(sources())
    print_trips()
