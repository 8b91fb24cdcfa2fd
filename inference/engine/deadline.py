"""Time limit of a fit, checked wherever a loop reports its progress."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from ...validation import argument_error

__all__ = ["Clock", "EndOfTime", "Interrupting", "OutOfTime", "at_work"]

# Seconds before an interrupt is sent again, if it came where it would lose draws.
AGAIN = 0.05


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

    def opened(self, description: str, most: int | None, usual: int | None) -> None:
        """Take note of a new loop and of the steps that it may take and usually takes."""

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

    Chains run in turns, one chain a process. Each turn gets an equal share of the time left when it
    begins, so that all chains are in the result. `pm.sample` takes an interrupt for the end of one
    turn, and begins the next; here Ctrl-C ends the other turns as well, at their first draw.

    Parameters
    ----------
    clock : Clock
    chains : int
    processes : int
        Chains that run at once.
    callback : callable, optional
        Another callback, called first.
    """

    def __init__(
        self,
        clock: Clock,
        chains: int,
        processes: int,
        callback: Callable[..., None] | None = None,
    ):
        self._clock, self._processes, self._callback = clock, processes, callback
        self._turns = -(-chains // processes)
        self._shares: dict[int, Clock] = {}

    def __call__(self, trace: Any, draw: Any) -> None:
        """Take one draw; PyMC keeps the chains when this raises a KeyboardInterrupt."""
        if self._callback is not None:
            self._callback(trace=trace, draw=draw)
        if self._clock.pressed:
            raise KeyboardInterrupt
        turn = draw.chain // self._processes
        if turn not in self._shares:
            self._shares[turn] = self._clock.share(self._turns - turn - 1)
        if self._shares[turn].left <= 0:
            self._shares[turn].ended = True
            self._clock.end()

    def has_ended(self, turn: int) -> bool:
        """Whether the time of a turn was over before its chains were."""
        return turn in self._shares and self._shares[turn].ended


class Interrupting:
    """Context that interrupts the main thread when the time is over, as Ctrl-C does.

    For algorithms without a callback that keep their draws when they are interrupted.

    Parameters
    ----------
    clock : Clock
        A clock without a bound interrupts nothing.
    can : callable (frame) -> bool
        Whether code that runs in this innermost frame keeps its draws when it is interrupted. In
        other frames an interrupt would lose all draws, so it is delayed.
    owner : str
        Name of the function with the time limit, for the message.

    Raises
    ------
    ValueError
        Outside of the main thread, which alone can be interrupted.
    """

    def __init__(self, clock: Clock, can: Callable[[FrameType], bool], owner: str):
        self._clock, self._can, self._owner = clock, can, owner
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._signal, daemon=True)
        self._sent = False
        self._handler: Any = None

    def __enter__(self) -> None:
        if self._clock.seconds is None:
            return
        if threading.current_thread() is not threading.main_thread():
            raise ValueError(
                f"{self._owner} takes 'max_seconds' in the main thread only, which alone can be "
                "interrupted."
            )
        self._handler = signal.signal(signal.SIGINT, self._handle)
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._finished.set()
        if self._thread.ident is not None:
            # After the thread has ended no further signal comes, and earlier ones have been
            # handled.
            self._thread.join()
            signal.signal(signal.SIGINT, self._handler)

    def _signal(self) -> None:
        wait = min(max(self._clock.left, 0.0), threading.TIMEOUT_MAX)
        while not self._finished.wait(wait):
            self._sent = True
            if hasattr(signal, "pthread_kill"):
                # This ends a system call of the main thread, too.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            else:
                signal.raise_signal(signal.SIGINT)
            wait = AGAIN

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._sent:
            # Ctrl-C.
            if callable(self._handler):
                self._handler(number, frame)
            elif self._handler == signal.SIG_DFL:
                raise KeyboardInterrupt
            return
        self._sent = False
        if frame is not None and not self._finished.is_set() and self._can(frame):
            self._finished.set()
            self._clock.end()


def at_work(function: FunctionType, frame: FrameType | None) -> bool:
    """Whether a frame runs a function or code that the function has called."""
    while frame is not None:
        if frame.f_code is function.__code__:
            return True
        frame = frame.f_back
    return False
