r"""Elliptical slice sampling of weights on the simplex, alone or with their concentrations.

The pair varphi_k ~ Gamma(tau, rate nu), beta | varphi ~ Dirichlet(varphi) is a function of 2 K
independent standard normals: varphi_k and g_k ~ Gamma(varphi_k, 1) are quantile transforms, and
beta = g / sum g. In these coordinates the prior is normal, as elliptical slice sampling (Murray,
Adams & MacKay 2010) requires. The sampler follows weights into the corners of the simplex, where
log-ratios have long tails, and needs no tuning.

Quantiles are computed in logarithms (`gamma_quantiles`), so that weights as small as 1e-300 and
weights far out in the tails of their prior keep their digits.
"""

from collections.abc import Callable

import numpy as np

from ...models.combinations.sums import SMALLEST
from .ellipse import slice_on_ellipse
from .gamma_quantiles import log_quantile, normal_score
from .simplex_metropolis import log_gamma_draw

__all__ = ["update_simplex"]


def update_simplex(
    beta: np.ndarray,
    varphi: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
    moves: int,
    *,
    concentrations: tuple[float, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Move beta given varphi, or both, by elliptical slice sampling.

    First the sum of the g, which is independent of beta and of the data, is redrawn from its prior
    Gamma(sum varphi, 1).

    Parameters
    ----------
    beta, varphi : ndarray of shape (K,)
        Current weights and concentrations; not modified.
    log_likelihood : callable
        Log-likelihood of the weights, up to a constant.
    rng : numpy.random.Generator
        Source of randomness.
    moves : int
        Number of moves.
    concentrations : (float, float), optional
        Shape tau and rate nu of the concentrations' prior. Default: varphi is not moved.

    Returns
    -------
    beta, varphi : ndarray of shape (K,)
        New weights, a new array, and concentrations.
    evaluations : int
        Number of evaluations of the likelihood, about three a move.

    Raises
    ------
    FloatingPointError
        When the log-likelihood of the given weights or one of their normal scores is not finite.

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
    if not np.isfinite(z).all():
        raise FloatingPointError(
            f"The normal scores of the weights {beta} and their concentrations {varphi} must be "
            f"finite. Got {z}."
        )

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
    start = z
    for _ in range(moves):
        z, current, more = slice_on_ellipse(z, current, lambda z: target(position(z)[0]), rng)
        evaluations += more
    if z is not start:
        log_beta, varphi = position(z)
    return np.exp(log_beta), varphi, evaluations
