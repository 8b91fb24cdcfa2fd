"""Exact draws from the cone-truncated normal of the multinomial probit augmentation.

Given its class t_n, the latent vector of object n is y_n ~ N(f_n, I) restricted to the cone
{y : y_t > y_j for all j != t} (damoulas2009, appendix A).  The largest entry v = y_t is drawn
first, from its marginal density, prop. to phi(v - f_t) prod_{j != t} Phi(v - f_j); given v the
others are independent normals truncated to (-inf, v).  No Markov chain is involved.
"""

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri_exp

from ...numerics.probit import near_mode

_LARGEST = 1e8


def sample_cone(f: np.ndarray, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw y_n ~ N(f_n, I) given argmax_c y_nc = t_n, independently for every object; (N, C).

    Source: damoulas2009, appendix A (the conditional of Y); the algorithm is ours. Cost O(N C). An
    object whose first plain draw missed its cone takes 1.3 to 2.1 proposals for C = 3 to 27.
    ValueError if a mean is not finite or above 1e8 in size, where double precision fails.
    """
    largest = np.abs(f).max()
    if not largest <= _LARGEST:
        raise ValueError(
            f"The 'f' argument of sample_cone must be finite and at most {_LARGEST:g} in size. "
            f"Got {largest:g}: scale the kernels down, or make tau and upsilon larger."
        )
    # An unconstrained draw that lands in its cone is exact already.
    y = f + rng.standard_normal(f.shape)
    missed = y.argmax(axis=1) != t
    y[missed] = _draw_inside(f[missed], t[missed], rng)
    return y


def _draw_inside(f: np.ndarray, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw the winners from their marginals, then the losers given them; (N, C), (N,) -> (N, C)."""
    n, c = f.shape
    is_loser = np.arange(c) != t[:, None]
    losers = f[is_loser].reshape(n, c - 1)
    winner = _draw_winner(f[~is_loser], losers, rng)
    ceiling = winner[:, None]
    # Inverse CDF in log space: log(U Phi) = log Phi - Exp(1) keeps every tail.
    log_cdf = log_ndtr(ceiling - losers) - rng.standard_exponential(losers.shape)
    below = np.minimum(losers + ndtri_exp(log_cdf), np.nextafter(ceiling, -np.inf))
    y = np.empty((n, c))
    y[~is_loser] = winner
    y[is_loser] = below.ravel()
    return y


def _draw_winner(own: np.ndarray, others: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw v with density prop. to phi(v - own) prod_j Phi(v - others_j); (N,), (N, C-1) -> (N,).

    Each log Phi lies below its tangent at any point m, so replacing it by that tangent gives an
    envelope, which is the normal N(own + sum_j lambda(m - others_j), 1) with lambda = phi / Phi.
    The draw is exact for every m; near the mode most proposals are accepted.
    """
    tangent = own + near_mode(own[:, None] - others)
    x = tangent[:, None] - others
    slope = _inverse_mills(x).sum(axis=1)
    height = log_ndtr(x).sum(axis=1)
    winner = np.empty_like(own)
    pending = np.arange(len(own))
    while len(pending):
        v = own[pending] + slope[pending] + rng.standard_normal(len(pending))
        log_accept = (
            log_ndtr(v[:, None] - others[pending]).sum(axis=1)
            - height[pending]
            - slope[pending] * (v - tangent[pending])
        )
        accepted = -rng.standard_exponential(len(pending)) < log_accept
        winner[pending[accepted]] = v[accepted]
        pending = pending[~accepted]
    return winner


def _inverse_mills(x: np.ndarray) -> np.ndarray:
    """phi(x) / Phi(x) without cancellation in either tail (erfcx overflows to a correct 0)."""
    return np.sqrt(2.0 / np.pi) / erfcx(-x / np.sqrt(2.0))
