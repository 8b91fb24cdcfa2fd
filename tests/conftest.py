"""What all tests share."""

from collections.abc import Iterator

import pytensor
import pytest


@pytest.fixture(scope="session", autouse=True)
def no_compilation_in_c() -> Iterator[str]:
    """Let Python evaluate what PyTensor would compile in C: most graphs of tests are used once."""
    compiler = pytensor.config.cxx
    with pytensor.config.change_flags(cxx=""):
        yield compiler


@pytest.fixture
def c_compiler(no_compilation_in_c: str) -> Iterator[None]:
    """Let PyTensor compile in C as it would outside of the tests."""
    with pytensor.config.change_flags(cxx=no_compilation_in_c):
        yield
