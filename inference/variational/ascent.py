"""Coordinate ascent from several kernel weights, shared by the models that learn the weights.

A state is any frozen object with an `objective`; `start` makes one from kernel weights and
`update` the next one from it.

An objective that gains little in an iteration may have much left to gain: on a ridge the gains
shrink slowly. What is left is told from how they shrink, as of a geometric series.

Where an iteration is expensive the starts compete: all do a few iterations, the better half of them
goes on for twice as many, and one start goes on to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt

from ...user_warnings import warn_user
from ...validation import check_count, check_positive
from ..engine.deadline import OutOfTime
from ..engine.engine import Run
from .anderson import Anderson, Coordinates, State

__all__ = ["Ascent", "MultistartResult", "beginnings", "check_settings", "multistart_ascent"]

type Array = npt.NDArray[np.float64]

# Starts at most unless more are asked for.
MOST_STARTS = 8

# Iterations that a start usually takes to its end, more or less.
USUAL = 100

# Accelerated iterations that gain little in a row at the end: one alone may have been for nothing.
PATIENCE = 3

# Iterations over which the shrinkage of the gains is measured.
SPAN = 5


@dataclass
class Ascent[S: State]:
    """One start on its way up.

    Parameters
    ----------
    state : state
        Where it stands.
    update : callable (state) -> state
        One iteration.
    patience : int, default=1
        Iterations in a row that must gain little before it ends.
    """

    state: S
    update: Callable[[S], S]
    patience: int = 1
    history: list[float] = field(default_factory=list)
    converged: bool = False
    _small: int = field(default=0, init=False)

    @property
    def height(self) -> float:
        """The objective; a broken one is the lowest."""
        return self.state.objective if np.isfinite(self.state.objective) else -np.inf

    def climbing(self, max_iterations: int) -> bool:
        """Whether another iteration is due."""
        broken = bool(self.history) and not np.isfinite(self.history[-1])
        return not (self.converged or broken) and len(self.history) < max_iterations

    @property
    def remaining(self) -> float:
        """What is left to gain if the gains shrink on as they did; infinite while they grow.

        With gains g of the last 6 iterations, r = (g_6 / g_1)^(1/5) and the gains to come add up to
        g_6 (r + r^2 + ...) = g_6 r / (1 - r).
        """
        if len(self.history) < SPAN + 2:
            return np.inf
        gains = np.diff(self.history[-SPAN - 2 :])
        if gains[-1] <= 0:
            return 0.0
        ratio = (gains[-1] / gains[0]) ** (1 / SPAN) if gains[0] > 0 else np.inf
        return float(gains[-1] * ratio / (1 - ratio)) if ratio < 1 else np.inf

    def advance(self, tolerance: float, least: int = 0, remaining: float = np.inf) -> None:
        """Do one iteration; the first `least` of them are never the last."""
        before, self.state = self.state.objective, self.update(self.state)
        after = self.state.objective
        self.history.append(after)
        small = abs(after - before) <= tolerance * abs(after) and self.remaining <= remaining
        self._small = self._small + 1 if small else 0
        self.converged = self._small >= self.patience and len(self.history) > least


@dataclass(frozen=True)
class MultistartResult[S: State]:
    """Where every start ended, the histories of all, and whether the best met the tolerance."""

    states: list[S]
    histories: list[Array]
    best: int
    converged: bool

    @property
    def state(self) -> S:
        """Where the best start ended."""
        return self.states[self.best]


def check_settings(
    owner: str,
    *,
    max_iterations: int,
    tolerance: float,
    starts: int | None,
    remaining: float = np.inf,
) -> None:
    """Raise ValueError unless the settings of an ascent are in range; no starts are a default."""
    check_count(max_iterations, "max_iterations", owner)
    if starts is not None:
        check_count(starts, "starts", owner)
    check_positive(tolerance, "tolerance", owner)
    check_positive(remaining, "remaining", owner, finite=False)


def beginnings[S: State](
    begin: Callable[[Array], Ascent[S]],
    n_kernels: int,
    starts: int,
    tolerance: float,
    rng: np.random.Generator,
    check: Callable[[], None],
) -> Iterator[Ascent[S]]:
    """Uniform weights, the vertices, then uniform draws from the simplex.

    If there are more vertices than starts left, each of them does one iteration, which it keeps,
    and the highest go on: the result does not depend on the order of the kernels. `check` is called
    before each vertex, and ends the beginnings by an exception.
    """
    yield begin(np.full(n_kernels, 1 / n_kernels))
    if starts > 1:
        vertices = []
        for corner in np.eye(n_kernels):
            check()
            vertices.append(begin(corner))
            if starts <= n_kernels:
                vertices[-1].advance(tolerance)
        if starts <= n_kernels:
            vertices.sort(key=lambda vertex: vertex.height, reverse=True)
        yield from vertices[: starts - 1]
    for _ in range(starts - 1 - n_kernels):
        yield begin(rng.dirichlet(np.ones(n_kernels)))


def _rounds(n_starts: int, first: int, most: int) -> list[tuple[int, int, int]]:
    """List the rounds of a competition: starts, iterations of each until its end, and in it.

    The first is of `first` iterations at most; there are `most` in all.
    """
    rounds = [(n_starts, min(first, most), min(first, most))]
    while rounds[-1][1] < most:
        starts, before, _ = rounds[-1]
        starts = (starts + 1) // 2
        until = min(2 * before, most) if starts > 1 else most
        rounds.append((starts, until, until - before))
    return rounds


def multistart_ascent[S: State](
    starts_at: Sequence[Callable[[Array], S]],
    update: Callable[[S], S],
    run: Run,
    n_kernels: int,
    *,
    known: Array | None,
    starts: int | None,
    max_iterations: int,
    tolerance: float,
    least: int = 0,
    remaining: float = np.inf,
    rounds_from: int | None = None,
    coordinates: Coordinates[S] | None = None,
    engine: str = "VB",
) -> MultistartResult[S]:
    """Do coordinate ascent from every start and choose the one that ends highest.

    Parameters
    ----------
    starts_at : sequence of callable (weights) -> state
        Each makes a state of every initial weights.
    update : callable (state) -> state
        One iteration.
    run : Run
        Seed and progress bar.
    n_kernels : int
    known : array (kernel,) or None
        Weights that are not learned: one start from them is enough.
    starts : int or None
        Number of initial weights. Default: uniform weights and every vertex, 8 at most.
    max_iterations : int
        Iterations a start at most.
    tolerance : float
        A start ends when its objective changes by less than this fraction of itself.
    least : int
        Iterations that a start does in any case.
    remaining : float
        A start goes on while it has more than this left to gain, which is told from 7 iterations.
    rounds_from : int, optional
        Iterations of every start in the first of the rounds in which starts compete. Default: every
        start goes on to its end.
    coordinates : Coordinates, optional
        What the iterations are accelerated in. Default: they are not.
    engine : str
        Its name, for messages.

    Returns
    -------
    MultistartResult
        When interrupted: of what there is, unconverged.

    Raises
    ------
    FloatingPointError
        When no start has a finite objective.
    """

    def begin(start: Callable[[Array], S], weights: Array) -> Ascent[S]:
        if coordinates is None:
            return Ascent(start(weights), update)
        return Ascent(start(weights), Anderson(update, coordinates), PATIENCE)

    begun: Iterator[Ascent[S]]
    if known is None:
        n_starts, rng = starts or min(n_kernels + 1, MOST_STARTS), run.rng()
        begun = chain.from_iterable(
            beginnings(partial(begin, start), n_kernels, n_starts, tolerance, rng, run.clock.check)
            for start in starts_at
        )
    else:
        n_starts, begun = 1, (begin(start, known) for start in starts_at)
    rounds = _rounds(len(starts_at) * n_starts, rounds_from or max_iterations, max_iterations)
    ascents: list[Ascent[S]] = []
    interrupted = False

    def go_on(k: int, most: int, more: int) -> None:
        ascent, done = ascents[k], len(ascents[k].history)
        while ascent.climbing(most):
            ascent.advance(tolerance, least, remaining)
            bar.advance(start=k + 1, bound=ascent.state.objective)
        bar.skip(more - (len(ascent.history) - done))

    try:
        total = sum(count * more for count, _, more in rounds)
        usual = sum(count * min(more, USUAL) for count, _, more in rounds)
        with run.track(total, engine, usual=usual) as bar:
            _, most, more = rounds[0]
            for k, ascent in enumerate(begun):
                ascents.append(ascent)
                go_on(k, most, more)
            for count, most, more in rounds[1:]:
                highest = sorted(range(len(ascents)), key=lambda k: -ascents[k].height)
                for k in highest[:count]:
                    go_on(k, most, more)
    except KeyboardInterrupt as interruption:
        interrupted = True
        ascents = [ascent for ascent in ascents if ascent.history]
        if not ascents:
            raise
        if not isinstance(interruption, OutOfTime):
            warn_user(f"{engine} was interrupted: the output so far is returned.")
    best = int(np.argmax([ascent.height for ascent in ascents]))
    if not np.isfinite(ascents[best].height):
        raise FloatingPointError(
            f"{engine}'s objective is not a finite number from any start: rescale the kernels (for "
            "example kernels.normalize('trace')), or take a less extreme prior."
        )
    converged = ascents[best].converged and not interrupted
    if not converged and not interrupted:
        warn_user(
            f"{engine} did not converge in {max_iterations} iterations: raise max_iterations."
        )
    histories = [np.array(ascent.history) for ascent in ascents]
    return MultistartResult([ascent.state for ascent in ascents], histories, best, converged)
