r"""Elliptical slice sampling (Murray, Adams & MacKay 2010, Elliptical slice sampling, Figure 2).

Weights on the simplex, alone or with their concentrations: the pair varphi_k ~ Gamma(tau, rate nu),
beta | varphi ~ Dirichlet(varphi) is a function of 2 K independent standard normals: varphi_k and
g_k ~ Gamma(varphi_k, 1) are quantile transforms, and beta = g / sum g. In these coordinates the
prior is normal. The sampler follows weights into the corners of the simplex, where log-ratios have
long tails, and needs no tuning. Quantiles are computed in logarithms, so that weights as small as
1e-300 keep their digits. Scores beyond `LARGEST_SCORE`, of probability 1e-280, are outside the
support: there one of the tails underflows.

A learned rate v of precisions phi_m ~ Gamma(shape, rate v), see `LearnedScale`: log v is normal.
"""

from collections.abc import Callable

import numpy as np
from scipy import special

from ...models.combinations.sums import LEAST_LOG_ARGUMENT
from ...models.learned_scale import LearnedScale
from .metropolis import log_gamma_draw

# Arc of an ellipse, in radians, below which the search ends.
_LEAST_BRACKET = 1e-10
# Below this log g, P(a, g) = g^a / Gamma(a + 1) to twelve digits.
_LEADING_TERM = -30.0
LARGEST_SCORE = -float(special.ndtri(1e-280))


def normal_score(log_g: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the normal quantile of the probability below g ~ Gamma(shape, 1).

    Not accurate beyond `LARGEST_SCORE` in size, unless g < 1e-13; shapes above 1e6 cost digits.
    """
    tiny = log_g < _LEADING_TERM
    # The dummy value keeps the unused branch finite.
    g = np.where(tiny, 1.0, np.exp(log_g))
    below = special.gammainc(shape, g)
    above = special.gammaincc(shape, g)
    score = np.where(below < above, special.ndtri(below), -special.ndtri(above))
    return np.where(tiny, special.ndtri_exp(shape * log_g - special.gammaln(shape + 1.0)), score)


def log_quantile(z: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the log of the Gamma(shape, 1) quantile of the probability below a normal score z.

    NaN beyond `LARGEST_SCORE` in size, unless the quantile is below 1e-13.
    """
    leading = (special.log_ndtr(z) + special.gammaln(shape + 1.0)) / shape
    tiny = leading < _LEADING_TERM
    inside = np.where(tiny, 0.0, z)
    lower = special.gammaincinv(shape, special.ndtr(np.minimum(inside, 0.0)))
    upper = special.gammainccinv(shape, special.ndtr(-np.maximum(inside, 0.0)))
    central = np.where(tiny, 1.0, np.where(inside < 0, lower, upper))
    central[np.abs(inside) > LARGEST_SCORE] = np.nan
    return np.where(tiny, leading, np.log(central))


def slice_on_ellipse(
    z: np.ndarray,
    current: float,
    log_likelihood: Callable[[np.ndarray], float],
    rng: np.random.Generator,
) -> tuple[np.ndarray, float, int]:
    """Move independent standard normals (n,), whose log likelihood is `current`.

    Returns the new point (`z` itself if rounding leaves an empty slice), its log likelihood, and
    the number of evaluations, about three.
    """
    other = rng.standard_normal(len(z))
    level = current - rng.standard_exponential()
    angle = 2 * np.pi * rng.random()
    lower = angle - 2 * np.pi
    upper = angle
    evaluations = 0
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

    The sum of the g, independent of beta and of the data, is first redrawn. `concentrations` are
    shape tau and rate nu of the prior of varphi; without them it is kept. Weights below 1e-300 are
    outside the support. FloatingPointError where quantiles of the prior underflow.
    """
    k = len(beta)
    log_g = np.log(np.maximum(beta, LEAST_LOG_ARGUMENT)) + log_gamma_draw(varphi.sum(), rng)
    z = normal_score(log_g, varphi)
    shape = varphi
    if concentrations is not None:
        tau, nu = concentrations
        z = np.concatenate([z, normal_score(np.log(nu * varphi), tau)])
        shape = np.append(shape, np.full(k, tau))
    if not np.isfinite(log_quantile(z, shape)).all():
        raise FloatingPointError(
            f"The kernel weights must be within {LARGEST_SCORE:.0f} standard deviations of their "
            f"prior, and finite. Got {beta} with the concentrations {varphi}: take a wider prior."
        )

    def position(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shapes = varphi if concentrations is None else np.exp(log_quantile(z[k:], tau)) / nu
        log_g = log_quantile(z[:k], shapes)
        return log_g - np.logaddexp.reduce(log_g), shapes

    def target(log_beta: np.ndarray) -> float:
        return (
            log_likelihood(np.exp(log_beta))
            if log_beta.min() > np.log(LEAST_LOG_ARGUMENT)
            else -np.inf
        )

    log_beta = np.log(np.maximum(beta, LEAST_LOG_ARGUMENT))
    evaluations = 1
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

    The proposal is Gamma(M shape, rate sum_m phi_m); the prior of the logarithm decides.
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

    These products have the law Gamma(shape, 1) whatever the rate is, and log rate is normal. The
    likelihood is that of the precisions. Also counts its evaluations, about four.
    """
    products = rate * precisions
    centre = np.log(prior.median)

    def rate_at(z: np.ndarray) -> float:
        return float(np.exp(centre + prior.sigma * z[0]))

    start = np.array([(np.log(rate) - centre) / prior.sigma])
    z, _, evaluations = slice_on_ellipse(
        start, log_likelihood(precisions), lambda z: log_likelihood(products / rate_at(z)), rng
    )
    if z is start:
        return rate, precisions, 1 + evaluations
    return rate_at(z), products / rate_at(z), 1 + evaluations
