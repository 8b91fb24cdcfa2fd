"""Multivariate normal distribution with a density that compiles in less time than PyMC's."""

from typing import override

import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable
from pytensor.tensor.random.basic import MvNormalRV

from ..operations.arrays import cholesky_or_nan, impossible_if_nan, log_det, solve_lower

__all__ = ["MultivariateNormal"]


class _MultivariateNormalRV(MvNormalRV):
    """NumPy's random variable under a new type, which dispatches to another density."""


class MultivariateNormal(pm.MvNormal):
    """Multivariate normal distribution.

    Parameters
    ----------
    mu : tensor_like of float (..., N)
        Mean.
    cov : tensor_like of float (..., N, N)
        Covariance; alternatively ``chol`` or ``tau``, as in ``pm.MvNormal``.

    Notes
    -----
    The density is -inf if the covariance is not positive definite. O(N^3).
    """

    rv_op = _MultivariateNormalRV(method="cholesky")

    @override
    def logp(value: TensorVariable, mu: TensorVariable, cov: TensorVariable) -> TensorVariable:
        factor = cholesky_or_nan(cov)
        whitened = solve_lower(factor, (value - mu)[..., None])
        length = cov.shape[-1] * np.log(2 * np.pi)
        log_density = -0.5 * ((whitened**2).sum((-2, -1)) + log_det(factor) + length)
        return impossible_if_nan(log_density)
