"""Expected cost of a fit, measured on a few of its own iterations, sweeps or gradients.

An engine's `calibrate` runs the implementation itself for a moment. A `Stopwatch` in place of the
run's clock ends the loops that report their progress; `timed` calls steps of `pm.sample` and
gradients.
"""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from .deadline import Clock

__all__ = ["Cost", "Loop", "Stopwatch", "peak_of_memory", "timed"]

# Seconds to time a loop after its first step, and the least steps to time if they are fast enough.
ENOUGH = 1.5
LEAST = 3


@dataclass(frozen=True)
class Cost:
    """Seconds and working memory of a fit.

    Attributes
    ----------
    usual, most : float
        Seconds that the fit usually takes, and that it takes with all iterations that it may do.
    bytes : int
        Peak of working memory, beyond the model and the draws that are kept.
    measured : str
        What was measured.
    """

    usual: float
    most: float
    bytes: int
    measured: str


@dataclass
class Loop:
    """Observed part of a loop: its steps, when it began, and when it did the first and last step.

    `total` and `usual` are the steps that the loop may take and usually takes; None if unknown.
    """

    name: str
    total: int | None
    usual: int | None
    began: float
    steps: int = 0
    ended: bool = False
    marks: list[tuple[int, float]] = field(default_factory=list)

    @property
    def each(self) -> float:
        """Seconds a step, without the first step, which also prepares, if there are others."""
        first, last = self.marks[0], self.marks[-1]
        if last[0] > first[0]:
            return (last[1] - first[1]) / (last[0] - first[0])
        return (first[1] - self.began) / max(first[0], 1)


@dataclass
class Stopwatch(Clock):
    """Clock that ends each loop after a moment or its first step, and records its times."""

    first_only: bool = False
    loops: list[Loop] = field(default_factory=list)

    @contextmanager
    def explained(self, what: str) -> Iterator[None]:
        """Leave errors as they are: the end of a loop is expected."""
        yield

    def opened(self, description: str, most: int | None, usual: int | None) -> None:
        """Begin to time a loop."""
        self.loops.append(Loop(description, most, usual, time.perf_counter()))

    def advanced(self, steps: int) -> None:
        """Record steps, and end the loop when they are enough."""
        loop, now = self.loops[-1], time.perf_counter()
        loop.steps += steps
        loop.marks.append((loop.steps, now))
        since_first = now - loop.marks[0][1]
        slow = loop.marks[0][1] - loop.began > ENOUGH
        if (
            self.first_only
            or slow
            or (since_first > ENOUGH and len(loop.marks) >= LEAST)
            or since_first > 2 * ENOUGH
        ):
            loop.ended = True
            self.end()

    def more(self, usual: int) -> tuple[float, float]:
        """Seconds that the ended loops would have taken longer: usually, and at most."""
        likely, most = 0.0, 0.0
        for loop in self.loops:
            if loop.ended:
                steps = loop.usual or min(usual, loop.total or usual)
                likely += loop.each * max(steps - loop.steps, 0)
                most += loop.each * max((loop.total or steps) - loop.steps, 0)
        return likely, most

    @property
    def measured(self) -> str:
        """Description of the measurements, for the loops that were ended."""
        return ", ".join(
            f"{loop.steps} steps of {loop.name} of {loop.each:.2g} s each"
            for loop in self.loops
            if loop.ended
        )


def timed(step: Callable[[], object]) -> tuple[float, int]:
    """Mean seconds of a call after the first one, and the number of calls."""
    before = time.perf_counter()
    step()
    first = time.perf_counter() - before
    if first > 2 * ENOUGH:
        return first, 1
    start, calls = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < ENOUGH and calls < 1000:
        step()
        calls += 1
    return spent / calls, calls


@contextmanager
def peak_of_memory() -> Iterator[list[int]]:
    """Fill a list with the peak of the bytes that NumPy and Python allocate in the context."""
    peak: list[int] = []
    nested = tracemalloc.is_tracing()
    if not nested:
        tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    try:
        yield peak
    finally:
        peak.append(tracemalloc.get_traced_memory()[1] - before)
        if not nested:
            tracemalloc.stop()
