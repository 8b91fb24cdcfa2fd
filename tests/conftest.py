"""What all tests share."""

import gc
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytensor
import pytest
import rich
import sklearn.datasets

from kernelzoo.inference.engine.evaluation import python_mode

#: Tests that took more than `LONG` CPU seconds, a line each; ``make measure-tests`` writes them.
LONG_TESTS = Path(__file__).parent / "long.txt"
LONG = 0.6


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that measures the tests."""
    told = f"write the tests that take more than {LONG:g} CPU seconds to {LONG_TESTS.name}"
    parser.addoption("--measure-tests", action="store_true", help=told)


def pytest_configure(config: pytest.Config) -> None:
    """Refuse downloads, also while tests are collected; take Ctrl-C; measure the tests if asked."""
    sklearn.datasets.fetch_openml = _refuse
    # PyTensor would print the traceback of a rewrite that fails, and go on.
    pytensor.config.on_opt_error = "raise"
    # A shell that ignores SIGINT (nohup, background jobs) passes that on to what it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("measure_tests"):
        config.pluginmanager.register(Measurement())


def _refuse(**arguments: object) -> NoReturn:
    raise OSError("tests do not download: a missing data set skips what needs it")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that were measured to be long, before tests are chosen by their marks."""
    long = set(LONG_TESTS.read_text(encoding="utf-8").splitlines()[1:])
    for item in items:
        if item.nodeid in long:
            item.add_marker("long")


class Measurement:
    """CPU seconds of every test, its fixtures and its child processes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        start = _cpu_seconds()
        done = yield
        self.seconds[item.nodeid] = _cpu_seconds() - start
        return done

    def pytest_sessionfinish(self) -> None:
        long = sorted(test for test, seconds in self.seconds.items() if seconds > LONG)
        head = f"# `make test-long`: tests above {LONG:g} CPU seconds, by `make measure-tests`."
        LONG_TESTS.write_text("\n".join([head, *long]) + "\n", encoding="utf-8")


def _cpu_seconds() -> float:
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(times.ru_utime + times.ru_stime for times in used)


def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, and collect less often.

    Graphs are many small objects, so that collection took an eighth of the time of some tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def no_compilation_in_c() -> Iterator[str]:
    """Let NumPy evaluate what PyTensor would compile by numba or in C, unless a test says so.

    Most graphs of tests are used a few times.
    """
    compiler = pytensor.config.cxx
    # PyTensor would record the traceback of every variable: 5 of 35 seconds in declarations' tests.
    with pytensor.config.change_flags(mode=python_mode(), cxx="", traceback__limit=0):
        yield compiler


@pytest.fixture
def c_compiler(no_compilation_in_c: str) -> Iterator[None]:
    """Let PyTensor compile in C as it would outside of the tests."""
    with pytensor.config.change_flags(cxx=no_compilation_in_c):
        yield


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rich take standard output for a terminal, for which alone it draws bars."""
    monkeypatch.setattr(rich.get_console(), "_force_terminal", True)
