"""Wishart and inverse Wishart with real degrees of freedom.

PyMC's own Wishart cuts its degrees of freedom to an integer, and PyMC has no inverse Wishart. Both
work alone in any ``pm.Model``: as free variables (NUTS, ADVI, MAP move in the packed Cholesky
factor of `PositiveDefinite`), observed, and in prior and posterior predictive sampling.
"""

import math
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous, SymbolicRandomVariable
from pymc.distributions.shape_utils import implicit_size_from_params, rv_size_is_none
from pymc.distributions.transforms import _default_transform
from pymc.logprob.transforms import Transform
from pymc.pytensorf import normalize_rng_param
from pytensor.tensor import TensorLike, TensorVariable
from pytensor.tensor.random.utils import normalize_size_param

from .checks import argument_error

__all__ = ["InverseWishart", "PositiveDefinite", "Wishart", "cholesky_or_nan", "log_det"]

_LOG2, _LOG_PI = np.log(2.0), np.log(np.pi)


class PositiveDefinite(Transform):
    r"""Positive definite matrices as unconstrained vectors.

    X = LL' is packed as the lower triangle of L by rows, with the logarithms of its diagonal:
    n(n+1)/2 numbers. The order n is read from whatever is transformed, so that one instance
    serves all orders. log|J| = n log 2 + sum_k (n - k + 2) log L_kk, k = 1..n.
    """

    name = "cholesky"
    ndim_supp = 1

    @override
    def forward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Packed vector (..., n(n+1)/2) of positive definite matrices (..., n, n)."""
        value = pt.as_tensor_variable(value)
        rows, columns, diagonal = _triangle(_known(value))
        packed = cholesky_or_nan(value)[..., rows, columns]
        return packed[..., diagonal].set(pt.log(packed[..., diagonal]))

    @override
    def backward(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Matrices (..., n, n) of packed vectors (..., n(n+1)/2)."""
        value = pt.as_tensor_variable(value)
        n = _order(_known(value))
        rows, columns, diagonal = _triangle(n)
        packed = value[..., diagonal].set(pt.exp(value[..., diagonal]))
        factor = pt.zeros((*_batch(value, 1), n, n), dtype=value.dtype)
        factor = factor[..., rows, columns].set(packed)
        # PyTensor then knows that the Cholesky factor of the product is this matrix.
        factor.tag.lower_triangular = True
        return factor @ factor.mT

    @override
    def log_jac_det(self, value: TensorLike, *inputs: TensorVariable) -> TensorVariable:
        """Log of the Jacobian determinant of `backward` (...)."""
        value = pt.as_tensor_variable(value)
        n = _order(_known(value))
        _, _, diagonal = _triangle(n)
        powers = pt.arange(n + 1, 1, -1).astype(value.dtype)
        return n * _LOG2 + (powers * value[..., diagonal]).sum(-1)


def _known(x: TensorVariable) -> Any:
    """Length of the last axis: a number where PyTensor knows it, else symbolic."""
    static = x.type.shape[-1]
    return x.shape[-1] if static is None else static


def _batch(x: TensorVariable, ndim_supp: int) -> list[Any]:
    """Lengths of the leading axes, numbers where known."""
    static = x.type.shape[: x.ndim - ndim_supp]
    return [x.shape[i] if length is None else length for i, length in enumerate(static)]


def _order(length: Any) -> Any:
    """Find the n of which `length` is n(n+1)/2."""
    if isinstance(length, int):
        return (math.isqrt(8 * length + 1) - 1) // 2
    return pt.round((pt.sqrt(8.0 * length + 1) - 1) / 2).astype("int64")


def _triangle(n: Any) -> tuple[Any, Any, Any]:
    """Rows and columns of the packed lower triangle, and where its diagonal lies."""
    numbers: Any = np if isinstance(n, int) else pt
    rows, columns = numbers.tril_indices(n)
    return rows, columns, numbers.cumsum(numbers.arange(1, n + 1)) - 1


def cholesky_or_nan(matrix: TensorVariable) -> TensorVariable:
    """Lower Cholesky factor; NaN where there is none."""
    return pt.linalg.cholesky(matrix, lower=True, on_error="nan")


