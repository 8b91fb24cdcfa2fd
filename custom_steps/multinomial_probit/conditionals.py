"""Conditionals of the multinomial probit given latent utilities (Albert & Chib 1993).

Each object gets a latent vector y_n ~ N(f_n, I_C) whose largest entry names its class
(damoulas2009, eq 3). Given Y everything but the weights is conjugate (appendix A). For the marginal
likelihood of a selection of kernels, with the regressors integrated out, the paper prints Z_c^-1 in
Omega_c = I + K Z_c K', and Omega itself, not its inverse, in the exponent.

=========== ============================================ =================
paper       meaning                                      code
=========== ============================================ =================
y_n         latent utilities, drawn afresh every sweep   ``y`` (N, C)
K^beta      composite kernel                             ``composite`` (N, M)
W, Z        regressors and their variances               ``W``, ``zeta`` (C, M)
V_c^-1      K'K + Z_c^-1                                 ``precision``
=========== ============================================ =================
"""

from collections.abc import Iterator

import numpy as np

from ...numerics.normal_regression import (
    orthogonal_factor,
    precision_factor_or_none,
    solve_lower,
    solve_upper,
)


def draw_regressors(
    y: np.ndarray,
    zeta: np.ndarray,
    composite: np.ndarray,
    gram: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Draw W (C, M) given the utilities Y (N, C), after a move that rescales Y (appendix A).

    A multiple g Y with g > 0 has the same largest entries, and so the same classes. With W
    integrated out, g^2 ~ Gamma(NC / 2, rate q / 2), where q = sum_c y_c'(I + K Z_c K')^-1 y_c. The
    factorisations give q at no further cost. Then w_c | g Y ~ N(g V_c K'y_c, V_c). This is the
    parameter expansion of Liu & Wu (1999), Parameter expansion for data augmentation. `gram` is
    K'K. Cost: one Cholesky factorisation of size M per class.
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
    projected, buffer = y.T @ composite, np.empty_like(gram)
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


def draw_shift(W: np.ndarray, zeta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add a vector v to the regressors of all classes, drawn from its conditional distribution.

    The likelihood P(t | W, beta) depends on differences between classes only. Given the
    differences, v follows its prior: v_m ~ N(-sum_c W_cm/zeta_cm / p_m, 1/p_m) with p_m = sum_c
    1/zeta_cm. Utilities Y that were drawn before belong to the former W. O(C M).
    """
    precision = (1.0 / zeta).sum(axis=0)
    centre = -(W / zeta).sum(axis=0) / precision
    return W + centre + rng.standard_normal(len(centre)) / np.sqrt(precision)
