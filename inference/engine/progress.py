"""Progress bars of our own loops, in PyMC's style, and PyMC's messages switched off."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import get_console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class ProgressBar:
    """One line of progress; `advance` also shows figures, then calls `after` with the steps."""

    def __init__(self, progress: Progress, task: TaskID, after: Callable[[int], None]):
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
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        disable=not (visible and can_show()),
    ) as progress:
        task = progress.add_task(description, total=total, figures="")
        yield ProgressBar(progress, task, after)


def can_show() -> bool:
    """Whether somebody sees a bar: on a pipe or a full disk, it would end what it reports on."""
    console = get_console()
    return console.is_terminal or console.is_jupyter


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
