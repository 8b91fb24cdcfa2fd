"""Studies: tables that are filled split by split and can be stopped and resumed.

A `Study` is a table of rows (methods) by columns (data sets). A `Task` fills some cells of one
column: its function runs one random split and returns a number for each cell. One task on one split
is a *unit*, the smallest piece of work. A finished unit is a file at once, and is not repeated
when the study is started again.

A unit's seed depends only on the study's seed, the column and the number of the split: all tasks of
a column use the same splits, and neither the order of the units, the number of processes, nor
interruptions change the table.

A unit belongs to its recipe, the task's function and all its settings, and to the version of this
package. A task with changed settings starts anew and leaves the old units in the file; other tasks
keep their units.
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
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from kernelzoo.inference.engine import quiet_sampler, records, versions
from kernelzoo.validation import argument_error, check_count

from .report import Cell, Published, Report, printed

__all__ = ["Study", "Task", "described", "read_units", "run_study", "tabulate"]

#: Titles, sizes and notes of the studies.
DESCRIPTIONS = tomllib.loads((Path(__file__).parent / "studies.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Task:
    """Work on one column of a table.

    Parameters
    ----------
    column : str
    rows : tuple of str
        Rows of the column's cells that the task fills.
    function : callable
        ``function(column, seed, **settings)`` returns a mapping with a finite number for each row.
        It must be defined at the top of a module, so that other processes find it.
    settings : mapping, optional
        All other settings that affect the numbers, as JSON values.
    skip : str, optional
        Why the task cannot be run here.
    splits : int, optional
        Number of splits, if fewer than the study's, for slow tasks.
    """

    column: str
    rows: tuple[str, ...]
    function: Callable[..., Mapping[str, float]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    skip: str | None = None
    splits: int | None = None

    def wanted(self, splits: int) -> int:
        """Count the task's splits in a study with `splits`; 0 if the task is skipped."""
        if self.skip is not None:
            return 0
        return splits if self.splits is None else min(splits, self.splits)

    @property
    def recipe(self) -> str:
        """Fingerprint of the function and the settings."""
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        contents = [self.column, self.rows, name, self.settings]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Study:
    """A table of a paper and the tasks that reproduce it.

    Parameters
    ----------
    name : str
        Name of the study and of its files.
    title, measure : str
        Title of the table, and meaning of its numbers.
    tasks : tuple of Task
        Tasks in the order of the table's rows and columns.
    splits : int
        Number of splits of every column.
    seed : int
    published : mapping of (row, column) to Published
        Printed numbers of the paper, as `printed` reads them.
    published_splits : int
    spread : {"sd", "se"}
        Meaning of the number after the paper's plus-minus: standard deviation over splits, or
        standard error of the mean.
    irreproducible : mapping of (row, column) to str
        Known reasons why a published number cannot be reproduced.
    notes : str
        Notes for the report.
    ledger : str, optional
        Name of the folder of finished units, which studies with common tasks share. Default:
        `name`.
    shown : set of str, optional
        Rows of the table. Default: all rows of the tasks.
    draw : callable, optional
        ``draw(report)`` makes the figure.
    """

    name: str
    title: str
    measure: str
    tasks: tuple[Task, ...]
    splits: int
    seed: int
    published: Mapping[tuple[str, str], Published] = field(default_factory=dict)
    published_splits: int = 30
    spread: Literal["sd", "se"] = "sd"
    irreproducible: Mapping[tuple[str, str], str] = field(default_factory=dict)
    notes: str = ""
    ledger: str | None = None
    shown: frozenset[str] | None = None
    draw: Callable[[Report], Figure] | None = None

    def seed_of(self, column: str, split: int) -> int:
        """Seed of a split (32 bits), the same for every task of the column."""
        key = (zlib.crc32(column.encode()), split)
        return int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0])

    def rows_of(self, task: Task) -> tuple[str, ...]:
        """Rows of a task that are in the table."""
        return tuple(row for row in task.rows if self.shown is None or row in self.shown)

    def units(self, splits: int) -> "list[Unit]":
        """Units of the shown rows, ordered by split."""
        return [
            self.unit(task, split)
            for split in range(splits)
            for task in self.tasks
            if split < task.wanted(splits) and self.rows_of(task)
        ]

    def unit(self, task: Task, split: int) -> "Unit":
        """One task on one split."""
        return Unit(task, split, self.seed_of(task.column, split))


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


