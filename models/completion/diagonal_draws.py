"""Draws and moments of `DiagonalWishartCompletion` given delta, shared by steps and engines."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import multigammaln

from ...numerics.wishart import Bartlett
from ..diagonal_wishart_completion import DiagonalWishartCompletion

type Array = npt.NDArray[np.float64]


class Missing(NamedTuple):
    """Missing blocks of W: W21 (n2, n1) and W22.1, whole (n2, n2) or its diagonal (n2,)."""

    W21: Array
    W22_1: Array

    def diagonal_of_W22(self, w: Array) -> Array:
        """Diagonal of W22 = W22.1 + W21 W11^-1 W12 (n2,), for W11 = diag(w)."""
        own = self.W22_1 if self.W22_1.ndim == 1 else np.diagonal(self.W22_1)
        return own + np.square(self.W21) @ (1 / w)


def draw_W21(delta: Array, w: Array, rng: np.random.Generator) -> Array:
    """W21 (n2, n1), eq (12), whose rows are the b_j of eq (14). O(n1 n2)."""
    W21 = rng.standard_normal((len(delta), len(w)))
    W21 *= np.sqrt(w)
    W21 *= np.sqrt(delta)[:, None]
    return W21


def draw_diagonal(delta: Array, df: float, rng: np.random.Generator) -> Array:
    """Diagonal of W22.1 (n2,), eq (15), or W22.1 itself when it is declared diagonal."""
    return 2 * delta * rng.standard_gamma(df / 2, len(delta))


def draw_missing(
    delta: Array, w: Array, r: float, rng: np.random.Generator, *, diagonal: bool
) -> Missing:
    """Draw W21, eq (12), and W22.1, eq (13), or its diagonal, eq (15), given delta of test objects.

    `w` (n1,) is the diagonal of W11. O(n1 n2), and O(n2^3) for the whole of W22.1.
    """
    W21 = draw_W21(delta, w, rng)
    df = r - len(w)
    if diagonal:
        return Missing(W21, draw_diagonal(delta, df, rng))
    factor = np.sqrt(delta)[:, None] * Bartlett.draw(df, len(delta), rng).a
    return Missing(W21, factor @ factor.T)


def log_constant_of_W11(w: Array, r: float) -> float:
    """Log density of W11 = diag(w) given delta, less sum(-r/2 log delta_j - w_j/(2 delta_j))."""
    n1 = len(w)
    powers = 0.5 * (r - n1 - 1) * np.log(w).sum()
    return float(powers - 0.5 * r * n1 * np.log(2) - multigammaln(r / 2, n1))


def moments_of_K(
    model: DiagonalWishartCompletion, mean_lambda: float, mean_square: float
) -> dict[str, tuple[Array, Array | None]]:
    r"""Means and standard deviations of K21 and K22 from the first two moments of lambda.

    .. math::

        E K_{21} = A_{21} A_{11}^{-1} K_{11}, \qquad
        E K_{22} = A_{21} A_{11}^{-1} K_{11} A_{11}^{-1} A_{12}
            + r \frac{E\lambda}{\eta - 1} A_{22\cdot1}

    The entries of W21 have mean zero and are uncorrelated, so that Var K21 is the outer product of
    the diagonals of A22.1 and K11 times E lambda/(eta - 1). Only moments that exist are returned:
    the mean of K21 needs eta > 1/2, its standard deviation and the mean of K22 need eta > 1, the
    standard deviation of K22 needs eta > 2. O(n^3).
    """
    eta = model.eta
    r = model.r
    K11 = model.K11_values
    if eta <= 0.5:
        return {}
    K21 = model.coefficients @ K11
    if eta <= 1:
        return {"K21": (K21, None)}
    mean_delta = mean_lambda / (eta - 1)
    A22_1 = model.C2.T @ model.C2
    own = np.diagonal(A22_1)
    K21_sd = np.sqrt(mean_delta * np.outer(own, np.diagonal(K11)))
    explained = K21 @ model.coefficients.T
    K22 = explained + r * mean_delta * A22_1
    if eta <= 2:
        return {"K21": (K21, K21_sd), "K22": (K22, None)}
    # K22 is the sum of a constant, of C2' W22 C2, where the off-diagonal entries of W22 are
    # uncorrelated, and of twice the symmetric part of A21 A11^-1 C1' W12 C2. The last two terms are
    # uncorrelated.
    shared = np.square(model.C2).T @ np.square(model.C2)
    # E delta_j delta_k and E delta_j^2 of test objects j, k.
    product = mean_square / (eta - 1) ** 2
    square = mean_square / ((eta - 1) * (eta - 2))
    # If W22.1 is declared diagonal, off-diagonal entries have only the n1 terms of W21, not r.
    terms = model.n_train if model.diagonal_W22_1 else r
    off_diagonal = terms * product * (np.outer(own, own) + A22_1**2 - 2 * shared)
    diagonal = (r * (r + 2) * square - (r * mean_delta) ** 2) * shared
    between = r**2 * (product - mean_delta**2) * (A22_1**2 - shared)
    crossed = np.outer(np.diagonal(explained), own)
    regression = mean_delta * (crossed + crossed.T + 2 * explained * A22_1)
    K22_sd = np.sqrt(off_diagonal + diagonal + between + regression)
    return {"K21": (K21, K21_sd), "K22": (K22, K22_sd)}
