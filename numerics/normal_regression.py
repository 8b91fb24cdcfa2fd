r"""Normal regression on a composite kernel: conditional of the weights, and evidence.

Regression, Polya-Gamma augmentation and Jaakkola's bound of the logit, and the probit's latent
utilities give the same form of likelihood of the scores f = K_beta alpha,

.. math:: \log p = \sum_n l_n f_n - w_n f_n^2 / 2 + \mathrm{const},

with precisions w and linear terms l (damoulas2009, appendix A; girolami2005, sections 3 and 4.4).
Under alpha_m ~ N(0, 1/phi_m) the posterior is normal with precision
P = K_beta' W K_beta + diag(phi) and mean P^-1 K_beta' l, and the evidence is
log p(l, w | beta, phi) = l'K_beta P^-1 K_beta'l / 2 - log det P / 2 + sum_m log phi_m / 2.

Responses that share w and phi share the factorisation of P: linear terms may have a second axis,
one column a response, and the evidence is then the sum over the responses.
"""

from dataclasses import dataclass
from typing import Protocol, override

import numpy as np
from scipy.linalg import lapack

# Smallest squared pivot of a Cholesky factorisation, relative to its diagonal entry (invariant to
# scaling of the variables), with which covariances keep four digits.
LEAST_PIVOT = 1e6 * np.finfo(float).eps


class Conditional(Protocol):
    """Normal conditional distribution of the regression weights given everything else."""

    def log_evidence(self) -> float:
        """Log likelihood with alpha integrated out, up to terms in (l, w) alone."""

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draw alpha, shape (M,), or (M, P) for linear terms of P responses."""


@dataclass(frozen=True)
class Primal(Conditional):
    """Conditional by a factorisation of size M: L (M, M) of the precision, L^-1 K_beta' l, phi."""

    factor: np.ndarray
    half: np.ndarray
    phi: np.ndarray

    @override
    def log_evidence(self) -> float:
        log_root = np.log(self.factor.diagonal()).sum()
        responses = self.half.size // len(self.half)
        squares = np.vdot(self.half, self.half)
        log_phi = np.log(self.phi).sum()
        return float(0.5 * (responses * log_phi + squares) - responses * log_root)

    @override
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return solve_upper(self.factor, self.half + _standard_normal(self.half.shape, rng))


@dataclass(frozen=True)
class Dual(Conditional):
    """Conditional by a factorisation of size N, for more basis functions than objects.

    `factor` (N, N) is the lower Cholesky factor of I + R diag(1/phi) R' with `scaled` R = W^(1/2)
    K_beta (N, M); `response` is W^(-1/2) l. Draws use algorithm 1 of Bhattacharya, Chakraborty &
    Mallick (2016), Fast sampling with Gaussian scale mixture priors in high-dimensional regression.
    """

    factor: np.ndarray
    scaled: np.ndarray
    response: np.ndarray
    phi: np.ndarray

    @override
    def log_evidence(self) -> float:
        half = solve_lower(self.factor, self.response)
        log_root = np.log(self.factor.diagonal()).sum()
        responses = self.response.size // len(self.response)
        squares = np.vdot(self.response, self.response) - np.vdot(half, half)
        return float(0.5 * squares - responses * log_root)

    @override
    def draw(self, rng: np.random.Generator) -> np.ndarray:
        n, m = self.scaled.shape
        responses = self.response.shape[1:]
        # Transposed, so that the last axis is that of the precisions.
        prior = (_standard_normal((m, *responses), rng).T / np.sqrt(self.phi)).T
        misfit = self.response - self.scaled @ prior - _standard_normal((n, *responses), rng)
        solved = solve_upper(self.factor, solve_lower(self.factor, misfit))
        return prior + ((solved.T @ self.scaled) / self.phi).T


