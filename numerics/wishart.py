"""Wishart matrices in NumPy: draws as factors, log densities, closed forms of their completion.

Every draw is X = F F', with F a known factor times a triangular one (Bartlett's decomposition), so
that no matrix is inverted and the log density costs O(n^2) more. Degrees of freedom are real.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, cholesky, solve_triangular
from scipy.special import multigammaln

type Array = npt.NDArray[np.float64]


def log_det_of_factor(factor: Array) -> float:
    """Log determinant of LL' given the triangular L (n, n)."""
    return float(2 * np.log(np.diagonal(factor)).sum())


def solve_right(b: Array, lower: Array) -> Array:
    """B L^-1 for B (m, n) and lower triangular L (n, n). O(m n^2)."""
    # BLAS reads C-ordered arrays as their transposes, so solving L^-T B' avoids a copy.
    return blas.dtrsm(1.0, lower.T, b.T, side=0, lower=0, trans_a=0).T


def stacked(rows: Iterable[Mapping[str, Array]], draws: int) -> dict[str, Array]:
    """Stack `draws` draws, made one at a time, into arrays (draw, ...) without a second copy."""
    out: dict[str, Array] = {}
    for i, row in enumerate(rows):
        for name, value in row.items():
            if i == 0:
                out[name] = np.empty((draws, *value.shape))
            out[name][i] = value
    return out


@dataclass(frozen=True)
class Bartlett:
    """Lower triangular A (n, n) with AA' ~ Wishart(df, I), for draws of any scale."""

    a: Array
    df: float

    @classmethod
    def draw(cls, df: float, n: int, rng: np.random.Generator) -> "Bartlett":
        """Draw A. O(n^2)."""
        a = np.tril(rng.standard_normal((n, n)), -1)
        a.flat[:: n + 1] = np.sqrt(rng.chisquare(df - np.arange(n)))
        return cls(a, df)

    def wishart_factor(self, root: Array) -> Array:
        """F with FF' ~ Wishart(df, RR') for any square root R (n, n). O(n^3)."""
        return root @ self.a

    def inverse_wishart_factor(self, root: Array) -> Array:
        """F with FF' ~ InverseWishart(df, RR') for any square root R (n, n). O(n^3)."""
        # F = R A^-T: F' solves A F' = R'.
        return blas.dtrsm(1.0, self.a.T, root, side=1, lower=0, trans_a=0)

    def wishart_log_density(self, scale_log_det: float) -> float:
        """Log density of the Wishart matrix, given log|RR'|."""
        n = len(self.a)
        log_det = scale_log_det + log_det_of_factor(self.a)
        return self._constant() + 0.5 * (
            (self.df - n - 1) * log_det - self.df * scale_log_det - np.sum(self.a**2)
        )

    def inverse_wishart_log_density(self, scale_log_det: float) -> float:
        """Log density of the inverse Wishart matrix, given log|RR'|."""
        n = len(self.a)
        log_det = scale_log_det - log_det_of_factor(self.a)
        return self._constant() + 0.5 * (
            self.df * scale_log_det - (self.df + n + 1) * log_det - np.sum(self.a**2)
        )

    def _constant(self) -> float:
        n = len(self.a)
        return float(-0.5 * self.df * n * np.log(2) - multigammaln(self.df / 2, n))


