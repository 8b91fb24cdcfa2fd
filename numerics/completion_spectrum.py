r"""Closed forms of Wishart completion in the coordinates where Theta11 and K11 are diagonal.

The generalized eigendecomposition K11 = V diag(kappa) V', Theta11 = V V' makes the model's
regressions independent. V' is the basis C1 of Zhang, Yeung & Kwok (2004), eqs (16) and (18), on
the training block.

| matrix | coordinates | law |
|---|---|---|
| B | b = B V | b \| S ~ MN(m, S, I), m = Theta21 Theta11^-1 V |
| K21 | k = K21 V^-T | k \| b, S ~ MN(b diag(kappa), S, diag(kappa)) |
| K21 K11^-1 K12 | k diag(1/kappa) k' | |

with S = Sigma22.1. Exact moments, EM and VB are functions of kappa and m.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from .matrix_draws import log_det_of_factor

__all__ = ["Spectrum"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spectrum:
    """Simultaneous diagonalization of Theta11 and K11, computed lazily.

    Attributes
    ----------
    K11 : array (n1, n1)
    theta11_factor, K11_factor : array (n1, n1)
        Lower Cholesky factors.
    theta22_1_factor : array (n2, n2)
        Lower Cholesky factor of Theta22.1.
    coefficients : array (n2, n1)
        Theta21 Theta11^-1.
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
        return cls(
            K11,
            np.ascontiguousarray(L11),
            np.ascontiguousarray(cholesky(K11, lower=True)),
            np.ascontiguousarray(cholesky(theta22_1, lower=True)),
            np.ascontiguousarray(coefficients),
        )

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
        and of a Wishart(r - n1, S) matrix.

        Parameters
        ----------
        r : float
            Degrees of freedom of K.
        spread : array (n1,)
            Variance of the u_j in units of S: 1 + kappa if B is integrated out, 1 if B is known.
        S_mean, S_square : array (n2, n2)
            E[S_ab] and E[S_ab^2 + S_aa S_bb].
        """
        centre = (self.m * (self.kappa * spread)) @ self.m.T
        cross = np.outer(np.diagonal(centre), np.diagonal(S_mean))
        quartic = r - len(spread) + np.sum(spread**2)
        return quartic * S_square + cross + cross.T + 2 * centre * S_mean
