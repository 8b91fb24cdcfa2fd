"""Normal distributions of matrices and vectors, with densities that PyMC's lack or compile slowly.

``pm.MatrixNormal`` forms an (n, n) product and solves with it, O(n^3), for a density that needs
O(m^2 n + m n^2). It supports neither batches nor a factor of the columns' precision.
"""

from typing import Any, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.distribution import Continuous
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.random.basic import MvNormalRV

from ...validation import argument_error
from ..operations.arrays import (
    cholesky_or_nan,
    impossible_if_nan,
    log_det,
    matrix_product,
    solve_lower,
)
from .drawn import DrawnRV

__all__ = ["MatrixNormal", "MultivariateNormal", "RegressionMatrix"]

_LOG_2PI = np.log(2.0 * np.pi)


class MatrixNormalRV(DrawnRV):
    name = "matrix_normal"
    extended_signature = "[rng],[size],(m,n),(m,m),(n,n)->[rng],(m,n)"
    _print_name = ("MatrixNormal", "\\operatorname{MatrixNormal}")

    @classmethod
    @override
    def draws(
        cls, rng: Any, batch: tuple[Any, ...], mu: Any, row_factor: Any, column_factor: Any
    ) -> tuple[Any, Any]:
        shape = (*batch, *mu.shape[-2:])
        next_rng, noise = pt.random.normal(size=shape, rng=rng, return_next_rng=True)
        return next_rng, mu + row_factor @ cls.by_columns(noise, column_factor)

    @staticmethod
    def by_columns(noise: TensorVariable, column_factor: TensorVariable) -> TensorVariable:
        """Give standard normal noise the columns' covariance."""
        return noise @ column_factor.mT


class RegressionMatrixRV(MatrixNormalRV):
    name = "regression_matrix"
    _print_name = ("RegressionMatrix", "\\operatorname{RegressionMatrix}")

    @staticmethod
    @override
    def by_columns(noise: TensorVariable, column_factor: TensorVariable) -> TensorVariable:
        return pt.linalg.solve_triangular(column_factor.mT, noise.mT, lower=False, b_ndim=2).mT


class _ByFactors(Continuous):
    """Checks of the arguments of both distributions."""

    @classmethod
    @override
    def dist(
        cls, mu: TensorLike, row_factor: TensorLike, column_factor: TensorLike, **kwargs: Any
    ) -> TensorVariable:
        parameters = list(map(pt.as_tensor_variable, (mu, row_factor, column_factor)))
        for name, x in zip(("mu", "row_factor", "column_factor"), parameters, strict=True):
            if x.ndim < 2:
                raise argument_error(name, cls.__name__, "a matrix", f"{x.type}")
        return super().dist(parameters, **kwargs)


def _mean(rv: TensorVariable, size: Any, mu: TensorVariable, *factors: TensorVariable) -> Any:
    """Return the mean, the starting point of both distributions."""
    return pt.broadcast_to(mu, rv.shape)


def _log_density(
    whitened: TensorVariable, row_factor: TensorVariable, columns_log_det: TensorVariable
) -> TensorVariable:
    """Log density from the standardised matrix `whitened` and the factors' log determinants."""
    m, n = whitened.shape[-2:]
    log_density = -0.5 * (
        (whitened**2).sum((-2, -1))
        + m * n * _LOG_2PI
        + n * log_det(row_factor)
        + m * columns_log_det
    )
    return impossible_if_nan(log_density)


class MatrixNormal(_ByFactors):
    r"""Matrix normal distribution :math:`MN(M, U, V)` of factors, :math:`U = RR'`, :math:`V = CC'`.

    .. math::

        p(X) = \frac{\exp\{-\frac12 \mathrm{tr}[V^{-1} (X-M)' U^{-1} (X-M)]\}}
                    {(2\pi)^{mn/2} |U|^{n/2} |V|^{m/2}}

    Parameters
    ----------
    mu : tensor_like of float (..., m, n)
        Mean M.
    row_factor : tensor_like of float (..., m, m)
        Lower Cholesky factor R of the rows' covariance.
    column_factor : tensor_like of float (..., n, n)
        Lower Cholesky factor C of the columns' covariance.

    Notes
    -----
    O(m^2 n + m n^2) per density evaluation or draw. The density is -inf if a factor is NaN.

    Examples
    --------
    >>> with pm.Model():
    ...     X = kz.distributions.MatrixNormal("X", np.zeros((2, 3)), np.eye(2), np.eye(3))
    """

    rv_type = MatrixNormalRV
    rv_op = MatrixNormalRV.rv_op
    support_point = _mean

    @override
    def logp(
        value, mu: TensorVariable, row_factor: TensorVariable, column_factor: TensorVariable
    ) -> TensorVariable:
        half = solve_lower(row_factor, value - mu)
        whitened = solve_lower(column_factor, half.mT)
        return _log_density(whitened.mT, row_factor, log_det(column_factor))


class RegressionMatrix(_ByFactors):
    r"""Matrix normal distribution :math:`MN(M, U, P^{-1})`, :math:`U = RR'` and :math:`P = CC'`.

    Distribution of the coefficients :math:`\Sigma_{21} \Sigma_{11}^{-1}` of a partitioned inverse
    Wishart matrix, given its Schur complement. The columns' precision P is known.

    Parameters
    ----------
    mu, row_factor
        As in `MatrixNormal`.
    column_factor : tensor_like of float (..., n, n)
        Lower Cholesky factor C of the columns' precision.

    Notes
    -----
    O(m^2 n + m n^2) per density evaluation or draw; the precision is not inverted. The density is
    -inf if a factor is NaN.

    Examples
    --------
    >>> with pm.Model():
    ...     B = kz.distributions.RegressionMatrix("B", np.zeros((2, 3)), np.eye(2), np.eye(3))
    """

    rv_type = RegressionMatrixRV
    rv_op = RegressionMatrixRV.rv_op
    support_point = _mean

    @override
    def logp(
        value, mu: TensorVariable, row_factor: TensorVariable, column_factor: TensorVariable
    ) -> TensorVariable:
        half = solve_lower(row_factor, value - mu)
        return _log_density(
            matrix_product(half, column_factor), row_factor, -log_det(column_factor)
        )


class _MultivariateNormalRV(MvNormalRV):
    """NumPy's random variable under a new type, which dispatches to another density."""


class MultivariateNormal(pm.MvNormal):
    """Multivariate normal distribution; -inf if the covariance is not positive definite. O(N^3)."""

    rv_op = _MultivariateNormalRV(method="cholesky")

    @override
    def logp(value: TensorVariable, mu: TensorVariable, cov: TensorVariable) -> TensorVariable:
        factor = cholesky_or_nan(cov)
        whitened = solve_lower(factor, (value - mu)[..., None])
        length = cov.shape[-1] * _LOG_2PI
        log_density = -0.5 * ((whitened**2).sum((-2, -1)) + log_det(factor) + length)
        return impossible_if_nan(log_density)