@dataclass(frozen=True)
class Spectrum:
    r"""Closed forms of Wishart completion, where Theta11 and K11 are diagonal; computed lazily.

    The generalized eigendecomposition K11 = V diag(kappa) V', Theta11 = V V' makes the model's
    regressions independent. V' is the basis C1 of Zhang, Yeung & Kwok (2004), eqs (16) and (18), on
    the training block. With S = Sigma22.1:

    | matrix | coordinates | law |
    |---|---|---|
    | B | b = B V | b \| S ~ MN(m, S, I), m = Theta21 Theta11^-1 V |
    | K21 | k = K21 V^-T | k \| b, S ~ MN(b diag(kappa), S, diag(kappa)) |
    | K21 K11^-1 K12 | k diag(1/kappa) k' | |

    Exact moments, EM and VB are functions of kappa and m. The factors are lower Cholesky factors,
    and `coefficients` (n2, n1) are Theta21 Theta11^-1.
    """

    K11: Array
    theta11_factor: Array
    K11_factor: Array
    theta22_1_factor: Array
    coefficients: Array

    @classmethod
    def of(cls, theta: Array, K11: Array) -> "Spectrum":
        """Factor theta (n, n), training objects first, and K11 (n1, n1). O(n^3)."""
        n1 = len(K11)
        L11 = cholesky(theta[:n1, :n1], lower=True)
        half = solve_triangular(L11, theta[:n1, n1:], lower=True)
        coefficients = solve_triangular(L11, half, lower=True, trans="T").T
        theta22_1 = theta[n1:, n1:] - half.T @ half
        factors = L11, cholesky(K11, lower=True), cholesky(theta22_1, lower=True)
        return cls(K11, *map(np.ascontiguousarray, (*factors, coefficients)))

    @cached_property
    def _eigen(self) -> tuple[Array, Array]:
        """Kappa (n1,) and the orthogonal U with L^-1 K11 L^-T = U diag(kappa) U'."""
        root = solve_triangular(self.theta11_factor, self.K11_factor, lower=True)
        # Squared singular values are positive and accurate even for small eigenvalues.
        U, s, _ = np.linalg.svd(root)
        return s**2, U

    @property
    def kappa(self) -> Array:
        """Eigenvalues of Theta11^-1 K11 (n1,)."""
        return self._eigen[0]

    @cached_property
    def V(self) -> Array:
        """Basis (n1, n1): Theta11 = VV', K11 = V diag(kappa) V'."""
        return self.theta11_factor @ self._eigen[1]

    @cached_property
    def V_inverse(self) -> Array:
        """Inverse of the basis (n1, n1), U'L^-1."""
        return solve_triangular(self.theta11_factor, self._eigen[1], lower=True, trans="T").T

    @cached_property
    def m(self) -> Array:
        """Prior mean of the regression in the new coordinates (n2, n1), Theta21 Theta11^-1 V."""
        return self.coefficients @ self.V

    @cached_property
    def theta22_1(self) -> Array:
        """Theta22.1 (n2, n2)."""
        return self.theta22_1_factor @ self.theta22_1_factor.T

    @property
    def theta22_1_log_det(self) -> float:
        """Log |Theta22.1|."""
        return log_det_of_factor(self.theta22_1_factor)

    @cached_property
    def K21_mean(self) -> Array:
        """Theta21 Theta11^-1 K11 (n2, n1): the mean of K21 given K11."""
        return self.coefficients @ self.K11

    @cached_property
    def K22_explained(self) -> Array:
        """Theta21 Theta11^-1 K11 Theta11^-1 Theta12 (n2, n2)."""
        return self.K21_mean @ self.coefficients.T

    def K22_variance(self, r: float, spread: Array, S_mean: Array, S_square: Array) -> Array:
        """Entrywise variance of K22 (n2, n2) about its mean given S, averaged over S.

        Given S, K22 is the sum over j = 1..n1 of u_j u_j', u_j ~ N(sqrt(kappa_j) m_j, spread_j S),
        and of a Wishart(r - n1, S) matrix. The spread (n1,) is 1 + kappa if B is integrated out, 1
        if B is known. S_mean and S_square are E[S_ab] and E[S_ab^2 + S_aa S_bb].
        """
        centre = (self.m * (self.kappa * spread)) @ self.m.T
        cross = np.outer(np.diagonal(centre), np.diagonal(S_mean))
        quartic = r - len(spread) + np.sum(spread**2)
        return quartic * S_square + cross + cross.T + 2 * centre * S_mean
