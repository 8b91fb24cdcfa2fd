"""Studies: tables that are filled split by split, can be resumed, and stand beside the paper's.

A `Study` is a table of rows (methods) by columns (data sets). A `Task` fills some cells of one
column: its function runs one random split and returns a number for each cell. A finished split is a
file at once, named by the recipe (function and settings), the split and its seed, and is not
repeated. A seed depends on the study's seed, the column and the split alone: all tasks of a column
use the same splits, and neither order, processes nor interruptions change the table.
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
from rich.table import Column, Table
from scipy.stats import t as student
from scipy.stats import ttest_rel

from kernelzoo.inference.engine import quiet_sampler, records
from kernelzoo.validation import check_count

FOLDER = Path(__file__).parent
#: Titles, sizes and notes of the studies, such as choices where the papers are silent.
DESCRIPTIONS = tomllib.loads((FOLDER / "studies.toml").read_text(encoding="utf-8"))
#: Settings of the studies, by module.
RECIPES = tomllib.loads((FOLDER / "recipes.toml").read_text(encoding="utf-8"))
#: Options of fits inside a unit.
QUIET: dict[str, Any] = {"cores": 1, "progressbar": False, "log_likelihood": False}
#: Level of the intervals of `verdict`, and least number of splits for one.
LEVEL = 0.95
FEWEST = 5
#: Margin in points per cent, and for other numbers as a share of the printed one.
POINTS = 2.0
SHARE = 0.1


class Published(NamedTuple):
    """Printed mean; the number after its plus-minus, if any; half a unit of the last digit."""

    mean: float
    spread: float = np.nan
    rounding: float = 0.0


def printed(name: str) -> dict[tuple[str, str], Published]:
    """Read the printed numbers of a study by (row, column) from ``printed/NAME.csv``, if any."""
    path = FOLDER / "printed" / f"{name}.csv"
    if not path.exists():
        return {}
    return {
        (line.row, line.column): Published(line.mean, line.spread, line.rounding)
        for line in pd.read_csv(path).fillna({"rounding": 0.0}).itertuples()
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
        """Fingerprint of the function's name and the settings."""
        contents = [self.column, self.rows, self.function.__name__, self.settings]
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