@dataclass(frozen=True)
class Unit:
    """One task on one split."""

    task: Task
    split: int
    seed: int

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of a record that tell units apart."""
        values = self.task.recipe, versions()["kernelzoo"], self.split, self.seed
        return dict(zip(_KEY, values, strict=True))

    @property
    def key(self) -> tuple[Any, ...]:
        """Key of the unit among records."""
        return tuple(self.fields.values())

    @property
    def name(self) -> str:
        """Name of the unit's file."""
        return "-".join(map(str, self.key))

    def run(self) -> dict[str, Any]:
        """Run the unit; return a record of its values."""
        with quiet_sampler():
            values = self.task.function(self.task.column, self.seed, **self.task.settings)
        numbers = {row: float(value) for row, value in values.items()}
        if set(numbers) != set(self.task.rows) or not np.isfinite(list(numbers.values())).all():
            needed = f"one that returns a finite number for each of {', '.join(self.task.rows)}"
            raise argument_error("function", "Task", needed, repr(numbers))
        return {**self.fields, "column": self.task.column, "values": numbers}


_KEY = ("recipe", "kernelzoo", "split", "seed")
# The version that wrote no version into its records.
_FIRST = {"kernelzoo": "0.1.0"}


def run_study(
    study: Study,
    out: Path,
    *,
    splits: int | None = None,
    jobs: int = 1,
    progressbar: bool = True,
) -> Report:
    """Run the unfinished units of a study, and write its table.

    Parameters
    ----------
    study : Study
    out : Path
        Folder of the table, ``<name>.csv`` and ``<name>.md``, and of the folder ``<ledger>`` with a
        file per unit. Units of an earlier run in ``<ledger>.jsonl`` count, too, one per line, as
        the folder's files are when they are joined.
    splits : int, optional
        Number of splits in place of the study's. A later call with more splits reuses the units.
    jobs : int, default=1
        Number of processes; with an active Dask client, its workers take their place.
    progressbar : bool, default=True

    Returns
    -------
    Report
        Table of the finished splits: all splits, unless the study was interrupted (Ctrl-C) or units
        failed. The next call repeats failed units.
    """
    splits = check_count(study.splits if splits is None else splits, "splits", "run_study")
    check_count(jobs, "jobs", "run_study")
    name = study.ledger or study.name
    found = read_units(out, name)
    finished = {_key_of(record) for record in found}
    unfinished = {unit.name: unit for unit in study.units(splits) if unit.key not in finished}
    made = records(
        lambda: Unit.run,
        unfinished,
        title=study.name,
        owner="run_study",
        store=out / name,
        cores=jobs,
        progressbar=progressbar,
    )
    interrupted = False
    try:
        with closing(made):
            for each, record in made:
                found.append({**unfinished[each].fields, **record})
    except KeyboardInterrupt:
        interrupted = True
    report = tabulate(study, found, splits, interrupted=interrupted)
    report.write(out)
    return report


def read_units(folder: Path, name: str) -> list[dict[str, Any]]:
    """Read the records of finished units in the file ``NAME.jsonl`` and in the folder ``NAME``.

    Raises
    ------
    ValueError
        When a line is no record; the message names the file.
    """
    found = []
    for path in (folder / f"{name}.jsonl", *sorted((folder / name).glob("*.json"))):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                record = json.loads(line)
                _ = record["values"], _key_of(record)
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(
                    f"{path} has a line that is no finished unit: {line[:60]!r}. Remove the line, "
                    "or choose another folder."
                ) from error
            found.append(record)
    return found


def _key_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple({**_FIRST, **record}.get(field) for field in _KEY)


def tabulate(
    study: Study,
    units: Iterable[Mapping[str, Any]],
    splits: int,
    *,
    interrupted: bool = False,
    any_version: bool = False,
) -> Report:
    """Make the table of a study from records of its units, without running any.

    Units of other versions of kernelzoo count only with `any_version`; the last one counts then.
    """

    def place(key: tuple[Any, ...]) -> tuple[Any, ...]:
        recipe, version, *rest = key
        return (recipe, None if any_version else version, *rest)

    known: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for record in units:
        key = place(_key_of(record))
        # A unit may have failed before it was finished; the finished record counts.
        if "values" in record or "values" not in known.get(key, {}):
            known[key] = record
    cells = []
    for task in study.tasks:
        wanted = task.wanted(splits)
        numbers = range(splits if task.skip else wanted)
        keys = [place(study.unit(task, split).key) for split in numbers]
        found = [known[key] for key in keys if key in known]
        cells += [
            Cell(
                row=row,
                column=task.column,
                values=tuple(r["values"][row] for r in found if "values" in r),
                errors=tuple(r["error"] for r in found if "error" in r),
                wanted=wanted,
                skip=task.skip,
                published=study.published.get((row, task.column)),
                irreproducible=study.irreproducible.get((row, task.column)),
            )
            for row in study.rows_of(task)
        ]
    return Report(study, tuple(cells), interrupted)
