"""Studies: tables that are filled split by split, can be resumed, and stand beside the paper's.

A `Study` is a table of rows (methods) by columns (data sets). A `Task` fills some cells of one
column: its function runs one random split and returns a number for each cell. A finished split is a
file at once, named by the recipe (function and settings), the split and its seed, and is not
repeated. A seed depends on the study's seed, the column and the split alone: all tasks of a column
use the same splits, and neither order, processes nor interruptions change the table.

A cell *agrees* with the paper if Welch's t test does not reject equal means at level 0.01, and
*differs* otherwise. Both means are over splits of the same data, so that standard errors cover the
draw of splits only. Where the paper prints no spread, its number counts as exact apart from
rounding. Below five splits there is no verdict.
"""

import hashlib
import json
import tomllib
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.table import Table
from scipy.stats import ttest_ind_from_stats

from kernelzoo.inference.engine import quiet_sampler, records
from kernelzoo.validation import check_count

__all__ = ["Published", "Report", "Study", "Task", "described", "printed", "run_study", "tabulate"]

FOLDER = Path(__file__).parent
#: Titles, sizes and notes of the studies.
DESCRIPTIONS = tomllib.loads((FOLDER / "studies.toml").read_text(encoding="utf-8"))
#: Settings of the studies, by module.
RECIPES = tomllib.loads((FOLDER / "recipes.toml").read_text(encoding="utf-8"))
#: Level of the test, and least number of splits for a verdict.
LEVEL, FEWEST = 0.01, 5


class Published(NamedTuple):
    """Printed mean; the number after its plus-minus, if any; half a unit of the last digit."""

    mean: float
    spread: float | None = None
    rounding: float = 0.0


def printed(name: str) -> dict[tuple[str, str], Published]:
    """Read the printed numbers of a study by (row, column) from ``printed/NAME.csv``, if any."""
    path = FOLDER / "printed" / f"{name}.csv"
    if not path.exists():
        return {}
    return {
        (line.row, line.column): Published(
            line.mean, None if np.isnan(line.spread) else line.spread, np.nan_to_num(line.rounding)
        )
        for line in pd.read_csv(path).itertuples()
    }


@dataclass(frozen=True)
class Task:
    """Work on some rows of one column.

    ``function(column, seed, **settings)``, at the top of a module, returns a finite number for each
    row. `settings` are JSON values. `skip` says why the task cannot be run here. `splits` are fewer
    than the study's, for slow tasks.
    """

    column: str
    rows: tuple[str, ...]
    function: Callable[..., Mapping[str, float]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    skip: str | None = None
    splits: int | None = None

    def wanted(self, splits: int) -> int:
        """Count the task's splits in a study with `splits`; 0 if the task is skipped."""
        return 0 if self.skip else min(splits, self.splits or splits)

    @property
    def recipe(self) -> str:
        """Fingerprint of the function and the settings."""
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        contents = [self.column, self.rows, name, self.settings]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]


class Unit(NamedTuple):
    """One task on one split."""

    task: Task
    split: int
    seed: int

    @property
    def name(self) -> str:
        """Name of the unit's file."""
        return f"{self.task.recipe}-{self.split}-{self.seed}"

    def run(self) -> dict[str, Any]:
        """Run the unit; return a record of its values."""
        with quiet_sampler():
            values = self.task.function(self.task.column, self.seed, **self.task.settings)
        numbers = {row: float(value) for row, value in values.items()}
        if set(numbers) != set(self.task.rows) or not np.isfinite(list(numbers.values())).all():
            raise ValueError(f"A finite number is needed for {self.task.rows}. Got {numbers}.")
        return {"column": self.task.column, "values": numbers}


