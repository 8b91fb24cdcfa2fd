"""What all tests share."""

from collections.abc import Iterator

import pytensor
import pytest

from kernelzoo.inference.engine.compilation import python_mode


@pytest.fixture(scope="session", autouse=True)
def no_compilation_in_c() -> Iterator[str]:
    """Let NumPy evaluate what PyTensor would compile by numba or in C, unless a test says so.

    Most graphs of tests are used a few times.
    """
    compiler = pytensor.config.cxx
    with pytensor.config.change_flags(mode=python_mode(), cxx=""):
        yield compiler


@pytest.fixture
def c_compiler(no_compilation_in_c: str) -> Iterator[None]:
    """Let PyTensor compile in C as it would outside of the tests."""
    with pytensor.config.change_flags(cxx=no_compilation_in_c):
        yield
