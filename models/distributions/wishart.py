"""Wishart, inverse Wishart and matrix F with real degrees of freedom.

PyMC's Wishart truncates its degrees of freedom to an integer, and PyMC lacks the other two. They
work in any ``pm.Model``: as free variables (NUTS, ADVI and MAP use the packed Cholesky factor of
`PositiveDefinite`), observed, and in prior and posterior predictive sampling.
"""

from collections.abc import Sequence
from typing import Any, override

import numpy as np
import pytensor.tensor as pt
from pymc.distributions.dist_math import check_parameters
from pymc.distributions.distribution import Continuous
from pymc.distributions.shape_utils import rv_size_is_none
from pymc.distributions.transforms import _default_transform
from pytensor.raise_op import CheckAndRaise
from pytensor.tensor import TensorLike, TensorVariable

from ...validation import argument_error
from ..operations.arrays import cholesky_or_nan, impossible_if_nan, log_det, solve_lower
from .drawn import DrawnRV
from .positive_definite import PositiveDefinite, known_length

__all__ = ["InverseWishart", "MatrixF", "Wishart"]

_LOG2 = np.log(2.0)
_LOG_PI = np.log(np.pi)
# PyMC turns its own checks of parameters into an infinite value, which a draw would hide.
_ENOUGH: Any = CheckAndRaise(ValueError, "The degrees of freedom must be above n - 1.")
_DEFINITE: Any = CheckAndRaise(ValueError, "The scale psi must be positive definite.")


def _multigammaln(a: TensorVariable, n: Any) -> TensorVariable:
    """Log of the multivariate gamma function, for any shape of `a`."""
    terms = pt.gammaln(a[..., None] - pt.arange(n) / 2)
    return n * (n - 1) * (_LOG_PI / 4) + terms.sum(-1)


def _bartlett(
    rng: Any, batch: tuple[Any, ...], df: TensorVariable, n: Any
) -> tuple[Any, TensorVariable]:
    """Return the next generator and lower triangular A (*batch, n, n), AA' ~ Wishart(df, I)."""
    df = _ENOUGH(df, pt.all(df > n - 1))
    freedoms = df[..., None] - pt.arange(n)
    next_rng, squares = pt.random.chisquare(
        freedoms, size=(*batch, n), rng=rng, return_next_rng=True
    )
    next_rng, below = pt.random.normal(size=(*batch, n, n), rng=next_rng, return_next_rng=True)
    on_diagonal = pt.eye(n) * pt.sqrt(squares)[..., None, :]
    return next_rng, pt.tril(below, -1) + on_diagonal


def _factor_of(scale: TensorVariable) -> TensorVariable:
    """Lower Cholesky factor of a scale, which draws cannot do without."""
    factor = cholesky_or_nan(scale)
    return _DEFINITE(factor, ~pt.any(pt.isnan(factor)))


class WishartRV(DrawnRV):
    name = "real_wishart"
    extended_signature = "[rng],[size],(),(n,n)->[rng],(n,n)"
    _print_name = ("Wishart", "\\operatorname{Wishart}")

    @classmethod
    @override
    def draws(cls, rng: Any, batch: tuple[Any, ...], nu: Any, psi: Any) -> tuple[Any, Any]:
        next_rng, a = _bartlett(rng, batch, nu, known_length(psi))
        root = _factor_of(psi) @ a
        return next_rng, root @ root.mT


class InverseWishartRV(DrawnRV):
    name = "inverse_wishart"
    extended_signature = "[rng],[size],(),(n,n)->[rng],(n,n)"
    _print_name = ("InverseWishart", "\\operatorname{InverseWishart}")

    @classmethod
    @override
    def draws(cls, rng: Any, batch: tuple[Any, ...], nu: Any, psi: Any) -> tuple[Any, Any]:
        next_rng, a = _bartlett(rng, batch, nu, known_length(psi))
        root = pt.linalg.solve_triangular(a, _factor_of(psi).mT, lower=True, b_ndim=2)
        return next_rng, root.mT @ root


