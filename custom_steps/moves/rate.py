"""Moves of a learned rate v of precisions phi_m ~ Gamma(shape, rate v), see `LearnedScale`."""

from collections.abc import Callable

import numpy as np

from ...models.learned_scale import LearnedScale

__all__ = ["draw_rate", "move_rate"]

# Arc of an ellipse, in radians, below which the search ends.
_LEAST_BRACKET = 1e-10


def draw_rate(
    rate: float, precisions: np.ndarray, shape: float, prior: LearnedScale, rng: np.random.Generator
) -> float:
    """Redraw the rate given the precisions, by a Metropolis-Hastings move; O(M).

    The precisions alone would give Gamma(M shape, rate sum_m phi_m), which is the proposal; the
    prior of the logarithm decides.
    """
    proposal = rng.standard_gamma(precisions.size * shape) / precisions.sum()
    rise = prior.log_density(np.log(proposal))[0] - prior.log_density(np.log(rate))[0]
    return float(proposal) if np.log(rng.uniform()) < rise else float(rate)


def move_rate(
    rate: float,
    precisions: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    prior: LearnedScale,
    rng: np.random.Generator,
) -> tuple[float, np.ndarray, int]:
    """Move the rate and the precisions together, with rate times precisions kept.

    These products have the law Gamma(shape, 1) whatever the rate is, and log rate is normal:
    elliptical slice sampling (Murray, Adams & MacKay 2010, Figure 2) applies.

    Parameters
    ----------
    rate : float
    precisions : ndarray of shape (M,)
        Not modified.
    log_likelihood : callable
        Log likelihood of precisions, up to a constant, finite at the current ones.
    prior : LearnedScale
    rng : numpy.random.Generator

    Returns
    -------
    rate : float
    precisions : ndarray of shape (M,)
    evaluations : int
        Evaluations of the likelihood, about four.
    """
    products, centre = rate * precisions, np.log(prior.median)
    z, other = (np.log(rate) - centre) / prior.sigma, rng.standard_normal()
    level = log_likelihood(precisions) - rng.standard_exponential()
    angle = 2 * np.pi * rng.random()
    lower, upper, evaluations = angle - 2 * np.pi, angle, 1
    # Rounding of the likelihood may leave an empty slice; the rate then stays.
    while upper - lower > _LEAST_BRACKET:
        proposal = np.exp(centre + prior.sigma * (np.cos(angle) * z + np.sin(angle) * other))
        evaluations += 1
        if log_likelihood(products / proposal) >= level:
            return float(proposal), products / proposal, evaluations
        lower, upper = (angle, upper) if angle < 0.0 else (lower, angle)
        angle = lower + (upper - lower) * rng.random()
    return rate, precisions, evaluations