@dataclass(frozen=True)
class Study:
    """A table of a paper, and the tasks that reproduce it.

    `published` numbers are by (row, column), and so are the reasons of `irreproducible` ones. The
    number after the paper's plus-minus is a standard deviation over splits, or with `spread` "se" a
    standard error. Studies with common tasks share the folder of units `ledger`. `shown` are the
    rows of the table, by default all.
    """

    name: str
    title: str
    measure: str
    tasks: tuple[Task, ...]
    splits: int
    seed: int
    published: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    published_splits: int = 30
    spread: str = "sd"
    irreproducible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: str = ""
    ledger: str | None = None
    shown: frozenset[str] | None = None

    def seed_of(self, column: str, split: int) -> int:
        """Seed of a split (32 bits), the same for every task of the column."""
        key = (zlib.crc32(column.encode()), split)
        return int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0])

    def rows_of(self, task: Task) -> tuple[str, ...]:
        """Rows of a task that are in the table."""
        return tuple(row for row in task.rows if self.shown is None or row in self.shown)

    def unit(self, task: Task, split: int) -> Unit:
        """One task on one split."""
        return Unit(task, split, self.seed_of(task.column, split))

    def units(self, splits: int) -> dict[str, Unit]:
        """Units of the shown rows by name, ordered by split."""
        each = (
            self.unit(task, split)
            for split in range(splits)
            for task in self.tasks
            if split < task.wanted(splits) and self.rows_of(task)
        )
        return {unit.name: unit for unit in each}


def described(name: str, tasks: Iterable[Task], **fields: Any) -> Study:
    """Make the study that ``studies.toml`` describes, with the numbers of ``printed/NAME.csv``."""
    told = DESCRIPTIONS[name]
    told = DESCRIPTIONS.get(told.get("like"), {}) | told
    reasons = {
        cell: each["reason"]
        for each in told.get("irreproducible", ())
        for cell in product(each["rows"], each["columns"])
    }
    own = {key: value for key, value in told.items() if key not in ("like", "irreproducible")}
    return Study(
        name=name,
        tasks=tuple(tasks),
        published=printed(name),
        irreproducible=reasons,
        **own,
        **fields,
    )


def run_study(
    study: Study,
    out: Path,
    *,
    splits: int | None = None,
    cores: int = 1,
    progressbar: bool = True,
) -> "Report":
    """Run the unfinished units of a study, and write its table to the folder `out`.

    Units are in the folder ``<ledger>``. A later call with more `splits` goes on from them, and
    repeats those that failed. With an active Dask client, its workers take the place of the `cores`
    processes. After Ctrl-C the table has the finished splits.
    """
    splits = check_count(study.splits if splits is None else splits, "splits", "run_study")
    units = study.units(splits)
    made = records(
        lambda: Unit.run,
        units,
        title=study.name,
        owner="run_study",
        store=out / (study.ledger or study.name),
        cores=check_count(cores, "cores", "run_study"),
        progressbar=progressbar,
    )
    found: dict[str, Mapping[str, Any]] = {}
    interrupted = False
    try:
        with closing(made):
            for name, record in made:
                found[name] = record
    except KeyboardInterrupt:
        interrupted = True
    report = tabulate(study, found, splits, interrupted=interrupted)
    report.write(out)
    return report


def tabulate(
    study: Study, found: Mapping[str, Mapping[str, Any]], splits: int, *, interrupted: bool = False
) -> "Report":
    """Make the table of a study from records of its units by name, without running any."""
    lines = []
    for task in study.tasks:
        names = [study.unit(task, split).name for split in range(task.wanted(splits) or splits)]
        done = [found[name] for name in names if name in found]
        errors = [record["error"] for record in done if "error" in record]
        for row in study.rows_of(task):
            values = [record["values"][row] for record in done if "values" in record]
            left = task.wanted(splits) - len(values) - len(errors)
            lines.append(_line(study, task, row, values, errors) | {"left": max(left, 0)})
    return Report(study, pd.DataFrame(lines), interrupted)


def _line(
    study: Study, task: Task, row: str, values: list[float], errors: list[str]
) -> dict[str, Any]:
    """Paper and ours (mean, sd over splits, divisor n - 1), difference and verdict of a cell."""
    cell = row, task.column
    paper = study.published.get(cell)
    theirs = np.nan if paper is None or paper.spread is None else paper.spread
    theirs *= study.published_splits**0.5 if study.spread == "se" else 1.0
    mean = float(np.mean(values)) if values else np.nan
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
    # Of the difference, or of our mean if the paper has no sd.
    error = np.hypot(
        sd / max(len(values), 1) ** 0.5, np.nan_to_num(theirs) / study.published_splits**0.5
    )
    if values:
        told = verdict(study, cell, mean, sd, len(values), float(np.nan_to_num(theirs)))
    elif task.skip:
        told = f"skipped: {task.skip}"
    else:
        told = f"failed: {errors[0]}" if errors else "not run"
    return {
        "column": task.column,
        "row": row,
        "paper": np.nan if paper is None else paper.mean,
        "paper_sd": theirs,
        "ours": mean,
        "sd": sd,
        "splits": len(values),
        "failed": len(errors),
        "difference": np.nan if paper is None else mean - paper.mean,
        "standard_error": np.nan if paper is None else error,
        "verdict": told,
        "values": values,
    }