class Claim(NamedTuple):
    """What a paper says: in each pair of rows, the first has larger numbers than the second."""

    text: str
    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Study:
    """A table of a paper, and the tasks that reproduce it.

    `published` numbers are by (row, column), and so are the reasons of `irreproducible` ones. The
    number after the paper's plus-minus is a standard deviation over splits, or with `spread` "se" a
    standard error. The printed numbers of the columns `relative` are not in per cent. Studies with
    common tasks share the folder of units `ledger`. `shown` are the table's rows, by default all.
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
    relative: tuple[str, ...] = ()
    irreproducible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    notes: str = ""
    ledger: str | None = None
    shown: frozenset[str] | None = None

    def rows_of(self, task: Task) -> tuple[str, ...]:
        """Rows of a task that are in the table."""
        return tuple(row for row in task.rows if self.shown is None or row in self.shown)

    def seed_of(self, column: str, split: int) -> int:
        """Seed of a split (32 bits), the same for every task of the column."""
        key = (zlib.crc32(column.encode()), split)
        return int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0])

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
    claims = tuple(
        Claim(each["text"], tuple(map(tuple, each["pairs"]))) for each in told.get("claims", ())
    )
    apart = ("like", "irreproducible", "claims")
    fields |= {key: value for key, value in told.items() if key not in apart}
    fields |= {"published": printed(name), "irreproducible": reasons, "claims": claims}
    return Study(name, tasks=tuple(tasks), **fields)


def run_study(
    study: Study, out: Path, *, splits: int | None = None, cores: int = 1, progressbar: bool = True
) -> "Report":
    """Run the unfinished units of a study, and write its table, ``NAME.csv``, to the folder `out`.

    Units are in the folder ``<ledger>``. A later call with more `splits` goes on from them, and
    repeats those that failed. With an active Dask client, its workers take the place of the `cores`
    processes. Ctrl-C loses no finished unit.
    """
    splits = check_count(study.splits if splits is None else splits, "splits", "run_study")
    made = records(
        Unit.run,
        study.units(splits),
        title=study.name,
        store=out / (study.ledger or study.name),
        cores=check_count(cores, "cores", "run_study"),
        progressbar=progressbar,
    )
    with closing(made):
        report = tabulate(study, dict(made), splits)
    out.mkdir(parents=True, exist_ok=True)
    report.table.drop(columns="values").to_csv(out / f"{study.name}.csv", index=False)
    return report


def tabulate(study: Study, found: Mapping[str, Mapping[str, Any]], splits: int) -> "Report":
    """Make the table of a study from records of its units by name, without running any."""
    lines = []
    for task in study.tasks:
        names = [study.unit(task, split).name for split in range(task.wanted(splits) or splits)]
        done = [found[name] for name in names if name in found]
        errors = [record["error"] for record in done if "error" in record]
        for row in study.rows_of(task):
            values = [record["values"][row] for record in done if "values" in record]
            left = max(task.wanted(splits) - len(values) - len(errors), 0)
            # Of skipped tasks, too, whose units were run elsewhere.
            finished = len(values) + len(errors) >= min(splits, task.splits or splits)
            line = _line(study, task, row, values, errors, finished=finished)
            lines.append(line | {"left": left})
    return Report(study, pd.DataFrame(lines))


def _line(
    study: Study, task: Task, row: str, values: list[float], errors: list[str], *, finished: bool
) -> dict[str, Any]:
    """Paper and ours (mean, sd over splits, divisor n - 1), difference and verdict of a cell."""
    cell = row, task.column
    paper = study.published.get(cell, Published(np.nan))
    theirs = paper.spread * (study.published_splits**0.5 if study.spread == "se" else 1.0)
    mean = float(np.mean(values)) if values else np.nan
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
    difference = mean - paper.mean
    if study.published_splits == 1:
        margin = paper.rounding
        reach = 0.0
    else:
        unit = SHARE * abs(paper.mean) if task.column in study.relative else POINTS
        margin = max(unit, np.nan_to_num(theirs))
        reach = paper.rounding + half_width(
            sd, len(values), float(np.nan_to_num(theirs)), study.published_splits
        )
    low = difference - reach
    high = difference + reach
    if not values:
        told = f"failed: {errors[0]}" if errors else "not run"
        told = f"skipped: {task.skip}" if task.skip else told
    elif np.isnan(paper.mean):
        told = "not in the paper"
    else:
        told = verdict(low, high, margin)
        if reach == np.inf or (told == "undecided" and not finished):
            told = "too few splits to tell"
        if told != "agrees" and reach < np.inf and cell in study.irreproducible:
            told = f"paper's cell cannot be reproduced: {study.irreproducible[cell]}"
    return {
        "column": task.column,
        "row": row,
        "paper": paper.mean,
        "paper_sd": theirs,
        "ours": mean,
        "sd": sd,
        "splits": len(values),
        "failed": len(errors),
        "difference": difference,
        "low": low,
        "high": high,
        "margin": np.nan if np.isnan(paper.mean) else margin,
        "verdict": told,
        "values": values,
    }


def half_width(sd: float, number: int, theirs: float, published_splits: int) -> float:
    """Half of Welch's interval of a difference of two means over splits, from their sds.

    A printed mean without an sd (`theirs` = 0) counts as exact. Infinite below ``FEWEST`` splits:
    a few equal numbers look like a standard deviation of 0.
    """
    if number < FEWEST:
        return np.inf
    ours = sd**2 / number
    exact = theirs**2 / published_splits
    if ours + exact == 0:
        return 0.0
    degrees = (ours + exact) ** 2 / (ours**2 / (number - 1) + exact**2 / (published_splits - 1))
    return float(student.isf((1 - LEVEL) / 2, degrees) * np.sqrt(ours + exact))


def verdict(low: float, high: float, margin: float) -> str:
    """Compare a cell with the paper's by an equivalence test.

    A cell agrees with the paper's if the 95 % interval of the difference of the two means lies
    within the margin, differs if it lies outside of the margin, and is undecided if the interval
    crosses the margin; fewer than five splits, or an undecided cell whose splits are not all run,
    are too few splits to tell. A cell that cannot be reproduced for a known reason says so in place
    of "differs" and "undecided". The margin is 2 points for numbers in per cent, a tenth of the
    printed number for others, or the paper's standard deviation over splits if that is larger. The
    interval is Welch's over the draw of splits, widened by the rounding of the printed mean; a mean
    printed without a spread counts as exact. A number that is not a mean over splits agrees if it
    is the printed one, rounded.
    """
    # The difference of two decimal numbers is not exact.
    if max(-low, high) <= margin + 1e-9:
        return "agrees"
    return "differs" if low > margin or high < -margin else "undecided"


#: The rule of `verdict`, for pages and tables.
RULE = " ".join(str(verdict.__doc__).split("\n\n")[1].split())
#: Columns of a table in print.
HEADER = ("data", "method", "paper", "ours", "splits", "difference", "margin", "verdict")
TESTED = ("the paper says", "data", "first", "second", "first - second", "p")


@dataclass(frozen=True)
class Report:
    """A study's table, a line per cell; prints as a table. ``values`` are those of the splits."""

    study: Study
    table: pd.DataFrame

    def repetitions(self) -> str:
        """Say how many splits the cells hold, of how many: "5 to 10 of 30 splits"."""
        held = self.table["splits"][self.table["splits"] > 0]
        number = " to ".join(map(str, sorted({held.min(), held.max()}))) if len(held) else "none"
        return f"{number} of {self.study.splits} splits"

    def printed(self) -> list[tuple[str, ...]]:
        """Rows of the table in print, below ``HEADER``."""
        rows = []
        for line in self.table.to_dict("records"):
            trouble = f" ({line['failed']} failed)" if line["failed"] else ""
            means = [
                " ± ".join(f"{x:.2f}" for x in pair if not np.isnan(x))
                for pair in ((line["paper"], line["paper_sd"]), (line["ours"], line["sd"]))
            ]
            difference = "" if np.isnan(line["difference"]) else f"{line['difference']:+.2f}"
            if np.isfinite(line["high"]) and line["high"] > line["low"]:
                difference += f" ({line['low']:+.2f} to {line['high']:+.2f})"
            margin = "" if np.isnan(line["margin"]) else f"{line['margin']:.2f}"
            number = f"{line['splits']}{trouble}"
            rows.append(
                (line["column"], line["row"], *means, number, difference, margin, line["verdict"])
            )
        return rows

    def tested(self) -> list[tuple[str, ...]]:
        """Test the paper's claims: a paired t-test per pair and column, below ``TESTED``."""
        lines = self.table[self.table["failed"] == 0].to_dict("records")
        # Rows of a column share their splits.
        values = {(line["row"], line["column"]): line["values"] for line in lines}
        rows: list[tuple[str, ...]] = []
        for claim in self.study.claims:
            for (first, second), column in product(claim.pairs, self.table["column"].unique()):
                pair = values.get((first, column), []), values.get((second, column), [])
                if len(pair[0]) != len(pair[1]) or len(pair[0]) < FEWEST:
                    continue
                difference = np.subtract(*pair)
                error = difference.std(ddof=1) / len(difference) ** 0.5
                p = f"{ttest_rel(*pair).pvalue:.2g}" if error > 0 else ""
                told = f"{difference.mean():+.2f} ± {error:.2f}"
                rows.append((claim.text, column, first, second, told, p))
        return rows

    def __rich__(self) -> Table:
        study = self.study
        caption = f"{study.measure}; {self.repetitions()}. {RULE if study.published else ''}"
        columns = (Column(name, overflow="fold") for name in HEADER)
        table = Table(*columns, title=study.title, caption=caption)
        for row in self.printed():
            table.add_row(*row)
        return table
