"""Hamiltonian Monte Carlo with trajectories of random length, and the tuning of its step.

The coordinates of the position are scaled to posterior standard deviations of at most about one, so
that the length of a trajectory needs no tuning. Lengths are uniform on (0, 2 `length`], which
avoids periodic orbits. A proposal is cheaper than a tree of NUTS and leaves the same distribution
invariant (Neal 2011, MCMC using Hamiltonian dynamics).
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np

type LogDensity = Callable[[np.ndarray], tuple[float, np.ndarray]]

MOST_STEPS = 1_000
# Dual averaging, with the constants of Hoffman & Gelman (2014), The no-U-turn sampler, section 3.2.
_SHRINKAGE = 0.05
_HEAD_START = 10
_FORGETTING = 0.75


class Move(NamedTuple):
    """Outcome of a Hamiltonian move: the new position, its acceptance probability, its cost."""

    position: np.ndarray
    acceptance: float
    steps: int


class StepTuning(NamedTuple):
    """Step of the leapfrog integrator while it is tuned, after a number of `updates`.

    `shortfall` is the running mean of target minus acceptance. Logarithms: the first step, the next
    one to try, and the one to use once tuning has ended.
    """

    first: float
    updates: int
    shortfall: float
    log_step: float
    log_average: float

    @classmethod
    def start(cls, step: float) -> Self:
        """Tuning before the first move, which uses `step`."""
        log_step = float(np.log(step))
        return cls(log_step, 0, 0.0, log_step, log_step)


def adapt_step(tuning: StepTuning, acceptance: float, target: float) -> StepTuning:
    """Update the step after a move with this acceptance probability; only while the chain tunes."""
    updates = tuning.updates + 1
    weight = 1 / (updates + _HEAD_START)
    shortfall = (1 - weight) * tuning.shortfall + weight * (target - acceptance)
    # Larger steps are tried first, because they are cheaper.
    log_step = tuning.first + np.log(10) - np.sqrt(updates) / _SHRINKAGE * shortfall
    gain = updates**-_FORGETTING
    average = gain * log_step + (1 - gain) * tuning.log_average
    return StepTuning(tuning.first, updates, shortfall, float(log_step), float(average))


def hamiltonian_move(
    log_density: LogDensity,
    position: np.ndarray,
    scale: np.ndarray,
    step: float,
    length: float,
    rng: np.random.Generator,
) -> Move:
    """Move a position (D,), leaving its distribution invariant.

    The log density is minus infinity outside the support. The mass matrix is diagonal, 1 / scale^2;
    step and expected length are in units of `scale`. About length / step evaluations, at most
    `MOST_STEPS`.
    """
    n_steps = max(1, int(np.ceil(min(2 * rng.uniform() * length / step, MOST_STEPS))))
    start, gradient = log_density(position)
    momentum = rng.standard_normal(len(position))
    energy = start - 0.5 * momentum @ momentum
    stride = step * scale
    proposal = position
    # Too long a step overflows; the acceptance is then zero.
    with np.errstate(over="ignore", invalid="ignore"):
        for taken in range(1, n_steps + 1):
            momentum = momentum + (0.5 * stride) * gradient
            proposal = proposal + stride * momentum
            value, gradient = log_density(proposal)
            if not np.isfinite(value):
                return Move(position, 0.0, taken + 1)
            momentum += (0.5 * stride) * gradient
        acceptance = float(np.exp(np.minimum(value - 0.5 * momentum @ momentum - energy, 0.0)))
    # NaN counts as a rejection, too.
    if not rng.uniform() < acceptance:
        proposal = position
    return Move(proposal, float(np.nan_to_num(acceptance)), n_steps + 1)
