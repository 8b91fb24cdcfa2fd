"""The normal factor of regression weights under a scale mixture: its precision, and its bound."""

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack
from scipy.special import gammaln

__all__ = ["precision_factor", "regressors_bound"]

type Array = npt.NDArray[np.float64]

# Smallest square of a Cholesky pivot, in units of the largest diagonal entry.
SINGULAR = 1e3 * np.finfo(float).eps


def precision_factor(gram: Array, precision: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of gram + diag(precision), and its diagonal.

    Only the upper triangle of `gram` is read. The factor is in Fortran order; its upper part is
    undefined. Raises LinAlgError when rounding leaves nothing of the smallest pivot: its error is
    some eps times the largest entry.
    """
    # gram is symmetric: its transpose is it, in the order that LAPACK wants.
    matrix = gram.T.copy(order="F")
    diagonal = matrix.ravel(order="K")[:: len(gram) + 1]
    diagonal += precision
    largest = diagonal.max()
    factor, info = lapack.dpotrf(matrix, lower=True, clean=False, overwrite_a=True)
    pivots = np.diag(factor)
    if info or pivots.min() ** 2 < SINGULAR * largest:
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example kernels.normalize('trace'), or features to unit variance); they differ from "
            "the prior's scale by too many digits."
        )
    return factor, pivots


def regressors_bound(shape: float, rate: float, log_det: float, posterior_rate: Array) -> float:
    """E[log p(w | precision) + log p(precision)] + entropies of both.

    For w ~ N(0, 1 / precision), precision ~ Gamma(shape, rate), and the factor of the precisions
    Gamma(shape + 1/2, posterior_rate) fresh after w's, of log determinant `log_det`.
    """
    posterior_shape = shape + 0.5
    constant = 0.5 + shape * np.log(rate) - gammaln(shape) + gammaln(posterior_shape)
    terms = posterior_rate.size * constant - posterior_shape * np.log(posterior_rate).sum()
    return float(0.5 * log_det + terms)
