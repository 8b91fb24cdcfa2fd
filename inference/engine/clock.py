"""The end of a fit by its time limit or by Ctrl-C."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from ...validation import argument_error


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
    next. Each gets an equal share of the time left when it begins; Ctrl-C ends all.
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


# PyMC's message when a callback has interrupted chains that have no draw after tuning.
NO_DRAWS = "Not enough samples to build a trace"


@contextmanager
def interruptible(engine: str, clock: Clock) -> Iterator[None]:
    """Take note of Ctrl-C, and explain a fit that it ended without a result.

    Libraries make other errors of Ctrl-C: PyMC a ValueError, compiled code a SystemError.
    """
    previous = signal.getsignal(signal.SIGINT)

    def press(number: int, frame: FrameType | None) -> None:
        clock.pressed = True
        previous(number, frame)  # type: ignore[operator, misc]

    try:
        with _handling_ctrl_c(press):
            yield
    except (Exception, KeyboardInterrupt) as error:
        by_user = clock.pressed or isinstance(error, KeyboardInterrupt) or NO_DRAWS in str(error)
        if not by_user:
            raise
        raise KeyboardInterrupt(
            f"{engine} was interrupted before it had a result: chains must have finished their "
            "tuning, other engines their first iteration. max_seconds of fit ends a fit in time."
        ) from error


@contextmanager
def stopped_by_ctrl_c() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C, also where `fit` returned a partial result."""
    pressed = False

    def press(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        raise KeyboardInterrupt

    try:
        with _handling_ctrl_c(press):
            yield
    finally:
        if pressed:
            raise KeyboardInterrupt


@contextmanager
def _handling_ctrl_c(press: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle Ctrl-C by `press`, unless it is ignored or does not reach this thread."""
    previous = signal.getsignal(signal.SIGINT)
    # Signals reach the main thread only.
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        yield
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