def verdict(
    study: Study, cell: tuple[str, str], mean: float, sd: float, number: int, theirs: float
) -> str:
    """Verdict on a cell with our mean and sd over `number` splits; `theirs` is the paper's sd."""
    paper = study.published.get(cell)
    if paper is None:
        return "not in the paper"
    gap = max(abs(mean - paper.mean) - paper.rounding, 0.0)
    if study.published_splits == 1:
        agrees = gap == 0
    elif number < FEWEST:
        return "too few splits"
    elif sd == theirs == 0:
        agrees = round(gap, 2) == 0
    else:
        # With a standard deviation of 0, Welch's test is Student's t test against a number.
        welch = ttest_ind_from_stats(
            gap, sd, number, 0, theirs, study.published_splits, equal_var=False
        )
        agrees = welch.pvalue >= LEVEL
    if agrees:
        return "agrees"
    reason = study.irreproducible.get(cell)
    return f"paper's cell cannot be reproduced: {reason}" if reason else "differs"


@dataclass(frozen=True)
class Report:
    """A study's table, a line per cell; prints as a table. ``values`` are those of the splits."""

    study: Study
    table: pd.DataFrame
    interrupted: bool = False

    def write(self, folder: Path) -> None:
        """Write ``<name>.csv`` with all digits, and ``<name>.md`` for reading."""
        folder.mkdir(parents=True, exist_ok=True)
        self.table.drop(columns="values").to_csv(folder / f"{self.study.name}.csv", index=False)
        (folder / f"{self.study.name}.md").write_text(self.markdown(), encoding="utf-8")

    def markdown(self) -> str:
        """Table, rule of the verdicts, and recipes."""
        study = self.study
        header, *body = self.printed()
        lines = [f"# {study.title}", "", f"{study.measure}: mean ± sd over random splits.", ""]
        for row in (header, ["---"] * len(header), *body):
            escaped = (entry.replace("|", "\\|").replace("\n", " ") for entry in row)
            lines.append(f"| {' | '.join(escaped)} |")
        lines += ["", self.rule(), *([study.notes] if study.notes else []), "", "Settings:", ""]
        for task in study.tasks:
            if rows := study.rows_of(task):
                settings = json.dumps(dict(task.settings), sort_keys=True)
                lines.append(f"- {task.column}, {', '.join(rows)}: `{settings}`")
        return "\n".join(lines) + "\n"

    def rule(self) -> str:
        """Rule of the verdicts."""
        study = self.study
        if study.published_splits == 1:
            return "Not a mean over splits: a cell agrees when it is the printed number, rounded."
        spread = {"sd": "standard deviation", "se": "standard error"}[study.spread]
        alone = any(paper.spread is None for paper in study.published.values())
        exact = " A mean printed without a spread counts as exact." if alone else ""
        return (
            f"A cell agrees when Welch's t test of the two means, less rounding, has p >= {LEVEL}; "
            "se is the standard error of the difference over the draw of splits. The paper has "
            f"{study.published_splits} splits and prints a {spread} with its means. Below {FEWEST} "
            f"splits there is no verdict.{exact}"
        )

    def printed(self) -> list[list[str]]:
        """Header and rows of the table in print."""
        rows = [["data", "method", "paper", "ours", "splits", "difference", "se", "verdict"]]
        for line in self.table.to_dict("records"):
            trouble = f" ({line['failed']} failed)" if line["failed"] else ""
            means = [
                " ± ".join(f"{x:.2f}" for x in pair if not np.isnan(x))
                for pair in ((line["paper"], line["paper_sd"]), (line["ours"], line["sd"]))
            ]
            difference, error = line["difference"], line["standard_error"]
            rows.append(
                [
                    *(line["column"], line["row"], *means, f"{line['splits']}{trouble}"),
                    "" if np.isnan(difference) else f"{difference:+.2f}",
                    "" if np.isnan(error) else f"{error:.2f}",
                    line["verdict"],
                ]
            )
        return rows

    def __rich__(self) -> Table:
        header, *body = self.printed()
        table = Table(title=self.study.title, caption=self.rule())
        for name in header:
            table.add_column(name, overflow="fold")
        for row in body:
            table.add_row(*row)
        return table