def _standard_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draws of shape (n,) or (n, P), one response after the other."""
    return rng.standard_normal(shape[::-1]).T


def precision_factor_or_none(
    gram_weighted: np.ndarray,
    phi: np.ndarray,
    out: np.ndarray | None = None,
    least_pivot: float = LEAST_PIVOT,
) -> np.ndarray | None:
    """Lower Cholesky factor (M, M) of K'WK + diag(phi), phi (M,), or None. O(M^3).

    The factor is in Fortran order, zero above its diagonal. Only the upper triangle of
    `gram_weighted` is read; `out` is C-contiguous memory for the factor. None if a squared pivot
    relative to its diagonal entry is below `least_pivot`: the rounding error of K'WK exceeds phi
    (kernels with large entries and low rank). Use `orthogonal_factor` then.
    """
    if out is None:
        out = np.empty_like(gram_weighted, order="C")
    np.copyto(out, gram_weighted)
    diagonal = out.reshape(-1)[:: len(phi) + 1]
    diagonal += phi
    least = least_pivot * diagonal
    potrf = lapack.get_lapack_funcs("potrf", (out,))
    factor, failed = potrf(out.T, lower=1, overwrite_a=1, clean=1)
    return None if failed or (np.square(diagonal) < least).any() else factor


def orthogonal_factor(
    composite: np.ndarray, w: np.ndarray | float, linear: np.ndarray, phi: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lower Cholesky factor L of P (M, M), and L^-1 K'l, without forming K'WK. O((N + M) M^2).

    By orthogonal transformations: several times slower than `precision_factor_or_none`, but
    accurate for kernels of any magnitude.
    """
    n, m = composite.shape
    root = np.sqrt(np.maximum(np.broadcast_to(w, n), np.finfo(float).tiny))
    responses = linear.reshape(n, -1)
    stacked = np.zeros((n + m, m + responses.shape[1]))
    stacked[:n, :m] = root[:, None] * composite
    stacked[:n, m:] = responses / root[:, None]
    np.fill_diagonal(stacked[n:], np.sqrt(phi))
    # The same transformations turn the last columns into half.
    triangle = np.linalg.qr(stacked, mode="r")
    signs = np.where(triangle.diagonal()[:m] < 0, -1.0, 1.0)
    half = (signs[:, None] * triangle[:m, m:]).reshape(m, *linear.shape[1:])
    return np.asfortranarray((signs[:, None] * triangle[:m, :m]).T), half


def primal(
    composite: np.ndarray,
    w: np.ndarray | float,
    linear: np.ndarray,
    phi: np.ndarray,
    gram_weighted: np.ndarray | None = None,
) -> Primal:
    """Conditional of alpha given everything else, from its precision. O(N M^2 + M^3).

    `gram_weighted` is K'WK (M, M), if already computed; not modified. Linear terms: (N,) or (N, P).
    """
    if gram_weighted is None:
        scaled = _scaled_rows(composite, w)
        # NumPy computes only one triangle of the product of an array with its own transpose.
        gram_weighted = scaled.T @ scaled
    factor = precision_factor_or_none(gram_weighted, phi)
    if factor is None:
        factor, half = orthogonal_factor(composite, w, linear, phi)
    else:
        half = solve_lower(factor, (linear.T @ composite).T)
    return Primal(factor, half, phi)


def dual(
    composite: np.ndarray, w: np.ndarray | float, linear: np.ndarray, phi: np.ndarray
) -> Conditional:
    """Conditional of alpha given everything else, from the scores' covariance; O(N^2 M + N^3).

    Falls back on `primal`, the same distribution, if rounding errors exceed the noise variance.
    """
    scaled = _scaled_rows(composite, w)
    spread = scaled / np.sqrt(phi)
    factor = precision_factor_or_none(spread @ spread.T, np.ones(len(spread)))
    if factor is None:
        return primal(composite, w, linear, phi)
    return Dual(factor, scaled, (linear.T / np.sqrt(w)).T, phi)


def regression_weights(
    composite: np.ndarray, w: np.ndarray | float, linear: np.ndarray, phi: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (M,) of alpha given everything else, and Cholesky factor (M, M) of its precision.

    w is gamma, Polya-Gamma's omega, or 2 lambda(xi) of Jaakkola's bound; l is gamma t in
    regression, t - 1/2 in classification. O(N M^2 + M^3), accurate to at least four digits for
    kernels with entries up to 1e10.
    """
    law = primal(composite, w, linear, phi)
    return solve_upper(law.factor, law.half), law.factor


def solve_lower(factor: np.ndarray, b: np.ndarray) -> np.ndarray:
    """L^-1 b for a lower triangular L."""
    return lapack.dtrtrs(factor, b, lower=1)[0]


def solve_upper(factor: np.ndarray, b: np.ndarray) -> np.ndarray:
    """L'^-1 b for a lower triangular L."""
    return lapack.dtrtrs(factor, b, lower=1, trans=1)[0]


def _scaled_rows(composite: np.ndarray, w: np.ndarray | float) -> np.ndarray:
    """W^(1/2) K."""
    return np.reshape(np.sqrt(w), (-1, 1)) * composite