class MatrixFRV(DrawnRV):
    name = "matrix_f"
    extended_signature = "[rng],[size],(),(),(n,n)->[rng],(n,n)"
    _print_name = ("MatrixF", "\\operatorname{MatrixF}")

    @classmethod
    @override
    def draws(
        cls, rng: Any, batch: tuple[Any, ...], nu: Any, delta: Any, psi: Any
    ) -> tuple[Any, Any]:
        next_rng, outer = _bartlett(rng, batch, delta, known_length(psi))
        next_rng, inner = _bartlett(next_rng, batch, nu, known_length(psi))
        root = pt.linalg.solve_triangular(outer, _factor_of(psi).mT, lower=True, b_ndim=2)
        factor = root.mT @ inner
        return next_rng, factor @ factor.mT


class _PositiveDefiniteMatrix(Continuous):
    """Common arguments of the distributions: degrees of freedom, then the scale."""

    @classmethod
    @override
    def dist(cls, nu: TensorLike, psi: TensorLike, **kwargs: Any) -> TensorVariable:
        return cls._checked([nu], psi, **kwargs)

    @classmethod
    def _checked(
        cls, degrees: Sequence[TensorLike], psi: TensorLike, **kwargs: Any
    ) -> TensorVariable:
        psi = pt.as_tensor_variable(psi)
        rows, columns = psi.type.shape[-2:] if psi.ndim >= 2 else (0, 1)
        if None not in (rows, columns) and rows != columns:
            raise argument_error("psi", cls.__name__, "a square matrix", f"{psi.type}")
        parameters = [pt.as_tensor_variable(p).astype("float64") for p in (*degrees, psi)]
        return super().dist(parameters, **kwargs)


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
    O(n^3) per density evaluation or draw (Bartlett's decomposition). The density, eq (1) of Zhang,
    Yeung & Kwok (2003), mixture model of kernels, is -inf outside the cone of positive definite
    matrices. Starting point: the mean.

    Examples
    --------
    >>> with pm.Model():
    ...     X = kz.distributions.Wishart("X", nu=4.5, psi=np.eye(3))
    """

    rv_type = WishartRV
    rv_op = WishartRV.rv_op

    @override
    def support_point(rv, size: Any, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        return _resized(nu[..., None, None] * psi, size, psi)

    @override
    def logp(value, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        n = known_length(psi)
        factor = cholesky_or_nan(value)
        scale = cholesky_or_nan(psi)
        whitened = solve_lower(scale, factor)
        log_density = (
            0.5 * (nu - n - 1) * log_det(factor)
            - 0.5 * (whitened**2).sum((-2, -1))
            - 0.5 * nu * (n * _LOG2 + log_det(scale))
            - _multigammaln(nu / 2, n)
        )
        return check_parameters(impossible_if_nan(log_density), nu > n - 1, msg="nu > n - 1")


class InverseWishart(_PositiveDefiniteMatrix):
    r"""Inverse Wishart distribution with real degrees of freedom (scipy's convention).

    X is inverse Wishart(nu, psi) if its inverse is Wishart(nu, :math:`\Psi^{-1}`):

    .. math::

        p(X) = \frac{|\Psi|^{\nu/2} |X|^{-(\nu+n+1)/2} e^{-\mathrm{tr}(\Psi X^{-1})/2}}
                    {2^{\nu n/2} \Gamma_n(\nu/2)},
        \qquad E X = \frac{\Psi}{\nu-n-1} \ (\nu > n+1)

    Parameters
    ----------
    nu, psi
        As in `Wishart`.

    Notes
    -----
    O(n^3) per density evaluation or draw. The density, eq (2) of the same paper, is -inf outside
    the cone of positive definite matrices. Starting point: the mode :math:`\psi / (\nu + n + 1)`.

    Examples
    --------
    >>> with pm.Model():
    ...     S = kz.distributions.InverseWishart("S", nu=5.5, psi=np.eye(3))
    """

    rv_type = InverseWishartRV
    rv_op = InverseWishartRV.rv_op

    @override
    def support_point(rv, size: Any, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        return _resized(psi / (nu[..., None, None] + psi.shape[-1] + 1), size, psi)

    @override
    def logp(value, nu: TensorVariable, psi: TensorVariable) -> TensorVariable:
        n = known_length(psi)
        factor = cholesky_or_nan(value)
        scale = cholesky_or_nan(psi)
        whitened = solve_lower(factor, scale)
        log_density = (
            0.5 * nu * log_det(scale)
            - 0.5 * (nu + n + 1) * log_det(factor)
            - 0.5 * (whitened**2).sum((-2, -1))
            - 0.5 * nu * n * _LOG2
            - _multigammaln(nu / 2, n)
        )
        return check_parameters(impossible_if_nan(log_density), nu > n - 1, msg="nu > n - 1")


class MatrixF(_PositiveDefiniteMatrix):
    r"""Matrix F distribution with real degrees of freedom, also called beta of type II.

    X | S ~ Wishart(nu, S) and S ~ InverseWishart(delta, psi), with S integrated out:

    .. math::

        p(X) = \frac{\Gamma_n(\frac{\nu+\delta}2)}{\Gamma_n(\frac\nu2)\Gamma_n(\frac\delta2)}
            \frac{|\Psi|^{\delta/2} |X|^{(\nu-n-1)/2}}{|X + \Psi|^{(\nu+\delta)/2}},
        \qquad E X = \frac{\nu\Psi}{\delta-n-1} \ (\delta > n+1)

    Parameters
    ----------
    nu, delta, psi
        As in `Wishart`: degrees of freedom of X given S and of S, and scale of S.

    Notes
    -----
    O(n^3) per density evaluation or draw. The density is -inf outside the cone of positive definite
    matrices. Starting point: :math:`\nu \psi / (\delta + n + 1)`.

    Examples
    --------
    >>> with pm.Model():
    ...     X = kz.distributions.MatrixF("X", nu=4.5, delta=6.0, psi=np.eye(3))
    """

    rv_type = MatrixFRV
    rv_op = MatrixFRV.rv_op

    @classmethod
    @override
    def dist(  # type: ignore[override]
        cls, nu: TensorLike, delta: TensorLike, psi: TensorLike, **kwargs: Any
    ) -> TensorVariable:
        return cls._checked([nu, delta], psi, **kwargs)

    @override
    def support_point(
        rv, size: Any, nu: TensorVariable, delta: TensorVariable, psi: TensorVariable
    ) -> TensorVariable:
        scale = nu / (delta + psi.shape[-1] + 1)
        return _resized(scale[..., None, None] * psi, size, psi)

    @override
    def logp(
        value, nu: TensorVariable, delta: TensorVariable, psi: TensorVariable
    ) -> TensorVariable:
        n = known_length(psi)
        total = nu + delta
        gammas = _multigammaln(total / 2, n) - _multigammaln(nu / 2, n)
        powers = (
            delta * log_det(cholesky_or_nan(psi))
            + (nu - n - 1) * log_det(cholesky_or_nan(value))
            - total * log_det(cholesky_or_nan(value + psi))
        )
        log_density = gammas - _multigammaln(delta / 2, n) + powers / 2
        proper = pt.and_(nu > n - 1, delta > n - 1)
        return check_parameters(impossible_if_nan(log_density), proper, msg="nu, delta > n - 1")


@_default_transform.register(WishartRV)
@_default_transform.register(InverseWishartRV)
@_default_transform.register(MatrixFRV)
def _positive_definite(op: Any, rv: TensorVariable) -> PositiveDefinite:
    return PositiveDefinite()
