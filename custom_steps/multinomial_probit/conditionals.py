"""Conditionals of the multinomial probit given latent utilities (Albert & Chib 1993).

Each object gets a latent vector y_n ~ N(f_n, I_C) whose largest entry names its class
(damoulas2009, eq 3). Given Y everything but the weights is conjugate (appendix A; for Omega_c = I +
K Z_c K' the paper prints Z_c^-1, and Omega, not its inverse, in the exponent).

=========== ============================================ =================
paper       meaning                                      code
=========== ============================================ =================
y_n         latent utilities, drawn afresh every sweep   ``y`` (N, C)
K^beta      composite kernel                             ``composite`` (N, M)
W, Z        regressors and their variances               ``W``, ``zeta`` (C, M)
V_c^-1      K'K + Z_c^-1                                 ``precision``
=========== ============================================ =================

Y is drawn exactly. The largest entry v = y_t comes first, from its marginal density, prop. to
phi(v - f_t) prod_{j != t} Phi(v - f_j); given v the others are independent normals truncated to
(-inf, v).
"""

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtri_exp

from ...models.learned_scale import LearnedScale
from ...numerics.normal_regression import (
    orthogonal_factor,
    precision_factor_or_none,
    solve_lower,
    solve_upper,
)
from ...numerics.probit import log_probability_and_gradient, near_mode
from ..moves.ellipse import move_rate

_LARGEST = 1e8


def draw_regressors(
    y: np.ndarray,
    zeta: np.ndarray,
    composite: np.ndarray,
    gram: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw W (C, M) given the utilities Y (N, C), after a move that rescales Y (appendix A).

    g Y with g > 0 has the same classes. With W integrated out, g^2 ~ Gamma(NC / 2, rate q / 2),
    where q = sum_c y_c'(I + K Z_c K')^-1 y_c; then w_c | g Y ~ N(g V_c K'y_c, V_c) (parameter
    expansion: Liu & Wu 1999). `gram` is K'K. One Cholesky factorisation of size M per class.
    """
    noise = rng.standard_normal(zeta.shape)
    mean, deviation, q = regressors_given_utilities(y, zeta, composite, gram, noise)
    return np.sqrt(rng.standard_gamma(y.size / 2) / (q / 2)) * mean + deviation


def regressors_given_utilities(
    y: np.ndarray, zeta: np.ndarray, composite: np.ndarray, gram: np.ndarray, noise: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Means V_c K'y_c (C, M), deviations V_c^(1/2) noise_c (C, M), and q of `draw_regressors`.

    Right to four digits or more for kernels with entries of up to 1e10.
    """
    mean, deviation = np.empty((2, *zeta.shape))
    for c, (factor, half) in enumerate(_factors(y, zeta, composite, gram)):
        mean[c], deviation[c] = solve_upper(factor, np.array([half, noise[c]]).T).T
    # A sum of squares: y'y - y'K m loses all its digits when the scores are large.
    residual = y - composite @ mean.T
    return mean, deviation, float(np.vdot(residual, residual) + np.sum(mean**2 / zeta))


def log_evidence(y: np.ndarray, zeta: np.ndarray, composite: np.ndarray, gram: np.ndarray) -> float:
    """Log of prod_c N(y_c; 0, I + K Z_c K') / N(y_c; 0, I), regressors integrated out.

    W must be redrawn right after a move by it, because the move ignores its value.
    """
    total = -0.5 * float(np.log(zeta).sum())
    for factor, half in _factors(y, zeta, composite, gram):
        total += 0.5 * half @ half - np.log(factor.diagonal()).sum()
    return float(total)


def _factors(
    y: np.ndarray, zeta: np.ndarray, composite: np.ndarray, gram: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each class the lower Cholesky factor L of V_c^-1 (M, M), and L^-1 K'y_c.

    L is valid until the next class. Cost: one Cholesky factorisation of size M per class.
    """
    projected = y.T @ composite
    buffer = np.empty_like(gram)
    for c, precisions in enumerate(1.0 / zeta):
        factor = precision_factor_or_none(gram, precisions, buffer)
        if factor is None:
            yield orthogonal_factor(composite, 1.0, y[:, c], precisions)
        else:
            yield factor, solve_lower(factor, projected[c])


def draw_variances(
    W: np.ndarray, tau: float, upsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw zeta | W: 1/zeta ~ Gamma(tau + 1/2, rate upsilon + W^2/2) (appendix A); O(C M)."""
    return (upsilon + 0.5 * W**2) / rng.standard_gamma(tau + 0.5, size=W.shape)


def move_scale(
    W: np.ndarray,
    f: np.ndarray,
    labels: np.ndarray,
    tau: float,
    upsilon: float,
    prior: LearnedScale,
    rng: np.random.Generator,
) -> tuple[np.ndarray, float]:
    """Move W (C, M) and a learned upsilon, with utilities and variances integrated out.

    First both, with W in proportion to the root of upsilon, which the likelihood of the scores `f`
    (N, C) decides; then upsilon alone, which the density of W decides (interweaving: Yu & Meng
    2011, J. Comput. Graph. Statist. 20). About ten evaluations, each O(C (N + M)).
    """

    def moved(rate: float, log_likelihood: Callable[[float], float]) -> float:
        precision = np.array([1 / rate])
        return move_rate(rate, precision, lambda p: log_likelihood(1 / p[0]), prior, rng)[0]

    def of_scores(rate: float) -> float:
        scores = np.sqrt(rate / upsilon) * f
        return float(log_probability_and_gradient(scores, labels)[0].sum())

    def of_regressors(rate: float) -> float:
        # Student's t with 2 tau degrees of freedom and the squared scale rate / tau.
        tails = np.log1p(0.5 * W**2 / rate).sum()
        return float(-0.5 * W.size * np.log(rate) - (tau + 0.5) * tails)

    together = moved(upsilon, of_scores)
    W = np.sqrt(together / upsilon) * W
    return W, moved(together, of_regressors)


def draw_shift(W: np.ndarray, zeta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a vector v to the regressors of all classes, drawn from its conditional; O(C M).

    The likelihood depends on differences between classes only, so v follows its prior given them:
    v_m ~ N(-sum_c W_cm/zeta_cm / p_m, 1/p_m) with p_m = sum_c 1/zeta_cm. Utilities that were drawn
    before belong to the former W.
    """
    precision = (1.0 / zeta).sum(axis=0)
    centre = -(W / zeta).sum(axis=0) / precision
    return W + centre + rng.standard_normal(len(centre)) / np.sqrt(precision)


def sample_cone(f: np.ndarray, t: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw y_n ~ N(f_n, I) given argmax_c y_nc = t_n, independently for every object; (N, C).

    O(N C). An object whose first plain draw missed its cone takes 1.3 to 2.1 proposals for C = 3 to
    27. ValueError if a mean is not finite or above 1e8 in size, where double precision fails.
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
    # Without cancellation in either tail; erfcx overflows to a correct 0.
    slope = (np.sqrt(2.0 / np.pi) / erfcx(-x / np.sqrt(2.0))).sum(axis=1)
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
