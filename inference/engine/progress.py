"""Progress bars of our own loops, in PyMC's style, and fits that end by time or by Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np
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

from ...validation import argument_error


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


class OutOfTime(KeyboardInterrupt):
    """The time is over. Code that keeps the result of an interrupted loop keeps it here, too."""


@dataclass
class Clock:
    """Seconds that a fit may take; whether they ended a loop, and whether Ctrl-C was pressed."""

    seconds: float = np.inf
    ended: bool = False
    pressed: bool = False
    _started: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """Seconds left, below zero when the time is over."""
        return self.seconds - (time.monotonic() - self._started)

    def loop(self, steps: int) -> Callable[[int], None]:
        """Return the function that a loop calls with its steps done, of `steps` that are usual."""
        return lambda done: self.check()

    def check(self) -> None:
        """Raise `OutOfTime` when the time is over, but only once: later loops run to their end."""
        if not self.ended and self.left <= 0:
            self.end()

    def share(self, waiting: int) -> "Clock":
        """Clock with an equal share of the time left, when `waiting` others get one later."""
        return Clock(max(self.left, 0.0) / (waiting + 1))

    def end(self) -> None:
        """End the loop that calls this."""
        self.ended = True
        raise OutOfTime


def end_of_time(clock: Clock, chains: int, *, in_turn: bool) -> Callable[..., None]:
    """Make the callback of `pm.sample` that ends chains at Ctrl-C and when their time is over."""
    # `pm.sample` takes an interrupt for the end of one of several chains in turn, and begins the
    # next. Each gets an equal share of the time left when it begins; Ctrl-C ends all.
    shares: dict[int, Clock] = {}

    def after(trace: Any, draw: Any) -> None:
        # PyMC keeps the chains when this raises a KeyboardInterrupt.
        if clock.pressed:
            raise KeyboardInterrupt
        if in_turn and draw.chain not in shares:
            shares[draw.chain] = clock.share(chains - draw.chain - 1)
        if shares.get(draw.chain, clock).left <= 0:
            clock.end()

    return after


def noting_interrupt(callback: Callable[..., None], clock: Clock) -> Callable[..., None]:
    """Make a user's callback of `pm.sample` whose KeyboardInterrupt ends all chains, as Ctrl-C."""

    def after(**draw: Any) -> None:
        try:
            callback(**draw)
        except KeyboardInterrupt:
            clock.pressed = True
            raise

    return after


# PyMC's message when a callback has interrupted chains that have no draw after tuning.
NO_DRAWS = "Not enough samples to build a trace"
NEEDED = "chains must have finished their tuning, other engines their first iteration"


@contextmanager
def interruptible(engine: str, clock: Clock) -> Iterator[None]:
    """Take note of Ctrl-C, and explain a fit that it or the time ended without a result."""
    try:
        with _noting_ctrl_c(clock):
            yield
    except (Exception, KeyboardInterrupt) as error:
        if clock.ended and isinstance(error, ValueError | OutOfTime):
            rule = f"enough for {engine} to have a result: {NEEDED}"
            raise argument_error("max_seconds", "fit", rule, f"{clock.seconds:g}") from None
        # Libraries make other errors of Ctrl-C: PyMC a ValueError, compiled code a SystemError.
        by_user = clock.pressed or isinstance(error, KeyboardInterrupt) or NO_DRAWS in str(error)
        if not by_user:
            raise
        raise KeyboardInterrupt(
            f"{engine} was interrupted before it had a result: {NEEDED}. "
            "max_seconds of fit ends a fit in time."
        ) from error


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, also where `fit` returned a partial result."""
    clock = Clock()
    try:
        with _noting_ctrl_c(clock):
            yield
    finally:
        if clock.pressed:
            raise KeyboardInterrupt


@contextmanager
def _noting_ctrl_c(clock: Clock) -> Iterator[None]:
    """Note Ctrl-C in a clock, unless it is ignored or does not reach this thread."""
    previous = signal.getsignal(signal.SIGINT)
    # Signals reach the main thread only.
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return

    def press(number: int, frame: FrameType | None) -> None:
        clock.pressed = True
        previous(number, frame)

    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