def log_det(factor: TensorVariable) -> TensorVariable:
    """Log determinant (...) of LL' given L (..., n, n)."""
    return 2 * pt.log(pt.diagonal(factor, axis1=-2, axis2=-1)).sum(-1)


def _multigammaln(a: TensorVariable, n: Any) -> TensorVariable:
    """Log of the multivariate gamma function, for any shape of `a`."""
    terms = pt.gammaln(a[..., None] - pt.arange(n) / 2)
    return n * (n - 1) * (_LOG_PI / 4) + terms.sum(-1)


def _log_inside(log_density: TensorVariable) -> TensorVariable:
    """-inf where a Cholesky factorisation failed: the value is not positive definite."""
    return pt.switch(pt.isnan(log_density), -np.inf, log_density)


def _bartlett(
    rng: Any, size: Any, df: TensorVariable, scale: TensorVariable
) -> tuple[Any, TensorVariable]:
    """Next generator, and lower triangular A (*size, n, n) with AA' ~ Wishart(df, I)."""
    n = _known(scale)
    if rv_size_is_none(size):
        size = implicit_size_from_params(df, scale, ndims_params=[0, 2])
    batch = tuple(size)
    freedoms = df[..., None] - pt.arange(n)
    next_rng, squares = pt.random.chisquare(
        freedoms, size=(*batch, n), rng=rng, return_next_rng=True
    )
    next_rng, below = pt.random.normal(size=(*batch, n, n), rng=next_rng, return_next_rng=True)
    on_diagonal = pt.eye(n) * pt.sqrt(squares)[..., None, :]
    return next_rng, pt.tril(below, -1) + on_diagonal


class WishartRV(SymbolicRandomVariable):
    name = "real_wishart"
    extended_signature = "[rng],[size],(),(n,n)->[rng],(n,n)"
    _print_name = ("Wishart", "\\operatorname{Wishart}")

    @classmethod
    def rv_op(
        cls, nu: TensorLike, psi: TensorLike, *, size: Any = None, rng: Any = None
    ) -> TensorVariable:
        nu, psi = pt.as_tensor(nu), pt.as_tensor(psi)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, a = _bartlett(rng, size, nu, psi)
        factor = pt.linalg.cholesky(psi, lower=True) @ a
        return cls(inputs=[rng, size, nu, psi], outputs=[next_rng, factor @ factor.mT])(
            rng, size, nu, psi
        )


class InverseWishartRV(SymbolicRandomVariable):
    name = "inverse_wishart"
    extended_signature = "[rng],[size],(),(n,n)->[rng],(n,n)"
    _print_name = ("InverseWishart", "\\operatorname{InverseWishart}")

    @classmethod
    def rv_op(
        cls, nu: TensorLike, psi: TensorLike, *, size: Any = None, rng: Any = None
    ) -> TensorVariable:
        nu, psi = pt.as_tensor(nu), pt.as_tensor(psi)
        rng, size = normalize_rng_param(rng), normalize_size_param(size)
        next_rng, a = _bartlett(rng, size, nu, psi)
        upper = pt.linalg.cholesky(psi, lower=True).mT
        root = pt.linalg.solve_triangular(a, upper, lower=True, b_ndim=2)
        return cls(inputs=[rng, size, nu, psi], outputs=[next_rng, root.mT @ root])(
            rng, size, nu, psi
        )


class _PositiveDefiniteMatrix(Continuous):
    """Arguments and shapes that both distributions share."""

    @classmethod
    @override
    def dist(cls, nu: TensorLike, psi: TensorLike, **kwargs: Any) -> TensorVariable:
        nu, psi = pt.as_tensor_variable(nu), pt.as_tensor_variable(psi)
        rows, columns = psi.type.shape[-2:] if psi.ndim >= 2 else (0, 1)
        if None not in (rows, columns) and rows != columns:
            raise argument_error("psi", cls.__name__, "a square matrix", f"{psi.type}")
        return super().dist([nu.astype("float64"), psi.astype("float64")], **kwargs)


