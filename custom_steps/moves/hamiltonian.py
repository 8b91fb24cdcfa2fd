"""Hamiltonian Monte Carlo with trajectories of random length.

The coordinates of the position are scaled to posterior standard deviations of at most about one, so
that the length of a trajectory needs no tuning. Lengths are uniform on (0, 2 `length`], which
avoids periodic orbits. A proposal is cheaper than a tree of NUTS and leaves the same distribution
invariant (Neal 2011, MCMC using Hamiltonian dynamics).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

type LogDensity = Callable[[np.ndarray], tuple[float, np.ndarray]]

MOST_STEPS = 1_000


class Move(NamedTuple):
    """Outcome of a Hamiltonian move: the new position, its acceptance probability, its cost."""

    position: np.ndarray
    acceptance: float
    steps: int


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
