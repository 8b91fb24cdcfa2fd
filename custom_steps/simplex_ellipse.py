r"""Elliptical slice sampling of weights on the simplex, alone or with their concentrations.

The pair varphi_k ~ Gamma(tau, rate nu), beta | varphi ~ Dirichlet(varphi) is a function of 2 K
independent standard normals: varphi_k and g_k ~ Gamma(varphi_k, 1) are quantiles of theirs, and
beta = g / sum g.  In these coordinates the prior is normal, which is what elliptical slice sampling
(Murray, Adams & MacKay 2010) asks for: it follows weights into the corners of the simplex, where
log-ratios have long tails, and has nothing to tune.

Quantiles are computed from and to logarithms: weights as small as 1e-300 are kept apart.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import (
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    log_ndtr,
    ndtr,
    ndtri,
    ndtri_exp,
)

from .simplex_metropolis import SMALLEST, log_gamma_draw

__all__ = ["log_quantile", "normal_score", "update_simplex"]

# Below this log g, F(g) = g^a / Gamma(a + 1) to twelve digits for shapes up to 10.
_LEADING_TERM = -30.0

# Arc, in radians, below which nothing is left of an ellipse.
_LEAST_BRACKET = 1e-10


def normal_score(log_g: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the normal quantile of the probability below g under Gamma(shape, 1)."""
    shape = np.broadcast_to(shape, np.shape(log_g))
    g = np.exp(log_g)
    tiny = log_g < _LEADING_TERM
    # A dummy keeps the branch that is not taken finite.
    inside = np.where(tiny, 1.0, g)
    below, above = gammainc(shape, inside), gammaincc(shape, inside)
    central = np.where(below < above, ndtri(below), -ndtri(above))
    return np.where(tiny, ndtri_exp(shape * log_g - gammaln(shape + 1.0)), central)


def log_quantile(z: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the log of the Gamma(shape, 1) quantile of the probability below a normal score z."""
    shape = np.broadcast_to(shape, np.shape(z))
    leading = (log_ndtr(z) + gammaln(shape + 1.0)) / shape
    tiny = leading < _LEADING_TERM
    inside = np.where(tiny, 0.0, z)
    lower = gammaincinv(shape, ndtr(np.minimum(inside, 0.0)))
    upper = gammainccinv(shape, ndtr(-np.maximum(inside, 0.0)))
    central = np.where(tiny, 1.0, np.where(inside < 0.0, lower, upper))
    return np.where(tiny, leading, np.log(central))


def update_simplex(
    beta: np.ndarray,
    varphi: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
    moves: int,
    *,
    concentrations: tuple[float, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Elliptical slice sampling of beta given varphi, or of both.

    The sum of the g, which the likelihood ignores and which is independent of beta, is redrawn from
    its prior Gamma(sum varphi, 1) first.

    Parameters
    ----------
    beta, varphi : ndarray of shape (K,)
        Current weights and concentrations; not modified.
    log_likelihood : callable
        Log-likelihood of the weights, up to a constant.
    rng : numpy.random.Generator
        Source of randomness.
    moves : int
        Number of ellipses.
    concentrations : (float, float), optional
        Shape tau and rate nu of the concentrations' prior. Default: varphi stays as it is.

    Returns
    -------
    beta, varphi : ndarray of shape (K,)
        New weights, a new array, and concentrations.
    evaluations : int
        Evaluations of the likelihood, about three a move.

    Raises
    ------
    FloatingPointError
        When the log-likelihood of the given weights is not finite.

    Notes
    -----
    Source: Murray, Adams & MacKay (2010), Elliptical slice sampling, Figure 2. Weights below 1e-300
    are outside the support.
    """
    k = len(beta)
    log_g = np.log(np.maximum(beta, SMALLEST)) + log_gamma_draw(varphi.sum(), rng)
    z = normal_score(log_g, varphi)
    if concentrations is not None:
        tau, nu = concentrations
        z = np.concatenate([z, normal_score(np.log(nu * varphi), tau)])

    def position(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shapes = varphi if concentrations is None else np.exp(log_quantile(z[k:], tau)) / nu
        log_g = log_quantile(z[:k], shapes)
        return log_g - np.logaddexp.reduce(log_g), shapes

    def target(log_beta: np.ndarray) -> float:
        return log_likelihood(np.exp(log_beta)) if log_beta.min() > np.log(SMALLEST) else -np.inf

    log_beta, evaluations = np.log(np.maximum(beta, SMALLEST)), 1
    current = log_likelihood(np.exp(log_beta))
    if not np.isfinite(current):
        raise FloatingPointError(
            f"The log likelihood of the current weights {beta} must be finite. Got {current}."
        )
    for _ in range(moves):
        other = rng.standard_normal(len(z))
        level = current - rng.standard_exponential()
        angle = 2 * np.pi * rng.random()
        lower, upper = angle - 2 * np.pi, angle
        # Rounding of the likelihood may leave nothing of the slice: the weights then stay.
        while upper - lower > _LEAST_BRACKET:
            proposal = np.cos(angle) * z + np.sin(angle) * other
            proposed_log, shapes = position(proposal)
            proposed = target(proposed_log)
            evaluations += 1
            if proposed >= level:
                z, log_beta, varphi, current = proposal, proposed_log, shapes, proposed
                break
            lower, upper = (angle, upper) if angle < 0.0 else (lower, angle)
            angle = lower + (upper - lower) * rng.random()
    return np.exp(log_beta), varphi, evaluations
