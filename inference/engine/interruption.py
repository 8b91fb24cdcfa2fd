"""Ctrl-C and SIGTERM during a fit."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from .deadline import Clock

__all__ = [
    "SIGTERM_STATUS",
    "interruptible",
    "stopped_by_ctrl_c",
]

# Exit status of a process that SIGTERM ended.
SIGTERM_STATUS = 128 + signal.SIGTERM

# PyMC's message when a callback has interrupted chains that have no draw after tuning.
NO_DRAWS = "Not enough samples to build a trace"


@contextmanager
def interruptible(engine: str, clock: Clock) -> Iterator[None]:
    """Take note of Ctrl-C, explain a fit that it ended without a result, and handle SIGTERM.

    Parameters
    ----------
    engine : str
        Name of the engine, for the message.
    clock : Clock
        Its `pressed` takes note of Ctrl-C.

    Raises
    ------
    KeyboardInterrupt
        When Ctrl-C ended the fit, whatever error libraries made of it: PyMC raises a ValueError
        while chains tune, llvmlite an error of its own while numba compiles, compiled code a
        SystemError.
    SystemExit
        At SIGTERM, with the status 143 of a process that SIGTERM ended: stores are closed and the
        processes of chains end.

    Notes
    -----
    Signals reach the main thread only. Handlers of SIGTERM that the user has installed stay.
    """
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
    """Install the handlers of a fit; return those to restore."""
    restore = _handle_sigterm()
    interrupt = signal.getsignal(signal.SIGINT)
    if callable(interrupt):

        def press(number: int, frame: FrameType | None) -> None:
            clock.pressed = True
            interrupt(number, frame)

        restore[signal.SIGINT] = signal.signal(signal.SIGINT, press)
    return restore


def _handle_sigterm() -> dict[int, Any]:
    """Install the handler of SIGTERM unless the user has one; return the one to restore."""
    process = os.getpid()
    restore: dict[int, Any] = {}
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:

        def terminate(number: int, frame: FrameType | None) -> None:
            # A second signal, and one to a forked chain, ends the process at once.
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if os.getpid() != process:
                os.kill(os.getpid(), signal.SIGTERM)
            raise SystemExit(SIGTERM_STATUS)

        restore[signal.SIGTERM] = signal.signal(signal.SIGTERM, terminate)
    return restore
