"""The option that writes the table of certificates, and what its tests share."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from certificates.checks import Finding
from certificates.table import TABLE, Writer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the table."""
    parser.addoption("--write-certificates", action="store_true", help=f"write {TABLE.name}")


def pytest_configure(config: pytest.Config) -> None:
    """Write the table in the process to which all others report."""
    if config.getoption("write_certificates", False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Writer())


@pytest.fixture
def found(
    request: pytest.FixtureRequest, record_property: Callable[[str, Any], None]
) -> Callable[[Finding], None]:
    """Take what a check found into the report of its test, which fails if the check did."""
    check = request.function.__name__.removeprefix("test_").replace("_", " ")
    cell = {name: request.node.callspec.params[name] for name in ("variant", "engine")}
    record_property("cell", cell | {"check": check})
    begun = process_time()

    def take(finding: Finding) -> None:
        # pytest-xdist sends no numbers of NumPy.
        figures = [each if isinstance(each, str) else float(each) for each in finding]
        seconds = {"seconds": process_time() - begun}
        record_property("finding", Finding(*figures)._asdict() | seconds)
        assert finding.verdict != "failed", finding

    return take
