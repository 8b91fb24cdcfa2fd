r"""Gamma quantiles of normal scores and their inverse, in logarithms.

g ~ Gamma(a, 1) is a function of a standard normal: z = Phi^-1(P(a, g)). Values as small as 1e-300
keep their digits, and so do scores far beyond 38, where P or Q = 1 - P underflow.

If a tail is below `TAIL`, its logarithm comes from the expansion for |g - a| large relative to
sqrt(a) (Temme; DLMF 8.11.6 and 8.11.7)

    tail = g^a e^-g / Gamma(a) sum_k (-a)^k b_k(g / a) / |g - a| (g - a)^2k,
    b_0 = 1,  b_k(x) = x (1 - x) b'_{k-1}(x) + (2 k - 1) x b_{k-1}(x),

which is accurate to 1e-14 there, and its inverse from Newton's method.
"""

import numpy as np
from numpy.polynomial import Polynomial
from scipy.special import (
    gammainc,
    gammaincc,
    gammainccinv,
    gammaincinv,
    gammaln,
    kl_div,
    log_ndtr,
    ndtr,
    ndtri,
    ndtri_exp,
)

# Below this log g, P(a, g) = g^a / Gamma(a + 1) to twelve digits.
_LEADING_TERM = -30.0

# Tails below this probability are computed in logarithms; the corresponding score.
TAIL = 1e-280
_FAR = -float(ndtri(TAIL))

# Above this shape, Stirling's series (to 1e-15) avoids the cancellation of large terms.
_LARGE = 100.0

NEWTON_STEPS = 60


def _expansion(terms: int) -> list[np.ndarray]:
    """Coefficients of (-1)^k b_k(x), highest power first."""
    x, b = Polynomial([0, 1]), Polynomial([1])
    coefficients = []
    for k in range(terms):
        coefficients.append((-1) ** k * b.coef[::-1])
        b = x * (1 - x) * b.deriv() + (2 * k + 1) * x * b
    return coefficients


_EXPANSION = _expansion(7)


def _log_tail(g: np.ndarray, shape: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of the lower tail for g < a or the upper tail for g > a, and log of g p(g) / tail.

    p is the density.
    """
    ratio, distance = g / shape, np.abs(g - shape)
    small = 1 / (distance / shape * distance)
    series = np.zeros_like(g)
    for coefficients in reversed(_EXPANSION):
        series = series * small + np.polyval(coefficients, ratio)
    stirling = (1 / 12 - 1 / (360 * shape**2)) / shape
    log_density = np.where(
        shape > _LARGE,
        0.5 * np.log(shape / (2 * np.pi)) - stirling - kl_div(shape, g),
        shape * np.log(g) - g - gammaln(shape),
    )
    log_share = np.log(distance / series)
    return log_density - log_share, log_share


def _far_log_quantile(z: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """Log g for scores beyond `_FAR` in size, if the leading term does not suffice.

    The lower tail is concave in log g, the upper tail almost linear in g. Bounds on the tails
    (Boucheron, Lugosi & Massart 2013, section 2.4) start Newton's method on the side from which it
    does not overshoot.
    """
    log_p = log_ndtr(-np.abs(z))
    lower = z < 0.0
    reach = np.sqrt(-2 * shape * log_p)
    leading = np.exp((log_p + gammaln(shape + 1.0)) / shape)
    g = np.where(lower, np.maximum(leading, shape - reach), shape + reach - log_p)
    for _ in range(NEWTON_STEPS):
        log_tail, log_ratio = _log_tail(g, shape)
        # The step is in log g for the lower tail, in g for the upper tail.
        step = (log_p - log_tail) * np.exp(-log_ratio)
        g = g * np.where(lower, np.exp(step), 1.0 - step)
        # The remaining error is the square of the step.
        if np.abs(step).max() < 1e-8:
            break
    return np.log(g)


def normal_score(log_g: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the normal quantile of the probability below g under Gamma(shape, 1).

    Scores are finite up to a size of about 1e150; shapes above 1e6 cost digits.
    """
    shape = np.broadcast_to(shape, np.shape(log_g))
    g = np.exp(log_g)
    tiny = log_g < _LEADING_TERM
    # The dummy value keeps the unused branch finite.
    inside = np.where(tiny, 1.0, g)
    below, above = gammainc(shape, inside), gammaincc(shape, inside)
    smaller = np.minimum(below, above)
    score = np.where(below < above, ndtri(below), -ndtri(above))
    score = np.where(tiny, ndtri_exp(shape * log_g - gammaln(shape + 1.0)), score)
    far = (smaller < TAIL) & ~tiny
    if far.any():
        tail, _ = _log_tail(g[far], shape[far])
        score[far] = np.sign(g[far] - shape[far]) * -ndtri_exp(tail)
    return score


def log_quantile(z: np.ndarray, shape: np.ndarray | float) -> np.ndarray:
    """Return the log of the Gamma(shape, 1) quantile of the probability below a normal score z.

    Shapes above 1e6 cost digits.
    """
    shape = np.broadcast_to(shape, np.shape(z))
    leading = (log_ndtr(z) + gammaln(shape + 1.0)) / shape
    tiny = leading < _LEADING_TERM
    inside = np.where(tiny, 0.0, z)
    lower = gammaincinv(shape, ndtr(np.minimum(inside, 0.0)))
    upper = gammainccinv(shape, ndtr(-np.maximum(inside, 0.0)))
    far = np.abs(inside) > _FAR
    central = np.where(tiny | far, 1.0, np.where(inside < 0.0, lower, upper))
    log_g = np.where(tiny, leading, np.log(central))
    if far.any():
        log_g[far] = _far_log_quantile(inside[far], shape[far])
    return log_g
