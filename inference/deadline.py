"""The time that a fit may take: checked wherever a loop reports its progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..models.checks import argument_error

__all__ = ["Clock", "EndOfTime", "OutOfTime"]


class OutOfTime(KeyboardInterrupt):
    """The time is over. What keeps the result of an interrupted loop keeps it of this as well."""


@dataclass
class Clock:
    """Time since a fit began, and whether it ran out.

    Attributes
    ----------
    seconds : float or None
        What the fit may take; None for no bound.
    ended : bool
        Whether a loop was ended.
    """

    seconds: float | None = None
    ended: bool = False
    _started: float = field(default_factory=lambda: time.monotonic())

    @property
    def left(self) -> float:
        """Seconds left, below zero when the time is over."""
        if self.seconds is None:
            return np.inf
        return self.seconds - (time.monotonic() - self._started)

    def opened(self, description: str, most: int | None, usual: int | None) -> None:
        """Take note of a loop that begins, and of the steps that it may and usually does take."""

    def advanced(self, steps: int) -> None:
        """Take note of steps that a loop has done."""
        self.check()

    def check(self) -> None:
        """Raise `OutOfTime` when the time is over, once: what follows the loop runs to its end."""
        if not self.ended and self.left <= 0:
            self.end()

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Say of an error that follows the end that the time did not do for `what`."""
        try:
            yield
        except ValueError as error:
            if not self.ended:
                raise
            got = f"{self.seconds:g}"
            raise argument_error("max_seconds", "fit", f"enough {what}", got) from error

    def end(self) -> None:
        """End the loop that calls this."""
        self.ended = True
        raise OutOfTime


class EndOfTime:
    """Callback of `pm.sample` that ends every chain when the time is over.

    Chains that run one after the other share the time that is left when they begin, so that all of
    them are in the result.

    Parameters
    ----------
    clock : Clock
    chains : int
    in_turn : bool
        Whether chains run one after the other.
    callback : callable, optional
        Another callback, called before.
    """

    def __init__(
        self,
        clock: Clock,
        chains: int,
        in_turn: bool,
        callback: Callable[..., None] | None = None,
    ):
        self._clock, self._chains, self._in_turn = clock, chains, in_turn
        self._callback = callback
        self._reserved: dict[int, float] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take in one draw; PyMC keeps the chains when this raises a KeyboardInterrupt."""
        if self._callback is not None:
            self._callback(trace=trace, draw=draw)
        if draw.chain not in self._reserved:
            waiting = self._chains - draw.chain - 1 if self._in_turn else 0
            left = max(self._clock.left, 0.0)
            self._reserved[draw.chain] = left * waiting / (waiting + 1)
        if self._clock.left <= self._reserved[draw.chain]:
            self._clock.end()
