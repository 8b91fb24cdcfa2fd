"""Time limit of a fit, checked wherever a loop reports its progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...validation import argument_error

__all__ = ["Clock", "EndOfTime", "OutOfTime"]


class OutOfTime(KeyboardInterrupt):
    """The time is over. Code that keeps the result of an interrupted loop keeps it here, too."""


@dataclass
class Clock:
    """Time since a fit began, and whether it ran out.

    Attributes
    ----------
    seconds : float or None
        Seconds that the fit may take; None for no bound.
    ended : bool
        Whether a loop was ended.
    pressed : bool
        Whether the user pressed Ctrl-C.
    """

    seconds: float | None = None
    ended: bool = False
    pressed: bool = False
    _started: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """Seconds left, below zero when the time is over."""
        if self.seconds is None:
            return np.inf
        return self.seconds - (time.monotonic() - self._started)

    def opened(self, usual: int | None, total: int | None) -> None:
        """Take note of a new loop and of the steps that it usually takes, and that it may take."""

    def advanced(self, steps: int) -> None:
        """Take note of steps that a loop has done."""
        self.check()

    def check(self) -> None:
        """Raise `OutOfTime` when the time is over, but only once: later loops run to their end."""
        if not self.ended and self.left <= 0:
            self.end()

    def share(self, waiting: int) -> "Clock":
        """Clock with an equal share of the time left, when `waiting` others get one later."""
        if self.seconds is None:
            return Clock()
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

    Parameters
    ----------
    clock : Clock
    chains : int
    in_turn : bool
        Whether one process runs the chains, one after the other.
    callback : callable, optional
        Another callback, called first.
    """

    def __init__(
        self,
        clock: Clock,
        chains: int,
        *,
        in_turn: bool,
        callback: Callable[..., None] | None = None,
    ):
        self._clock, self._chains, self._in_turn = clock, chains, in_turn
        self._callback = callback
        self._shares: dict[int, Clock] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take one draw; PyMC keeps the chains when this raises a KeyboardInterrupt."""
        if self._callback is not None:
            self._callback(trace=trace, draw=draw)
        if self._clock.pressed:
            raise KeyboardInterrupt
        share = self._clock
        if self._in_turn:
            if draw.chain not in self._shares:
                self._shares[draw.chain] = self._clock.share(self._chains - draw.chain - 1)
            share = self._shares[draw.chain]
        if share.left <= 0:
            self._clock.end()
