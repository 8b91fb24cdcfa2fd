"""The normal factor of regression weights under a scale mixture: its precision, and its bound."""

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...numerics.normal_regression import precision_factor_or_none

__all__ = ["precision_factor", "printed_bound", "regressors_bound"]

type Array = npt.NDArray[np.float64]

# Least square of a pivot relative to its own diagonal entry: less is rounding. The Gibbs samplers
# ask for more, as they have another way of factoring.
LEAST_PIVOT = 1e3 * np.finfo(float).eps


def precision_factor(gram: Array, precision: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of gram + diag(precision), and its diagonal.

    As of the Gibbs samplers, whose function this is; only the upper triangle of `gram` is read, and
    the factor is in Fortran order. Raises LinAlgError when rounding leaves nothing of a pivot.
    """
    factor = precision_factor_or_none(gram, precision, least_pivot=LEAST_PIVOT)
    if factor is None:
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example kernels.normalize('trace'), or features to unit variance); they differ from "
            "the prior's scale by too many digits."
        )
    return factor, np.diag(factor)


def regressors_bound(shape: float, rate: float, log_det: float, posterior_rate: Array) -> float:
    """E[log p(w | precision) + log p(precision)] + entropies of both.

    For w ~ N(0, 1 / precision), precision ~ Gamma(shape, rate), and the factor of the precisions
    Gamma(shape + 1/2, posterior_rate) fresh after w's, of log determinant `log_det`.
    """
    posterior_shape = shape + 0.5
    constant = 0.5 + shape * np.log(rate) - gammaln(shape) + gammaln(posterior_shape)
    terms = posterior_rate.size * constant - posterior_shape * np.log(posterior_rate).sum()
    return float(0.5 * log_det + terms)


def printed_bound(
    log_z: float, log_det: float, precision: Array, W_mean: Array, W_var: Array, spread: float
) -> float:
    """E.5-E.7 of the probit for the fixed Z = 1/precision; spread = sum_nc k_n'V_c k_n.

    Source: damoulas2009, appendix E, where they are the sum of E.1-E.4.
    """
    return float(
        0.5 * (W_mean.size + log_det)
        + log_z
        - 0.5 * np.sum(precision * (W_var + W_mean**2))
        + 0.5 * np.log(precision).sum()
        - 0.5 * spread
    )
