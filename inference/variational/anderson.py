"""Anderson acceleration of iterations that raise an objective.

An iteration is a map of a few coordinates to themselves; its fixed points are the solutions. If the
map were linear, the last iterations would tell its fixed point: the next iteration begins there
(Walker & Ni 2011, SIAM Journal on Numerical Analysis 49, "type II"). Where the moves grow from one
iteration to the next, that point lies behind: the fixed point is one to get away from, and the next
iteration begins ahead instead, at twice the last move, then four times, and so on.

When such a beginning lowers the objective, or breaks, the iteration is done again from the state
itself, and those before are forgotten: the objective falls only where it would anyway.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Anderson", "Coordinates", "State"]

type Array = npt.NDArray[np.float64]

# Iterations that are kept at most, and numbers of them (half a gigabyte).
MOST_KEPT = 9
MOST_NUMBERS = 1 << 26
# Part of the mean square of the differences that is added to each: they are nearly dependent.
RIDGE = 1e-10
# How far ahead the next iteration begins, in moves, where there is no fixed point to go to.
FIRST_STRETCH = 2.0


class State(Protocol):
    """All factors after an iteration."""

    @property
    def objective(self) -> float:
        """What the iterations increase."""


@dataclass(frozen=True)
class Coordinates[S]:
    """What the next iteration depends on, as a vector of any real numbers.

    Parameters
    ----------
    of : callable (state) -> array (n,)
    at : callable (state, array (n,)) -> state
        The state with these coordinates; what they do not cover stays.
    """

    of: Callable[[S], Array]
    at: Callable[[S, Array], S]


class Anderson[S: State]:
    """One start's iterations, accelerated; called with a state, it returns the next one.

    Parameters
    ----------
    update : callable (state) -> state
        One iteration.
    coordinates : Coordinates

    Notes
    -----
    An iteration costs O(n) for n coordinates beside the update, or beside two of them where the
    first was for nothing. Up to 18 n numbers are kept.
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
        """From the last end to where the next iteration begins, and whether that is ahead."""
        move, end = self._moves[-1], self._ends[-1]
        differences = move - np.array(self._moves[:-1])
        gram = differences @ differences.T
        gram[np.diag_indices_from(gram)] += RIDGE * np.trace(gram)
        shares = np.linalg.pinv(gram) @ (differences @ move)
        step = -shares @ (end - np.array(self._ends[:-1]))
        return (self._stretch * move, True) if step @ move < 0 else (step, False)

    def _tried(self, state: S, step: Array) -> S | None:
        """Do an iteration from where it may not be possible."""
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
