r"""Features of many objects whose products are the covariance of their scores.

The scores :math:`f_c = \sqrt s\, \Phi w_c` of C functions have independent weights
:math:`w_c \sim \mathcal N(0, I)` a priori, so that their covariance is :math:`s \Phi\Phi'`. With
the kernels of N objects and M landmarks, :math:`\Phi\Phi' = K_{nm} K_{mm}^{-1} K_{mn}`, the
covariance of the projected process (Quinonero-Candela & Rasmussen 2005, section 5); it is the
kernel itself if all objects are landmarks. The features are in the basis of the eigenvectors of
:math:`\Phi'\Phi`: normal targets have closed forms there, for every scale and noise, and the
curvature of other likelihoods is nearly diagonal.

============== ================================================== ======================
symbol         meaning                                            code
============== ================================================== ======================
Phi            features of objects                                ``values`` (N, m)
lambda         eigenvalues of Phi'Phi                             ``squares`` (m,)
W              weights of features                                ``W`` (m, C)
s              variance of the functions                          ``scale``
D              curvature of the log likelihood, as `Sites`        ``sites``
A              precision of W, I + s Phi' D Phi                   `Precision`
============== ================================================== ======================
"""

from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from .gaussian_process import Array, cholesky, solve_triangular
from .gaussian_scores import Sites

#: Least eigenvalue of Phi'Phi that is kept, relative to the largest one: the data say nothing of
#: the features below it, whose weights keep their prior.
LEAST_SQUARE = 1e-13
#: Numbers in the features from which their weighted squares, O(N m^2), are in single precision: it
#: saves 40 % of a fit, with the same log evidence to four decimals.
SINGLE_PRECISION_NUMBERS = 500_000


class Features:
    """Features of objects in the eigenbasis of Phi'Phi.

    Parameters
    ----------
    values : array (N, m)
    map : array (M, m)
        k(x, landmarks) @ map are the features of an object x.
    rotation : array (M, m)
        Orthonormal columns V: the features are K_nm L^-T V, with LL' = K_mm.
    squares : array (m,)
        Eigenvalues of Phi'Phi, ascending.
    """

    def __init__(self, values: Array, map: Array, rotation: Array, squares: Array):
        self.values = values
        self.n_objects = len(values)
        self.map = map
        self.rotation = rotation
        self.squares = squares

    @cached_property
    def factor(self) -> NDArray[np.floating]:
        """The features as factors of weighted squares, see `SINGLE_PRECISION_NUMBERS`."""
        return (
            self.values.astype(np.float32)
            if self.values.size >= SINGLE_PRECISION_NUMBERS
            else self.values
        )

    def weighted_square(self, weights: Array) -> Array:
        """Phi' diag(weights) Phi (m, m), for weights (N,) that are not negative.

        O(N m^2), with N the number of weights that are not zero.
        """
        rows = np.flatnonzero(weights)
        # To take most of the rows would be slower than to use all.
        chosen = rows if 2 * len(rows) < len(weights) else slice(None)
        roots = np.sqrt(weights[chosen]).astype(self.factor.dtype)
        half = self.factor[chosen] * roots[:, None]
        return (half.T @ half).astype(float)

    def curvature(self, sites: Sites, W: Array, *, exact: bool = False) -> Array:
        """Phi' D Phi W (m, C), of many numbers in single precision unless exact. O(N m C)."""
        values: Any = self.values if exact else self.factor
        of_values = Sites(sites.d.astype(values.dtype, copy=False))
        curved = of_values.apply(values @ W.astype(values.dtype, copy=False))
        return (values.T @ curved).astype(float, copy=False)

    def times(self, W: Array) -> Array:
        """Phi W (N, C)."""
        return self.values @ W

    def transposed_times(self, b: Array) -> Array:
        """Phi' b (m, C)."""
        return self.values.T @ b

    def of_rows(self, rows: NDArray[np.intp]) -> "Features":
        """Features of some objects; in their eigenbasis, if they are as the others."""
        values = self.values[rows]
        return Features(values, self.map, self.rotation, np.square(values).sum(axis=0))

    @classmethod
    def of_landmarks(cls, K_nm: Array, K_mm: Array, least: float = LEAST_SQUARE) -> Self:
        """Features K_nm L^-T V of kernels (N, M) and (M, M). O(N M^2).

        Raises NotPositiveDefiniteError for a K_mm without a Cholesky factor.
        """
        factor = cholesky(K_mm)
        # From K_nm'K_nm instead, small eigenvalues would be lost.
        half = solve_triangular(factor, K_nm.T)
        squares, rotation = kept_eigenvectors(half @ half.T, least)
        mapped = solve_triangular(factor, rotation, transposed=True)
        return cls(half.T @ rotation, mapped, rotation, squares)

    @classmethod
    def of_gram(cls, K: Array, least: float = LEAST_SQUARE) -> Self:
        """Features of all objects of a Gram matrix (N, N), each of them a landmark. O(N^3).

        The rotation is relative to the symmetric square root of K.
        """
        squares, rotation = kept_eigenvectors(K, least)
        roots = np.sqrt(squares)
        return cls(rotation * roots, rotation / roots, rotation, squares)

    def gradient(self, pulled: Array) -> tuple[Array, Array]:
        """Gradients with respect to K_nm (N, M) and K_mm (M, M) by that of the covariance.

        `pulled` (N, m) is G Phi, if G (N, N) is the gradient with respect to Phi Phi' scaled, and
        the kernels are scaled alike. O(N m M).
        """
        of_landmarks = self.map @ (self.values.T @ pulled) @ self.map.T
        return 2.0 * pulled @ self.map.T, -(of_landmarks + of_landmarks.T) / 2

    def whitened(self, W: Array, normal: Array) -> Array:
        """Scores v (S, M, C) with f = sqrt(s) K_nm L^-T v, of weights (S, m, C).

        The directions that are not among the features have the standard `normal` scores (S, M, C).
        """
        return normal + self.rotation @ (W - self.rotation.T @ normal)


def kept_eigenvectors(matrix: Array, least: float = LEAST_SQUARE) -> tuple[Array, Array]:
    """Eigenvalues of a matrix that are not negligible, and their eigenvectors."""
    values, vectors = eigh(matrix, driver="evd", check_finite=False)
    keep = values > least * values[-1]
    return values[keep], vectors[:, keep]
