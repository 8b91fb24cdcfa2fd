"""Precision and bound of the normal factor of regression weights under a scale mixture."""

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...numerics.normal_regression import precision_factor_or_none

__all__ = ["precision_factor", "regressors_bound"]

type Array = npt.NDArray[np.float64]

# Least square of a pivot relative to its diagonal entry: smaller values are rounding errors. The
# Gibbs samplers use a larger bound, because they can factorise in another way.
LEAST_PIVOT = 1e3 * np.finfo(float).eps


def precision_factor(gram: Array, precision: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of gram + diag(precision), and its diagonal.

    The function is shared with the Gibbs samplers. Only the upper triangle of `gram` is read, and
    the factor is in Fortran order. Raises LinAlgError when a pivot is lost in rounding.
    """
    factor = precision_factor_or_none(gram, precision, least_pivot=LEAST_PIVOT)
    if factor is None:
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example kernels.normalize('trace'), or features to unit variance); they differ from "
            "the prior's scale by too many digits."
        )
    return factor, np.diag(factor)


def regressors_bound(
    shape: float, rate: float, log_det: float, posterior_rate: Array, sharing: int = 1
) -> float:
    """E[log p(w | precision) + log p(precision)] plus the entropies of both factors.

    For w ~ N(0, 1 / precision), precision ~ Gamma(shape, rate), when the precisions' factor
    Gamma(shape + 1/2, posterior_rate) was updated after that of w, with log determinant `log_det`.
    If each precision is that of several w (`sharing`), the factor's shape is shape + sharing / 2.
    """
    posterior_shape = shape + 0.5 * sharing
    constant = 0.5 * sharing + shape * np.log(rate) - gammaln(shape) + gammaln(posterior_shape)
    terms = posterior_rate.size * constant - posterior_shape * np.log(posterior_rate).sum()
    return float(0.5 * log_det + terms)
