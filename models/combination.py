"""Rules that combine a stack of kernels into one, with the prior of their weights.

A rule declares its weights inside a model and says how they combine a stack; models and engines
dispatch on its type.

Notation (Damoulas & Girolami 2009, section 2):

======== ============================== =====================
paper    meaning                        code
======== ============================== =====================
beta_s   weight of kernel s             ``beta``  (kernel)
rho_s    concentration of the weights   ``rho``   (kernel)
mu       shape of rho's Gamma prior     ``mu``
lambda   rate of rho's Gamma prior      ``lam``
======== ============================== =====================
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from .checks import argument_error, check_finite, check_positive

__all__ = ["Combination", "FixedWeights", "Mean"]


class Combination(Protocol):
    """What a model asks of a combination rule."""

    def check(self, n_kernels: int) -> None:
        """Raise ValueError when the rule does not fit a stack of `n_kernels`."""

    def declare(self) -> TensorVariable:
        """Declare the weights, dims ("kernel",), in the model on the context stack."""

    def combine(self, stack: TensorVariable, weights: TensorVariable) -> TensorVariable:
        """Composite kernel (obs, basis) of a stack (kernel, obs, basis)."""


class _WeightedSum(Combination, Protocol):
    """K_beta = sum_s beta_s K_s: one matrix-vector product over the flattened stack."""

    def combine(self, stack: TensorVariable, weights: TensorVariable) -> TensorVariable:
        n_kernels, n_obs, n_basis = stack.shape
        return pt.dot(weights, stack.reshape((n_kernels, n_obs * n_basis))).reshape(
            (n_obs, n_basis)
        )


@dataclass(frozen=True)
class Mean(_WeightedSum):
    """Convex combination with learned weights: beta ~ Dirichlet(rho), rho_s ~ Gamma(mu, lam).

    Parameters
    ----------
    mu : float, default=1
        Shape of the concentrations' Gamma prior.
    lam : float, default=1
        Rate of the concentrations' Gamma prior.
    """

    mu: float = 1.0
    lam: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.mu, "mu", "Mean")
        check_positive(self.lam, "lam", "Mean")

    @override
    def check(self, n_kernels: int) -> None:
        """Any number of kernels will do."""

    @override
    def declare(self) -> TensorVariable:
        rho = pm.Gamma("rho", alpha=self.mu, beta=self.lam, dims="kernel")
        return pm.Dirichlet("beta", a=rho, dims="kernel")


@dataclass(frozen=True)
class FixedWeights(_WeightedSum):
    """Weighted sum with given, non-negative weights.

    Parameters
    ----------
    weights : sequence of float, optional
        One weight a kernel, used as they are. Default: the plain average, 1/S each.
    """

    weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        weights = np.atleast_1d(np.asarray(self.weights, dtype=float))
        check_finite(weights, "weights", "FixedWeights")
        if weights.ndim != 1 or (weights < 0).any() or not weights.any():
            raise argument_error(
                "weights",
                "FixedWeights",
                "a vector of non-negative numbers, not all zero",
                repr(self.weights),
            )
        object.__setattr__(self, "weights", tuple(weights.tolist()))

    @override
    def check(self, n_kernels: int) -> None:
        if self.weights is not None and len(self.weights) != n_kernels:
            raise argument_error(
                "weights",
                "FixedWeights",
                f"a vector of {n_kernels} numbers, one a kernel",
                f"{len(self.weights)} numbers",
            )

    @override
    def declare(self) -> TensorVariable:
        n_kernels = len(pm.modelcontext(None).coords["kernel"])
        weights = self.weights if self.weights is not None else np.full(n_kernels, 1 / n_kernels)
        return pm.Data("beta", np.asarray(weights, dtype=float), dims="kernel")
