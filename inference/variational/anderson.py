"""Anderson acceleration of iterations that increase an objective.

An iteration maps a few coordinates to new values; the solutions are its fixed points. If the map
were linear, the last iterations would determine its fixed point, and the next iteration starts from
that point (Walker & Ni 2011, SIAM Journal on Numerical Analysis 49, "type II"). If the moves grow
from one iteration to the next, that point lies behind and is repelling; then the next iteration
starts ahead instead, at twice the last move, then four times, and so on.

If such an iteration lowers the objective or fails, it is repeated from the unaccelerated state, and
the stored iterations are dropped. So acceleration never lowers the objective.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Anderson", "Coordinates", "State"]

type Array = npt.NDArray[np.float64]

# Largest number of stored iterations, and of stored numbers (half a gigabyte).
MOST_KEPT = 9
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
    """Accelerated iterations of one start: a call with a state returns the next state.

    An iteration costs O(n) for n coordinates plus one update, or two if the first one is rejected.
    Up to 18 n numbers are stored.
    """

    def __init__(self, update: Callable[[S], S], coordinates: Coordinates[S]):
        self._update, self._coordinates = update, coordinates
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
        move, end = self._moves[-1], self._ends[-1]
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
        if len(self._ends) > max(2, min(MOST_KEPT, MOST_NUMBERS // (2 * len(end)))):
            del self._ends[0], self._moves[0]
