r"""Elliptical slice sampling (Murray, Adams & MacKay 2010, Elliptical slice sampling, Figure 2).

Weights on the simplex, alone or with their concentrations: the pair varphi_k ~ Gamma(tau, rate nu),
beta | varphi ~ Dirichlet(varphi) is a function of 2 K independent standard normals: varphi_k and
g_k ~ Gamma(varphi_k, 1) are quantile transforms, and beta = g / sum g. In these coordinates the
prior is normal. The sampler follows weights into the corners of the simplex, where log-ratios have
long tails, and needs no tuning. Quantiles are computed in logarithms (`gamma_quantiles`), so that
weights as small as 1e-300 and weights far out in the tails of their prior keep their digits.

A learned rate v of precisions phi_m ~ Gamma(shape, rate v), see `LearnedScale`: log v is normal.
"""

from collections.abc import Callable

import numpy as np

from ...models.combinations.sums import SMALLEST
from ...models.learned_scale import LearnedScale
from .gamma_quantiles import log_quantile, normal_score
from .metropolis import log_gamma_draw

# Arc of an ellipse, in radians, below which the search ends.
_LEAST_BRACKET = 1e-10


def slice_on_ellipse(
    z: np.ndarray,
    current: float,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> tuple[np.ndarray, float, int]:
    """Move independent standard normals (n,), whose log likelihood is `current`.

    Returns the new point, `z` itself if rounding of the likelihood leaves an empty slice, its log
    likelihood, and the number of evaluations, about three.
    """
    other = rng.standard_normal(len(z))
    level = current - rng.standard_exponential()
    angle = 2 * np.pi * rng.random()
    lower, upper, evaluations = angle - 2 * np.pi, angle, 0
    while upper - lower > _LEAST_BRACKET:
        proposal = np.cos(angle) * z + np.sin(angle) * other
        proposed = log_likelihood(proposal)
        evaluations += 1
        if proposed >= level:
            return proposal, proposed, evaluations
        lower, upper = (angle, upper) if angle < 0.0 else (lower, angle)
        angle = lower + (upper - lower) * rng.random()
    return z, current, evaluations


def update_simplex(
    beta: np.ndarray,
    varphi: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
    moves: int,
    *,
    concentrations: tuple[float, float] | None = None,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Move beta (K,) given varphi, or both, by elliptical slice sampling; count the evaluations.

    First the sum of the g, which is independent of beta and of the data, is redrawn from its prior
    Gamma(sum varphi, 1). `concentrations` are the shape tau and the rate nu of their prior; without
    them varphi is not moved. About three evaluations of the likelihood per move. Weights below
    1e-300 are outside the support. FloatingPointError if the log-likelihood of the given weights or
    one of their normal scores is not finite.
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
    """Move the rate and the precisions (M,) together, with rate times precisions kept.

    These products have the law Gamma(shape, 1) whatever the rate is, and log rate is normal:
    `slice_on_ellipse` applies. The likelihood is that of the precisions. Also returns the number of
    its evaluations, about four.
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
