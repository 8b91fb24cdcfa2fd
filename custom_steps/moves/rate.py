"""Moves of a learned rate v of precisions phi_m ~ Gamma(shape, rate v), see `LearnedScale`."""

from collections.abc import Callable

import numpy as np

from ...models.learned_scale import LearnedScale
from .ellipse import slice_on_ellipse

__all__ = ["draw_rate", "move_rate"]


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
    `slice_on_ellipse` applies.

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

    def rate_at(z: np.ndarray) -> float:
        return float(np.exp(centre + prior.sigma * z[0]))

    start = np.array([(np.log(rate) - centre) / prior.sigma])
    z, _, evaluations = slice_on_ellipse(
        start, log_likelihood(precisions), lambda z: log_likelihood(products / rate_at(z)), rng
    )
    if z is start:
        return rate, precisions, 1 + evaluations
    return rate_at(z), products / rate_at(z), 1 + evaluations
