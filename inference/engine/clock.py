"""The end of a loop, by its time limit, Ctrl-C or SIGTERM, and its progress bar."""

import logging
import os
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

__all__ = [
    "SIGTERM_STATUS",
    "Clock",
    "EndOfTime",
    "OutOfTime",
    "ProgressBar",
    "can_show",
    "interruptible",
    "quiet_sampler",
    "stopped_by_ctrl_c",
    "track",
]


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

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Turn an error after the end into one that says the time was too short for `what`."""
        try:
            yield
        except (ValueError, OutOfTime):
            if not self.ended:
                raise
            got = f"{self.seconds:g}"
            raise argument_error("max_seconds", "fit", f"enough {what}", got) from None

    def end(self) -> None:
        """End the loop that calls this."""
        self.ended = True
        raise OutOfTime


class EndOfTime:
    """Callback of `pm.sample` that ends chains at Ctrl-C and when their time is over.

    `pm.sample` takes an interrupt for the end of one of several chains in turn, and begins the
    next. Each of them gets an equal share of the time left when it begins, so that all are in the
    result; Ctrl-C ends all, those that have not begun at their first draw.
    """

    def __init__(self, clock: Clock, chains: int, *, in_turn: bool):
        self._clock, self._chains, self._in_turn = clock, chains, in_turn
        self._shares: dict[int, Clock] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take one draw; PyMC keeps the chains when this raises a KeyboardInterrupt."""
        if self._clock.pressed:
            raise KeyboardInterrupt
        share = self._clock
        if self._in_turn:
            if draw.chain not in self._shares:
                self._shares[draw.chain] = self._clock.share(self._chains - draw.chain - 1)
            share = self._shares[draw.chain]
        if share.left <= 0:
            self._clock.end()


# Exit status of a process that SIGTERM ended.
SIGTERM_STATUS = 128 + signal.SIGTERM

# PyMC's message when a callback has interrupted chains that have no draw after tuning.
NO_DRAWS = "Not enough samples to build a trace"


@contextmanager
def interruptible(engine: str, clock: Clock) -> Iterator[None]:
    """Take note of Ctrl-C, explain a fit that it ended without a result, and exit at SIGTERM.

    Libraries make other errors of Ctrl-C: PyMC a ValueError, llvmlite one of its own, compiled code
    a SystemError. The exit closes stores and ends the processes of chains.
    """
    # Signals reach the main thread only.
    restore = _handle_signals(clock) if _in_main_thread() else {}
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        by_user = clock.pressed or isinstance(error, KeyboardInterrupt) or NO_DRAWS in str(error)
        if not by_user:
            raise
        why = (
            f"{engine} was interrupted before it had a result: chains must have finished their "
            "tuning, other engines their first iteration. max_seconds of fit ends a fit in time."
        )
        raise KeyboardInterrupt(" ".join([why, *getattr(error, "__notes__", [])])) from error
    finally:
        for number, handler in restore.items():
            signal.signal(number, handler)


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, also where `fit` returned a partial result."""
    if not _in_main_thread() or signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        yield
        return
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _handle_signals(clock: Clock) -> dict[int, Any]:
    """Install the handlers of a fit, unless the user has one of SIGTERM; return the old ones."""
    process, interrupt = os.getpid(), signal.getsignal(signal.SIGINT)
    restore: dict[int, Any] = {}

    def press(number: int, frame: FrameType | None) -> None:
        clock.pressed = True
        interrupt(number, frame)  # type: ignore[operator, misc]

    def terminate(number: int, frame: FrameType | None) -> None:
        # A second signal, and one to a forked chain, ends the process at once.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != process:
            os.kill(os.getpid(), signal.SIGTERM)
        raise SystemExit(SIGTERM_STATUS)

    if callable(interrupt):
        restore[signal.SIGINT] = signal.signal(signal.SIGINT, press)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        restore[signal.SIGTERM] = signal.signal(signal.SIGTERM, terminate)
    return restore


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
