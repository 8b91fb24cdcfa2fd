"""The functions that specify one kernel."""

from collections.abc import Callable
from typing import Any, Literal

import pymc as pm
from numpy.typing import NDArray

from ...validation import argument_error
from . import base
from .base import LearnedGaussian, Theta
from .specification import Kernels, Member


def gaussian(
    gamma: float | Literal["median"] | Theta | None = None, *, times: float = 1.0
) -> Kernels:
    r"""Gaussian kernel :math:`\exp(-\gamma {|x - x'|}^2)`.

    z-score the features on the training part first, as ``split`` in ``kz.datasets`` does. Otherwise
    features of large scale dominate, and one data set's good width gives the identity for another.

    Parameters
    ----------
    gamma : float, "median" or Theta, optional
        - a number; 1 / n_features by default;
        - "median": 1 / (2 m), with m the median of :math:`{|x_i - x_j|}^2` over pairs of training
          objects, in each feature space; of more than 1,000 objects, 1,000 are drawn with a fixed
          seed, whatever their order (in chunks: by position). See D. Garreau, W. Jitkrittum
          and M. Kanagawa (2017), Large sample analysis of the median heuristic, arXiv:1707.07269;
        - a `Theta`: gamma is learned; ``Theta(ard=True)`` learns one for each feature,
          :math:`\exp(-\sum_d \gamma_d (x_d - x'_d)^2)`.
    times : float, default=1
        Factor of the gamma that "median" chooses: above 1, the kernel is narrower.

    Examples
    --------
    >>> kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    >>> kernels(X_train)["kernel"].values
    array(['gaussian(median=0.01911)', 'linear'], dtype='<U24')
    """
    if isinstance(gamma, Theta):
        if times != 1.0:
            raise argument_error("times", "gaussian", "left out for a Theta", repr(times))
        return Kernels((Member(LearnedGaussian(gamma)),))
    return Kernels((Member(base.Gaussian(gamma, times=times)),))


def inverse_multiquadric(
    gamma: float | Literal["median"] | None = None, *, times: float = 1.0
) -> Kernels:
    r"""Inverse multiquadric kernel :math:`(1 + \gamma {|x - x'|}^2)^{-1/2}`.

    It is the mean of Gaussian kernels :math:`\exp(-s {|x - x'|}^2)`, s ~ Gamma(1/2, 1 / gamma), so
    that objects near by and far away both count. `gamma` is 1 / n_features by default; "median" is
    3 / m, with which the kernel is 1/2 at the median squared distance m of pairs of training
    objects. `times` is a factor of it. See `gaussian`.

    Examples
    --------
    >>> stack = kz.kernels.inverse_multiquadric("median")(X_train)
    """
    return Kernels((Member(base.InverseMultiquadric(gamma, times=times)),))


def polynomial(degree: int = 2, gamma: float = 1.0, coef0: float = 1.0) -> Kernels:
    r"""Polynomial kernel :math:`(\gamma\, x^\top x' + c_0)^d`, :math:`c_0` = coef0, d = degree.

    `degree` must be a whole number from 1, `gamma` > 0 and `coef0` >= 0, so that the kernel is
    positive semidefinite.  `gamma` is 1 by default, as in the papers; scikit-learn's default is
    1 / n_features.

    Examples
    --------
    >>> stack = kz.polynomial(2, gamma=0.1)(X_train)
    """
    return Kernels((Member(base.Polynomial(degree, gamma, coef0)),))


def linear() -> Kernels:
    r"""Linear kernel :math:`x^\top x'` without a bias; ``normalize("unit")`` makes it the cosine.

    Examples
    --------
    >>> stack = kz.linear()(X_train)
    """
    return Kernels((Member(base.Linear()),))


def precomputed() -> Kernels:
    """Precomputed similarities instead of features.

    Apply it to the Gram matrix of the training objects, shape (N, N), and to the similarities of
    new objects to the training objects, shape (n, N), together with that Gram matrix.  To combine
    it with kernels of features, use a dict: ``gaussian().on("x") |
    precomputed().on("sequence")``.

    Examples
    --------
    >>> gram = np.exp(-squared_distances)
    >>> stack = kz.kernels.precomputed().normalize("trace")(gram)
    """
    return Kernels((Member(base.Precomputed()),))


def covariance(function: Any) -> Kernels:
    """Any covariance function of ``pm.gp.cov`` with fixed hyperparameters.

    Random variables among them raise a ValueError; what is not a covariance function, a TypeError.

    Examples
    --------
    >>> kz.kernels.covariance(pm.gp.cov.Matern52(3, ls=1.5))
    """
    if not isinstance(function, pm.gp.cov.BaseCovariance):
        rule = "The 'function' argument of covariance must be a covariance function of pm.gp.cov."
        raise TypeError(f"{rule} Got {function!r}.")
    return Kernels((Member(base.Covariance(function)),))


def basis_expansion(function: Callable[[NDArray], NDArray]) -> Kernels:
    """Features instead of a kernel: the stack has one column per basis function.

    `function` maps objects of shape (n, D) to features of shape (n, M), row by row; fit its
    parameters beforehand, as those of scikit-learn's `Nystroem`.

    Examples
    --------
    >>> squares = kz.kernels.basis_expansion(np.square).named("squares")
    >>> squares(X_train).shape
    """
    return Kernels((Member(base.BasisExpansion(function)),))
