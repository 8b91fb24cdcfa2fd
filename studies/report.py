"""A study's table: the paper's numbers and ours, with a verdict for each cell.

The verdict compares two means over random splits by Welch's t test. Both are means over splits of
the same data, so the standard errors cover the draw of splits only. A cell *agrees* if the test
does not reject equal means at level 0.01, and *differs* otherwise. The test has little power where
its standard error is large, so the standard error is shown with the verdict. With fewer than five
splits there is no verdict.

If the paper prints no spread, its number counts as exact apart from rounding, and the test is
Student's t test of our mean. This rejects too often, because the paper's own error is left out.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import ttest_ind_from_stats

if TYPE_CHECKING:
    from .study import Study

__all__ = ["LEVEL", "Cell", "Published", "Report", "printed"]

#: Level of the test.
LEVEL = 0.01
#: Least number of splits for a verdict.
FEWEST = 5
#: The papers' tables, one file per study.
PRINTED = Path(__file__).parent / "printed"


@dataclass(frozen=True)
class Published:
    """Printed numbers of a cell.

    Parameters
    ----------
    mean : float
        Mean over splits.
    spread : float, optional
        The number after the plus-minus. None if the paper prints none: then only our standard error
        and the rounding explain a difference.
    rounding : float, default=0
        Half a unit of the mean's last digit, if that matters relative to the standard error.
    """

    mean: float
    spread: float | None = None
    rounding: float = 0.0

    def sd(self, splits: int, spread: Literal["sd", "se"]) -> float:
        """Compute the standard deviation over splits from `spread`; NaN without a spread."""
        if self.spread is None:
            return np.nan
        return self.spread * (splits**0.5 if spread == "se" else 1.0)


def printed(name: str) -> dict[tuple[str, str], Published]:
    """Read the printed numbers of a study by (row, column) from ``printed/NAME.csv``, if any."""
    path = PRINTED / f"{name}.csv"
    if not path.exists():
        return {}
    return {
        (line.row, line.column): Published(
            line.mean, None if np.isnan(line.spread) else line.spread, np.nan_to_num(line.rounding)
        )
        for line in pd.read_csv(path).itertuples()
    }


@dataclass(frozen=True)
class Cell:
    """One cell of a table with the numbers of its finished splits, in order."""

    row: str
    column: str
    values: tuple[float, ...]
    errors: tuple[str, ...]
    wanted: int
    skip: str | None
    published: Published | None
    irreproducible: str | None

    @property
    def mean(self) -> float:
        """Mean over splits."""
        return float(np.mean(self.values)) if self.values else np.nan

    @property
    def sd(self) -> float:
        """Standard deviation over splits, divisor n - 1."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else np.nan

    def standard_error(self, published_sd: float, published_splits: int) -> float:
        """Compute the standard error of the difference, or of our mean if the paper has no sd."""
        if self.published is None or len(self.values) < 2:
            return np.nan
        theirs = np.nan_to_num(published_sd) / published_splits**0.5
        return float(np.hypot(self.sd / len(self.values) ** 0.5, theirs))

    def verdict(self, published_sd: float, published_splits: int) -> str:
        """Verdict on the cell; `published_sd` is NaN if the paper prints no sd."""
        if not self.values:
            if self.skip:
                return f"skipped: {self.skip}"
            return f"failed: {self.errors[0]}" if self.errors else "not run"
        if self.published is None:
            return "not in the paper"
        gap = max(abs(self.mean - self.published.mean) - self.published.rounding, 0.0)
        # With a standard deviation of 0, Welch's test is Student's t test against a number.
        theirs = float(np.nan_to_num(published_sd))
        if published_splits == 1:
            agrees = gap == 0
        elif len(self.values) < FEWEST:
            return "too few splits"
        elif self.sd == theirs == 0:
            agrees = round(gap, 2) == 0
        else:
            welch = ttest_ind_from_stats(
                gap, self.sd, len(self.values), 0, theirs, published_splits, equal_var=False
            )
            agrees = welch.pvalue >= LEVEL
        if agrees:
            return "agrees"
        if self.irreproducible:
            return f"paper's cell cannot be reproduced: {self.irreproducible}"
        return "differs"


