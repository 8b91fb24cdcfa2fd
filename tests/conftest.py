"""What all tests share."""

import gc
from collections.abc import Iterator

import pytensor
import pytest

from kernelzoo.inference.engine.compilation import python_mode


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
