"""Studies: tables of cells that are filled split by split, can be killed, and are resumed.

A `Study` is a table of rows (methods) by columns (data sets). A `Task` fills some cells of one
column: its function runs one random split and returns a number a cell. One task on one split is a
*unit*, the piece of work that is done wholly or not at all. Finished units are appended to a file
at once; when the study is started again they are not repeated.

Every unit's seed comes from the study's seed, the column and the number of the split, and from
nothing else: all tasks of a column see the same splits, and neither the order of the units, the
number of processes, nor interruptions change a number of the table.

A unit belongs to the recipe that made it: the task's function and all of its settings. A task whose
settings were changed starts anew, beside the old units, and the other tasks keep theirs.
"""

import hashlib
import json
import logging
import signal
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from matplotlib.figure import Figure

from ..inference.engine import track
from ..validation import argument_error, check_count
from .ledger import Ledger
from .report import Cell, Published, Report

__all__ = ["Study", "Task", "run_study"]


@dataclass(frozen=True)
class Task:
    """Work on one column of a table.

    Parameters
    ----------
    column : str
    rows : tuple of str
        Cells of the column that it fills.
    function : callable
        ``function(column, seed, **settings)`` returns a finite number a row, as a mapping. It is
        to be defined at the top of a module, so that other processes find it.
    settings : mapping, optional
        Whatever else shapes the numbers, as JSON has it.
    skip : str, optional
        Why the task cannot be run here.
    splits : int, optional
        Where it is to have fewer than its study, as it takes long.
    """

    column: str
    rows: tuple[str, ...]
    function: Callable[..., Mapping[str, float]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    skip: str | None = None
    splits: int | None = None

    def wanted(self, splits: int) -> int:
        """Give the number of its splits where the study has so many: 0 when it is skipped."""
        if self.skip is not None:
            return 0
        return splits if self.splits is None else min(splits, self.splits)

    @property
    def recipe(self) -> str:
        """Fingerprint of what makes the numbers."""
        contents = [
            self.column,
            self.rows,
            f"{self.function.__module__}.{self.function.__qualname__}",
            self.settings,
        ]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Study:
    """A table of a paper and the tasks that reproduce it.

    Parameters
    ----------
    name : str
        Also of the files.
    title, measure : str
        What the table is and what its numbers are.
    tasks : tuple of Task
        Their order is that of the table's rows and columns.
    splits : int
        Of every column.
    seed : int
    published : mapping of (row, column) to Published
        What the paper prints.
    published_splits : int
    spread : {"sd", "se"}
        What stands behind the paper's plus-minus: the standard deviation over splits, or the
        standard error of the mean.
    irreproducible : mapping of (row, column) to str
        Why a published number cannot be met, where that is known.
    notes : str
        For the report.
    ledger : str, optional
        Name of the file of finished units, which studies with tasks in common share. Default: the
        study's.
    shown : set of str, optional
        Rows of the table. Default: all that the tasks fill.
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
        """Seed of a split: 32 bits, the same for every task of the column."""
        key = (zlib.crc32(column.encode()), split)
        return int(np.random.SeedSequence(self.seed, spawn_key=key).generate_state(1)[0])

    def shows(self, row: str) -> bool:
        """Whether a row is in the table."""
        return self.shown is None or row in self.shown

    def units(self, splits: int) -> "list[Unit]":
        """Units of the rows that are shown: early splits of all cells before late ones."""
        return [
            self.unit(task, split)
            for split in range(splits)
            for task in self.tasks
            if split < task.wanted(splits) and any(map(self.shows, task.rows))
        ]

    def unit(self, task: Task, split: int) -> "Unit":
        """One task on one split."""
        return Unit(task, split, self.seed_of(task.column, split))


@dataclass(frozen=True)
class Unit:
    """One task on one split."""

    task: Task
    split: int
    seed: int

    @property
    def key(self) -> tuple[Any, ...]:
        """What the unit is found again by."""
        return self.task.recipe, self.split, self.seed

    def run(self) -> dict[str, Any]:
        """Record of the unit: its values, or the message of what stopped it."""
        record = dict(zip(_KEY, self.key, strict=True), column=self.task.column)
        start = time.perf_counter()
        try:
            with _stopped_by_ctrl_c(), _quiet_sampler():
                values = self.task.function(self.task.column, self.seed, **self.task.settings)
            record["values"] = self._checked(values)
        except Exception as error:  # whatever it is, the other units go on
            record["error"] = f"{type(error).__name__}: {error}"
        record["seconds"] = round(time.perf_counter() - start, 3)
        return record

    def _checked(self, values: Mapping[str, float]) -> dict[str, float]:
        numbers = {row: float(value) for row, value in values.items()}
        if set(numbers) != set(self.task.rows) or not np.isfinite(list(numbers.values())).all():
            needed = f"one that returns a finite number for each of {', '.join(self.task.rows)}"
            raise argument_error("function", "Task", needed, repr(numbers))
        return numbers


_KEY = ("recipe", "split", "seed")


def run_study(
    study: Study,
    out: Path,
    *,
    splits: int | None = None,
    jobs: int = 1,
    progressbar: bool = True,
) -> Report:
    """Run what is left of a study, and write its table.

    Parameters
    ----------
    study : Study
    out : Path
        Folder of ``<ledger>.jsonl``, the units, and of the table, ``<name>.csv`` and ``<name>.md``.
    splits : int, optional
        Number of splits in place of the study's. More splits later go on from fewer.
    jobs : int, default=1
        Number of processes.
    progressbar : bool, default=True

    Returns
    -------
    Report
        The table of the splits that are finished: all of them, unless the study was interrupted
        (Ctrl-C) or units have failed. A failed unit is recorded with its message and tried again
        by the next call.
    """
    splits = check_count(study.splits if splits is None else splits, "splits", "run_study")
    check_count(jobs, "jobs", "run_study")
    ledger = Ledger(out / f"{study.ledger or study.name}.jsonl")
    units = study.units(splits)
    finished = {_key(record) for record in ledger if "values" in record}
    left = [unit for unit in units if unit.key not in finished]
    run_parallel = Parallel(jobs, return_as="generator_unordered", batch_size=1)
    interrupted, failed = False, 0
    with track(len(units), study.name, visible=progressbar) as bar:
        bar.advance(len(units) - len(left))
        try:
            for record in run_parallel(delayed(unit.run)() for unit in left):
                ledger.append(record)
                failed += "error" in record
                bar.advance(failed=str(failed))
        except KeyboardInterrupt:
            interrupted = True
    report = tabulate(study, ledger, splits, interrupted=interrupted)
    report.write(out)
    return report


def tabulate(study: Study, ledger: Ledger, splits: int, *, interrupted: bool = False) -> Report:
    """Make the table of a study from the units that are recorded; runs nothing."""
    records: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in ledger:
        # A unit may have failed before it was finished, never after.
        if "values" in record or "values" not in records.get(_key(record), {}):
            records[_key(record)] = record
    cells = []
    for task in study.tasks:
        wanted = task.wanted(splits)
        keys = [study.unit(task, split).key for split in range(splits if task.skip else wanted)]
        found = [records[key] for key in keys if key in records]
        for row in filter(study.shows, task.rows):
            cells.append(
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
            )
    return Report(
        name=study.name,
        title=study.title,
        measure=study.measure,
        cells=tuple(cells),
        published_splits=study.published_splits,
        spread=study.spread,
        recipes=tuple(
            (task.column, ", ".join(rows), dict(task.settings))
            for task in study.tasks
            if (rows := tuple(filter(study.shows, task.rows)))
        ),
        notes=study.notes,
        interrupted=interrupted,
    )


def _key(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(part) for part in _KEY)


@contextmanager
def _stopped_by_ctrl_c() -> Iterator[None]:
    # Engines answer Ctrl-C with what they have by then, which must not pass for a finished unit.
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    pressed = False

    def press(number: int, frame: Any) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if pressed:
            raise KeyboardInterrupt


@contextmanager
def _quiet_sampler() -> Iterator[None]:
    # PyMC announces every chain, over the one progress bar that a study has.
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
