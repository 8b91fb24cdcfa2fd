"""Progress bars in PyMC's style, and silence of PyMC where a bar is of many fits."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["ProgressBar", "can_show", "outliving_readers", "quiet_sampler", "track"]


class ProgressBar:
    """One line of progress; `advance` also shows figures, then calls `after` with the steps."""

    def __init__(
        self, progress: Progress, task: TaskID, after: Callable[[int], None] = lambda steps: None
    ):
        self._progress = progress
        self._task = task
        self._after = after

    def advance(self, steps: int = 1, **figures: float | str) -> None:
        """Move on by `steps`, showing figures such as ``bound=-123.4``."""
        text = "  ".join(
            f"{name} {value:,.4f}" if isinstance(value, float) else f"{name} {value}"
            for name, value in figures.items()
        )
        self._progress.update(self._task, advance=steps, figures=text)
        self._after(steps)

    def skip(self, steps: int) -> None:
        """Move on by steps that need not be done."""
        self._progress.update(self._task, advance=steps)


@contextmanager
def track(
    total: int | None,
    description: str,
    *,
    visible: bool = True,
    after: Callable[[int], None] = lambda steps: None,
) -> Iterator[ProgressBar]:
    """Progress bar over `total` steps (None: unknown), shown while the context is open."""
    with (
        outliving_readers(),
        Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[figures]}"),
            disable=not (visible and can_show()),
        ) as progress,
    ):
        task = progress.add_task(description, total=total, figures="")
        yield ProgressBar(progress, task, after)


def can_show() -> bool:
    """Whether standard output is open: a bar on a closed one would end the work it reports on."""
    return sys.stdout is not None and not sys.stdout.closed


@contextmanager
def outliving_readers() -> Iterator[None]:
    """Go on when standard output is full, or its reader has gone: rich would end the process."""
    silent = []
    write = Console._write_buffer

    def write_or_fall_silent(console: Console) -> None:
        try:
            write(console)
        except OSError:
            console.quiet = True
            silent.append(console)

    Console._write_buffer = write_or_fall_silent  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        Console._write_buffer = write  # type: ignore[method-assign]
        # rich has one console for all bars, whose next output may have a reader.
        for console in silent:
            console.quiet = False


@contextmanager
def quiet_sampler() -> Iterator[None]:
    """Leave out PyMC's messages about every chain, which would disturb a bar of many fits."""
    logger = logging.getLogger("pymc")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
