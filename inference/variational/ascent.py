"""Accelerated coordinate ascent from several starts, shared by the models with kernel weights.

A state is any frozen object with an `objective`. `start` makes a state from kernel weights, and
`update` makes the next state.

An iteration maps a few coordinates to new values; the solutions are its fixed points. If the map
were linear, the last iterations would determine its fixed point, and the next iteration starts from
that point (Anderson acceleration: Walker & Ni 2011, SIAM Journal on Numerical Analysis 49, "type
II"). If the moves grow from one iteration to the next, that point lies behind and is repelling;
then the next iteration starts ahead instead, at twice the last move, then four times, and so on. An
iteration that lowers the objective or fails is repeated from the unaccelerated state, without the
stored ones. On 43 problems of 33 to 160 objects this reached the bound of plain iterations or a
higher one, in 4 (median) to 20 times fewer iterations.

On a ridge the increases of the objective shrink slowly, so a small increase does not mean that the
ascent is finished: the remaining increase is estimated as of a geometric series. The default starts
compete: after a few iterations of all of them, the highest one runs to its end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ...user_warnings import warn_user
from ..engine.engine import Run
from ..engine.progress import OutOfTime

type Array = npt.NDArray[np.float64]

# Largest default number of starts.
MOST_STARTS = 8
# With more kernels, each of which costs an iteration to rank, competing starts are one alone.
MOST_CORNERS = 16
# Iterations of competing starts before the highest goes on; a start that rises late is lost. Of 48
# fits each on ten data sets, probits lost more than 0.1 nats four times after 24 iterations (at
# most 0.22), and seven times after 12 (1.07); composite classifications never after 12, twice after
# 8 (1.76); regressions seven times after 24 (4.66), once after 200 (0.53).
FIRST_ROUND = {"probit": 24, "classification": 12, "regression": 200}
# Usual number of iterations of a start.
USUAL_ITERATIONS = 100
# Largest number of iterations of an ascent for predictions.
MOST_ITERATIONS = 400
# Tolerances of ascents that end within about a nat.
ROUGH = 1e-4
ROUGHLY_REMAINING = 1.0

# Consecutive small increases that end accelerated iterations (one may be a rejected step), and
# iterations without a new height: new quadrature points may move the objective up and down.
PATIENCE = 3
STALL = 10
# Number of iterations over which the shrinkage of the increases is measured.
SPAN = 5
# A decrease by this part of the objective, or by so many nats, is rounding; new quadrature points
# for the weights of more than three kernels may cost more.
ROUNDING_SHARE = 1e-8
ROUNDING_NATS = 0.01
NEW_POINTS = 0.1

# Largest number of stored iterations, and of stored numbers (half a gigabyte).
MOST_ITERATIONS_KEPT = 9
MOST_NUMBERS = 1 << 26
# Relative ridge of the normal equations, because the differences are nearly dependent.
RIDGE = 1e-10
# Distance ahead, in moves, at which the next iteration starts if the fixed point is repelling.
FIRST_STRETCH = 2.0


class State(Protocol):
    """All factors after an iteration."""

    @property
    def objective(self) -> float:
        """Objective of the iterations."""


@dataclass(frozen=True)
class Coordinates[S]:
    """Vector (n,) on which the next iteration depends: `of` a state, and the state `at` it."""

    of: Callable[[S], Array]
    at: Callable[[S, Array], S]


class Anderson[S: State]:
    """Accelerated iterations of one start: a call with a state returns the next state."""

    def __init__(self, update: Callable[[S], S], coordinates: Coordinates[S]):
        self._update = update
        self._coordinates = coordinates
        self._ends: list[Array] = []
        self._moves: list[Array] = []
        self._stretch = FIRST_STRETCH

    def __call__(self, state: S) -> S:
        """Do one iteration."""
        if len(self._ends) > 1:
            step, ahead = self._step()
            after = self._tried(state, step)
            if after is not None:
                self._stretch *= 2 if ahead else 1
                return after
            self._ends.clear()
            self._moves.clear()
            self._stretch = max(FIRST_STRETCH, self._stretch / (8 if ahead else 1))
        after = self._update(state)
        # A start has no factors yet.
        if np.isfinite(state.objective):
            self._remember(state, after)
        return after

    def _step(self) -> tuple[Array, bool]:
        """Step from the last end to the next beginning, and whether it goes ahead."""
        move = self._moves[-1]
        end = self._ends[-1]
        differences = move - np.array(self._moves[:-1])
        gram = differences @ differences.T
        gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram)
        shares = np.linalg.pinv(gram) @ (differences @ move)
        step = -shares @ (end - np.array(self._ends[:-1]))
        return (self._stretch * move, True) if step @ move < 0 else (step, False)

    def _tried(self, state: S, step: Array) -> S | None:
        """Try an iteration from the extrapolated coordinates; None if it is rejected."""
        if not np.isfinite(step).all():
            return None
        try:
            with np.errstate(all="ignore"):
                beginning = self._coordinates.at(state, self._ends[-1] + step)
                after = self._update(beginning)
        except (FloatingPointError, np.linalg.LinAlgError):
            return None
        if not after.objective >= state.objective:
            return None
        self._remember(beginning, after)
        return after

    def _remember(self, before: S, after: S) -> None:
        end = self._coordinates.of(after)
        self._ends.append(end)
        self._moves.append(end - self._coordinates.of(before))
        if len(self._ends) > max(2, min(MOST_ITERATIONS_KEPT, MOST_NUMBERS // (2 * len(end)))):
            del self._ends[0], self._moves[0]


@dataclass
class Ascent[S: State]:
    """Iterations of one start, ended by so many small increases in a row (`patience`).

    A decrease beyond rounding by more than `fall` ends the start before the iteration.
    """

    state: S
    update: Callable[[S], S]
    patience: int = 1
    fall: float = np.inf
    history: list[float] = field(default_factory=list)
    converged: bool = False
    fell: float = 0.0
    _small: int = field(default=0, init=False)

    @property
    def height(self) -> float:
        """The objective; -inf if it is not finite."""
        return self.state.objective if np.isfinite(self.state.objective) else -np.inf

    def climbing(self, max_iterations: int) -> bool:
        """Whether another iteration is due."""
        broken = bool(self.history) and not np.isfinite(self.history[-1])
        return not (self.converged or self.fell or broken) and len(self.history) < max_iterations

    @property
    def remaining(self) -> float:
        """Estimated remaining increase of the objective; infinite while the increases grow.

        With the last 6 increases g and r = (g_6 / g_1)^(1/5), the increases to come add up to g_6
        (r + r^2 + ...) = g_6 r / (1 - r).
        """
        if len(self.history) < SPAN + 2:
            return np.inf
        gains = np.diff(self.history[-SPAN - 2 :])
        if gains[-1] <= 0:
            return 0.0
        ratio = (gains[-1] / gains[0]) ** (1 / SPAN) if gains[0] > 0 else np.inf
        return float(gains[-1] * ratio / (1 - ratio)) if ratio < 1 else np.inf

    def advance(self, tolerance: float, remaining: float = np.inf) -> None:
        """Do one iteration."""
        before = self.history[-1] if self.history else -np.inf
        state = self.update(self.state)
        after = state.objective
        if before - after > self.fall + max(tolerance, ROUNDING_SHARE) * abs(before):
            self.fell = before - after
            return
        self.state = state
        self.history.append(after)
        near = self.remaining <= remaining
        small = near and abs(after - before) <= tolerance * abs(after)
        self._small = self._small + 1 if small else 0
        stalled = near and len(self.history) - np.argmax(self.history) > STALL
        self.converged = self._small >= self.patience or bool(stalled)


def ascended[S: State](state: S, update: Callable[[S], S], coordinates: Coordinates[S]) -> S:
    """End of an accelerated ascent from one state, for predictions: within about a nat."""
    ascent = Ascent(state, Anderson(update, coordinates), PATIENCE)
    while ascent.climbing(MOST_ITERATIONS):
        ascent.advance(ROUGH, ROUGHLY_REMAINING)
    return ascent.state


def beginnings[S: State](
    begin: Callable[[Array], Ascent[S]],
    first: Array,
    starts: int,
    tolerance: float,
    rng: np.random.Generator,
    check: Callable[[], None],
) -> Iterator[Ascent[S]]:
    """Yield starts at the weights `first`, at the vertices, then at uniform draws from the simplex.

    If there are more vertices than starts left, every vertex does one iteration and the highest are
    used. `check` is called before each and may raise.
    """
    yield begin(first)
    n_kernels = len(first)
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


@dataclass(frozen=True)
class MultistartResult[S: State]:
    """Final states and histories of all starts, and whether the best start converged."""

    states: list[S]
    histories: list[Array]
    best: int
    converged: bool

    @property
    def state(self) -> S:
        """Final state of the best start."""
        return self.states[self.best]


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
    remaining: float = np.inf,
    first_round: int | None = None,
    coordinates: Coordinates[S] | None = None,
    engine: str = "VB",
) -> MultistartResult[S]:
    """Do coordinate ascent from every start and choose the start with the highest objective.

    `starts_at` make states from initial weights; `known` weights need one start only. A start ends
    at a relative change below `tolerance` if the estimated `remaining` increase is no larger.
    Unless `starts` are given, only the highest goes on after `first_round` iterations. A decrease
    ends a start, unconverged; an interrupt keeps the states reached so far.
    """
    compete = first_round is not None and starts is None
    fall = NEW_POINTS if n_kernels > 3 else ROUNDING_NATS

    def begin(start: Callable[[Array], S], weights: Array) -> Ascent[S]:
        if coordinates is None:
            return Ascent(start(weights), update, fall=fall)
        return Ascent(start(weights), Anderson(update, coordinates), PATIENCE, fall)

    n_starts = starts or min(n_kernels + 1, MOST_STARTS)
    uniform = np.full(n_kernels, 1 / n_kernels)
    if known is not None or (compete and n_kernels > MOST_CORNERS):
        n_starts = 1
    weights = uniform if known is None else known
    rng = run.rng()
    begun = chain.from_iterable(
        beginnings(partial(begin, start), weights, n_starts, tolerance, rng, run.clock.check)
        for start in starts_at
    )
    first = min(first_round, max_iterations) if compete and first_round else max_iterations
    after = max_iterations - first
    ascents: list[Ascent[S]] = []
    interrupted = False

    def go_on(k: int, until: int, more: int) -> None:
        ascent = ascents[k]
        done = len(ascents[k].history)
        while ascent.climbing(until):
            ascent.advance(tolerance, remaining)
            bar.advance(start=k + 1, bound=ascent.state.objective)
        bar.skip(more - (len(ascent.history) - done))

    def highest() -> int:
        return int(np.argmax([ascent.height for ascent in ascents]))

    try:
        n_ascents = len(starts_at) * n_starts
        usual = n_ascents * min(first, USUAL_ITERATIONS) + min(after, USUAL_ITERATIONS)
        total = n_ascents * first + after
        with run.track(total, engine, usual=usual) as bar:
            for k, ascent in enumerate(begun):
                ascents.append(ascent)
                go_on(k, first, first)
            best = highest()
            go_on(best, max_iterations, after)
    except KeyboardInterrupt as interruption:
        interrupted = True
        ascents = [ascent for ascent in ascents if ascent.history]
        if not ascents:
            raise
        if not isinstance(interruption, OutOfTime):
            warn_user(f"{engine} was interrupted: the output so far is returned.")
        best = highest()
    if not np.isfinite(ascents[best].height):
        raise FloatingPointError(
            f"{engine}'s objective is not a finite number from any start: rescale the kernels (for "
            "example kernels.normalize('trace')), or take a less extreme prior."
        )
    converged = ascents[best].converged and not interrupted
    if not converged and not interrupted:
        why = f"in {max_iterations} iterations: raise max_iterations"
        if fell := ascents[best].fell:
            why = (
                f"because its objective fell by {fell:.2g}, which shows that its integrals are "
                "imprecise: rescale the kernels, or take a less extreme prior"
            )
        warn_user(f"{engine} did not converge {why}.")
    histories = [np.array(ascent.history) for ascent in ascents]
    return MultistartResult([ascent.state for ascent in ascents], histories, best, converged)
