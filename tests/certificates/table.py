"""Writes what the certificates' tests found to one table."""

from datetime import date
from pathlib import Path

import pandas as pd
import pytest

import kernelzoo as kz
from certificates.checks import Finding

TABLE = Path(__file__).resolve().parents[2] / "docs" / "certificates.csv"
KEY = ["variant", "engine", "check"]
COLUMNS = [*KEY, *Finding._fields, "seconds", "version", "date"]


class Writer:
    """Plugin that writes the row of each test when it ends; the other rows of the table stay."""

    def __init__(self, table: Path = TABLE):
        self.table = table

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        told = dict(report.user_properties)
        if report.when != "call" or "cell" not in told:
            return
        # An error of the engine ends the test before there is a finding.
        end = " ".join(report.longreprtext[-200:].split())
        error = Finding("failed", note=end)._asdict()
        row = told["cell"] | told.get("finding", error | {"seconds": report.duration})
        row |= {"version": kz.__version__, "date": str(date.today())}
        old = pd.read_csv(self.table) if self.table.exists() else pd.DataFrame(columns=COLUMNS)
        others = old[(old[KEY] != pd.Series(row)[KEY]).any(axis=1)]
        new = pd.concat([others, pd.DataFrame([row], columns=COLUMNS)]).sort_values(KEY)
        new.to_csv(self.table, index=False, float_format="%.3g")
