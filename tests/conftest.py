"""What all tests share."""

from collections.abc import Iterator

import pytensor
import pytest


@pytest.fixture(scope="session", autouse=True)
def no_compilation_in_c() -> Iterator[None]:
    """Let Python evaluate what PyTensor would compile in C: most graphs of tests are used once."""
    with pytensor.config.change_flags(cxx=""):
        yield
