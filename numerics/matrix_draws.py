"""NumPy draws of Wishart and inverse Wishart matrices, as factors, with their log densities.

For Gibbs steps, exact samplers and draws from variational fits. Every draw is X = F F', with F a
known factor times a triangular one (Bartlett's decomposition), so that no matrix is inverted and
the log density costs O(n^2) more. Degrees of freedom are real.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas
from scipy.special import multigammaln

__all__ = ["Bartlett", "log_det_of_factor", "solve_right", "stacked"]

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
    """Lower triangular A (n, n) with AA' ~ Wishart(df, I), for draws of any scale matrix.

    Attributes
    ----------
    a : array (n, n)
    df : float
        Degrees of freedom, a real number above n - 1.
    """

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
