"""Entrywise products of kernels, with given or learned exponents.

Notation (Damoulas & Girolami 2009, sections 2 and 3.1, Figure 2):

========= ======================================= =====================
paper     meaning                                 code
========= ======================================= =====================
beta_s    exponent of a kernel                    ``beta``  (kernel)
pi_s      shape of beta_s                         ``pi``    (kernel)
chi_s     rate of beta_s                          ``chi``   (kernel)
========= ======================================= =====================
"""

from dataclasses import dataclass
from typing import override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable

from ...validation import Positive, argument_error, check_arguments
from ..operations.arrays import weighted_sum
from .sums import LEAST_LOG_ARGUMENT, Combination, GivenNumbers, Numbers


class _WeightedProduct(Combination):
    """K_beta = prod_s K_s^beta_s, the exponential of a weighted sum of logarithms.

    Entries of zero, for instance of a Gaussian kernel between distant objects, count as
    `LEAST_LOG_ARGUMENT`.
    A negative entry makes the composite kernel NaN, where models have no density.
    """

    @override
    def check(self, stack: xr.DataArray) -> None:
        values = stack.to_numpy()
        if values.min() < 0:
            s, row, column = np.unravel_index(int(values.argmin()), values.shape)
            name = stack["kernel"].values[s]
            owner = type(self).__name__
            got = f"{values[s, row, column]:.4g} at ({row}, {column})"
            rule = "nowhere negative, so that all powers exist"
            raise argument_error(f'kernels["{name}"]', owner, rule, got)

    @override
    def combine(self, stack: TensorVariable, weights: TensorVariable) -> TensorVariable:
        positive = pt.switch(pt.lt(stack, 0.0), np.nan, pt.maximum(stack, LEAST_LOG_ARGUMENT))
        return pt.exp(weighted_sum(pt.log(positive), weights))

    @override
    def terms(self, stack: NDArray) -> NDArray:
        return np.log(np.where(stack < 0, np.nan, np.maximum(stack, LEAST_LOG_ARGUMENT)))

    @override
    def from_terms(self, total: NDArray) -> NDArray:
        return np.exp(total, out=total)


@dataclass(frozen=True)
class Product(_WeightedProduct):
    r"""Product with learned exponents, :math:`\prod_s K_s^{\beta_s}`, :math:`\beta_s \sim` Gamma.

    Both pi and chi have exponential priors. An exponent near zero leaves its kernel out. With pi
    and chi integrated out, the prior of an exponent's logarithm has a heavy lower tail.

    Parameters
    ----------
    pi_rate, chi_rate : float, default=1
        Rates of the exponential priors of the shapes pi_s and the rates chi_s.

    Notes
    -----
    Kernels must not have negative entries; parameters of kernels that cause them have posterior
    density zero. Entries of zero count as 1e-300, so that a Gaussian kernel may underflow. Powers
    of a Gaussian or Laplace kernel are kernels of the same family. Powers of other kernels need not
    be positive semidefinite; the model does not require it, because the composite is a matrix of
    basis functions.

    Examples
    --------
    >>> positive = kz.gaussian(1 / 13) | kz.polynomial(2)
    >>> rule = kz.combinations.Product()
    >>> model = kz.MultinomialProbit(positive(X_train), y_train, combination=rule)
    """

    pi_rate: Positive = 1.0
    chi_rate: Positive = 1.0

    def __post_init__(self) -> None:
        check_arguments(Product, vars(self))

    @override
    def declare(self) -> TensorVariable:
        pi = pm.Exponential("pi", self.pi_rate, dims="kernel")
        chi = pm.Exponential("chi", self.chi_rate, dims="kernel")
        return pm.Gamma("beta", alpha=pi, beta=chi, dims="kernel")


@dataclass(frozen=True)
class FixedProduct(GivenNumbers, _WeightedProduct):
    """Product with given, non-negative exponents.

    Parameters
    ----------
    exponents : sequence of float, Series or mapping, optional
        One exponent per kernel, aligned by names. Default: 1 each, the plain product.

    Examples
    --------
    >>> rule = kz.combinations.FixedProduct()
    >>> positive = kz.gaussian(1 / 13) | kz.polynomial(2)
    >>> model = kz.MultinomialProbit(positive(X_train), y_train, combination=rule)
    """

    numbers = "exponents"
    exponents: Numbers | None = None

    @override
    def check(self, stack: xr.DataArray) -> None:
        super().check(stack)
        _WeightedProduct.check(self, stack)
