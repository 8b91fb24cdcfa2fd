"""What tests of declarations share."""

from collections.abc import Iterator

import pytensor
import pytest


@pytest.fixture
def quick_compilation() -> Iterator[None]:
    """Compile without optimisation, which takes longer than evaluating a density a few times."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        yield
