"""Adaptive random-walk Metropolis in unbounded coordinates.

Position, statistics of a move, and tuning are separate objects, as in `simplex_metropolis`: a walk
returns the position and its acceptance, and `adapt_walk` replaces the tuning, only while the chain
tunes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Target acceptance probabilities for joint proposals of several coordinates, and for one
# coordinate.
TARGET_JOINT = 0.3
TARGET_SINGLE = 0.44
_DECAY = 0.6
_HEAD_START = 10


class WalkTuning(NamedTuple):
    """Proposal: a scaled normal with the chain's covariance; no mean before the first position."""

    updates: int
    log_scale: float
    mean: np.ndarray | None
    covariance: np.ndarray
    factor: np.ndarray


def initial_walk_tuning(covariance: np.ndarray, mean: np.ndarray | None = None) -> WalkTuning:
    """Proposal before the first move: steps of total size one half."""
    log_scale = float(np.log(0.5 / np.sqrt(len(covariance))))
    return WalkTuning(0, log_scale, mean, covariance, shape_factor(covariance))


def walk(
    x: np.ndarray,
    log_density: Callable[[np.ndarray], float],
    tuning: WalkTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, float]:
    """Make random-walk Metropolis moves of all coordinates at once; also give the mean acceptance.

    A log density of NaN counts as minus infinity. Cost: `moves` + 1 evaluations.
    """
    if not moves:
        return x, np.nan
    jumps = np.exp(tuning.log_scale) * rng.standard_normal((moves, len(x))) @ tuning.factor.T
    thresholds = -rng.standard_exponential(moves)
    current = log_density(x)
    acceptance = 0.0
    for jump, threshold in zip(jumps, thresholds, strict=True):
        proposal = x + jump
        proposed = log_density(proposal)
        log_ratio = proposed - current
        if np.isnan(log_ratio):
            continue
        acceptance += np.exp(min(log_ratio, 0.0))
        if threshold < log_ratio:
            x, current = proposal, proposed
    return x, acceptance / moves


def adapt_walk(tuning: WalkTuning, x: np.ndarray, acceptance: float, target: float) -> WalkTuning:
    """Update the proposal after moves that ended at x; only while the chain tunes.

    The scale moves towards its acceptance target, and the shape follows the chain's covariance
    (Andrieu & Thoms 2008, A tutorial on adaptive MCMC, algorithm 4).
    """
    step = gain(tuning.updates)
    mean = x if tuning.mean is None else tuning.mean
    deviation = x - mean
    covariance = tuning.covariance + step * (np.outer(deviation, deviation) - tuning.covariance)
    return WalkTuning(
        updates=tuning.updates + 1,
        log_scale=tuning.log_scale + step * (acceptance - target),
        mean=mean + step * deviation,
        covariance=covariance,
        factor=shape_factor(covariance),
    )


def gain(updates: int) -> float:
    """Robbins-Monro step size, dampened at the start."""
    return (updates + _HEAD_START) ** -_DECAY


def shape_factor(covariance: np.ndarray) -> np.ndarray:
    """Cholesky factor of the covariance's shape, scaled to determinant one.

    The scale alone determines the size; otherwise a chain that starts slowly would shrink its
    covariance and its proposals together.
    """
    d = len(covariance)
    factor = np.linalg.cholesky(covariance + 1e-6 * np.trace(covariance) / d * np.eye(d))
    return factor / np.exp(np.log(np.diag(factor)).mean())