def _resized(point: TensorVariable, size: Any, psi: TensorVariable) -> TensorVariable:
    if rv_size_is_none(size):
        return point
    return pt.broadcast_to(point, (*tuple(size), *psi.shape[-2:]))


class Wishart(_PositiveDefiniteMatrix):
    r"""Wishart distribution with real degrees of freedom.

    .. math::

        p(X) = \frac{|X|^{(\nu-n-1)/2} e^{-\mathrm{tr}(\Psi^{-1} X)/2}}
                    {2^{\nu n/2} |\Psi|^{\nu/2} \Gamma_n(\nu/2)},
        \qquad E X = \nu \Psi

    Parameters
    ----------
    nu : tensor_like of float (...)
        Degrees of freedom, any real number above n - 1.
    psi : tensor_like of float (..., n, n)
        Positive definite scale.

    Notes
    -----
    O(n^3) a density evaluation or draw (Bartlett's decomposition). The density is -inf outside
    the cone of positive definite matrices. Starting point: the mean.

    Examples
    --------
    >>> with pm.Model():
    ...     X = Wishart("X", nu=4.5, psi=np.eye(3))
    """

    rv_type = WishartRV
    rv_op = WishartRV.rv_op

    @override
    def support_point(rv, size: Any, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        return _resized(nu[..., None, None] * psi, size, psi)

    @override
    def logp(value, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        n = _known(psi)
        factor, scale = cholesky_or_nan(value), cholesky_or_nan(psi)
        whitened = pt.linalg.solve_triangular(scale, factor, lower=True, b_ndim=2)
        log_density = (
            0.5 * (nu - n - 1) * log_det(factor)
            - 0.5 * (whitened**2).sum((-2, -1))
            - 0.5 * nu * (n * _LOG2 + log_det(scale))
            - _multigammaln(nu / 2, n)
        )
        return check_parameters(_log_inside(log_density), nu > n - 1, msg="nu > n - 1")


class InverseWishart(_PositiveDefiniteMatrix):
    r"""Inverse Wishart distribution with real degrees of freedom (scipy's convention).

    X is inverse Wishart(nu, psi) when its inverse is Wishart(nu, psi^-1):

    .. math::

        p(X) = \frac{|\Psi|^{\nu/2} |X|^{-(\nu+n+1)/2} e^{-\mathrm{tr}(\Psi X^{-1})/2}}
                    {2^{\nu n/2} \Gamma_n(\nu/2)},
        \qquad E X = \frac{\Psi}{\nu-n-1} \ (\nu > n+1)

    Parameters
    ----------
    nu : tensor_like of float (...)
        Degrees of freedom, any real number above n - 1.
    psi : tensor_like of float (..., n, n)
        Positive definite scale.

    Notes
    -----
    O(n^3) a density evaluation or draw; a draw solves one triangular system and inverts nothing.
    The density is -inf outside the cone of positive definite matrices. Starting point: the mode
    psi / (nu + n + 1), which always exists.

    Examples
    --------
    >>> with pm.Model():
    ...     S = InverseWishart("S", nu=5.5, psi=np.eye(3))
    """

    rv_type = InverseWishartRV
    rv_op = InverseWishartRV.rv_op

    @override
    def support_point(rv, size: Any, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        return _resized(psi / (nu[..., None, None] + psi.shape[-1] + 1), size, psi)

    @override
    def logp(value, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        n = _known(psi)
        factor, scale = cholesky_or_nan(value), cholesky_or_nan(psi)
        whitened = pt.linalg.solve_triangular(factor, scale, lower=True, b_ndim=2)
        log_density = (
            0.5 * nu * log_det(scale)
            - 0.5 * (nu + n + 1) * log_det(factor)
            - 0.5 * (whitened**2).sum((-2, -1))
            - 0.5 * nu * n * _LOG2
            - _multigammaln(nu / 2, n)
        )
        return check_parameters(_log_inside(log_density), nu > n - 1, msg="nu > n - 1")


@_default_transform.register(WishartRV)
@_default_transform.register(InverseWishartRV)
def _positive_definite(op: Any, rv: TensorVariable) -> PositiveDefinite:
    return PositiveDefinite()