@dataclass(frozen=True)
class Report:
    """A study's table; prints as a table.

    Parameters
    ----------
    study : Study
    cells : tuple of Cell
    interrupted : bool
        Whether the study was stopped before all units were done.
    """

    study: "Study"
    cells: tuple[Cell, ...]
    interrupted: bool = False

    @property
    def table(self) -> pd.DataFrame:
        """Table with a row per cell: paper and ours (mean, sd, splits), difference and verdict."""
        return pd.DataFrame([self._line(cell) for cell in self.cells])

    def _line(self, cell: Cell) -> dict[str, Any]:
        paper, splits = cell.published or Published(np.nan), self.study.published_splits
        against = paper.sd(splits, self.study.spread), splits
        return {
            "column": cell.column,
            "row": cell.row,
            "paper": paper.mean,
            "paper_sd": against[0],
            "ours": cell.mean,
            "sd": cell.sd,
            "splits": len(cell.values),
            "failed": len(cell.errors),
            "left": cell.wanted - len(cell.values) - len(cell.errors),
            "difference": cell.mean - paper.mean,
            "standard_error": cell.standard_error(*against),
            "verdict": cell.verdict(*against),
        }

    def write(self, folder: Path) -> None:
        """Write ``<name>.csv`` with all digits, and ``<name>.md`` for reading."""
        folder.mkdir(parents=True, exist_ok=True)
        self.table.to_csv(folder / f"{self.study.name}.csv", index=False)
        (folder / f"{self.study.name}.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        """Table, rule of the verdicts, and recipes."""
        study = self.study
        header, *body = self._printed()
        lines = [f"# {study.title}", "", f"{study.measure}: mean ± sd over random splits.", ""]
        lines += [_markdown_row(row) for row in (header, ["---"] * len(header), *body)]
        lines += ["", self.rule(), *([study.notes] if study.notes else []), "", "Settings:", ""]
        for task in study.tasks:
            if rows := study.rows_of(task):
                settings = json.dumps(dict(task.settings), sort_keys=True)
                lines.append(f"- {task.column}, {', '.join(rows)}: `{settings}`")
        return "\n".join(lines) + "\n"

    def rule(self) -> str:
        """Rule of the verdicts."""
        if self.study.published_splits == 1:
            return "Not a mean over splits: a cell agrees when it is the printed number, rounded."
        spread = {"sd": "standard deviation", "se": "standard error"}[self.study.spread]
        alone = any(cell.published and cell.published.spread is None for cell in self.cells)
        exact = " A mean printed without a spread counts as exact." if alone else ""
        return (
            f"A cell agrees when Welch's t test of the two means, less rounding, has p >= {LEVEL}; "
            "se is the standard error of the difference over the draw of splits. The paper has "
            f"{self.study.published_splits} splits and prints a {spread} with its means. Below "
            f"{FEWEST} splits there is no verdict.{exact}"
        )

    def _printed(self) -> list[list[str]]:
        rows = [["data", "method", "paper", "ours", "splits", "difference", "se", "verdict"]]
        for line in self.table.to_dict("records"):
            trouble = f" ({line['failed']} failed)" if line["failed"] else ""
            rows.append(
                [
                    line["column"],
                    line["row"],
                    _mean_and_sd(line["paper"], line["paper_sd"]),
                    _mean_and_sd(line["ours"], line["sd"]),
                    f"{line['splits']}{trouble}",
                    _number(line["difference"], "+.2f"),
                    _number(line["standard_error"], ".2f"),
                    line["verdict"],
                ]
            )
        return rows

    def __rich__(self) -> Table:
        header, *body = self._printed()
        table = Table(title=self.study.title, caption=self.rule())
        for name in header:
            table.add_column(name, overflow="fold")
        for row in body:
            table.add_row(*row)
        return table

    def __repr__(self) -> str:
        console = Console(width=110, force_terminal=False, force_jupyter=False, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()


def _number(value: float, form: str) -> str:
    return "" if np.isnan(value) else format(value, form)


def _mean_and_sd(mean: float, sd: float) -> str:
    return " ± ".join(filter(None, (_number(mean, ".2f"), _number(sd, ".2f"))))


def _markdown_row(entries: list[str]) -> str:
    escaped = (entry.replace("|", "\\|").replace("\n", " ") for entry in entries)
    return f"| {' | '.join(escaped)} |"
