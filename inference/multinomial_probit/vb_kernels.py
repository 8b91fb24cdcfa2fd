"""Expectations of the multinomial probit's kernels for the variational updates.

If the composite kernel is linear in the learned weights, the kernels and their products are fixed.
Exponents of products and kernel parameters change the kernels; expectations are then taken under
their factor (`vb_kernel_parameters`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from ...models.combinations.normal_coordinates import NormalCoordinates
from ...models.combinations.products import FixedProduct, Product
from ...models.combinations.sums import WeightedSum
from ...models.multinomial_probit import Composition, MultinomialProbit
from ...numerics.kernel_products import KernelProducts
from .expected_utilities import ExpectedUtilities, expected_utilities
from .vb_kernel_parameters import Normal

__all__ = ["ExpectedKernels", "KernelFamily"]

type Array = npt.NDArray[np.float64]

# Standard deviation of the coordinates at the start.
FIRST_SD = 0.1
# Exponent at the start of a kernel with a starting weight of zero.
LEAST_EXPONENT = 0.05


@dataclass(frozen=True)
class ExpectedKernels:
    """Expectations of kernels (S, N, M) and of their products K_i'K_j."""

    design: Array
    products: KernelProducts

    @classmethod
    def of(cls, design: Array) -> Self:
        """Compute the products of known kernels; O(S^2 N M^2)."""
        return cls(design, KernelProducts.of(design))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of kernels, objects and columns."""
        s, n, m = self.design.shape
        return s, n, m

    def spread(self, weights: Array, regressors: Array) -> float:
        """Compute the standard deviation of the scores of all objects and classes."""
        return float(np.tensordot(weights, self.design @ regressors.T, axes=1).std())

    def utilities(
        self,
        weights: Array,
        regressors: Array,
        labels: npt.NDArray[np.intp],
        objects: slice = slice(None),
    ) -> ExpectedUtilities:
        """Expect the utilities of some objects at weights (S,) and regressors (C, M)."""
        return expected_utilities(self.design[:, objects], weights, regressors, labels[objects])


@dataclass(frozen=True)
class KernelFamily:
    """The kernels whose weighted sum is the composite kernel, at coordinates psi.

    For a product this is the composite kernel itself, with weight one.

    Parameters
    ----------
    composition : Composition
    is_product : bool
    """

    composition: Composition
    is_product: bool

    @classmethod
    def of(cls, model: MultinomialProbit) -> Self:
        """Read the model's kernels and combination rule."""
        rule = model.combination
        if not isinstance(rule, FixedProduct | Product | WeightedSum):
            raise TypeError(
                f"VB takes weighted sums and products of kernels. {type(rule).__name__} is neither."
            )
        return cls(model.composition, not isinstance(rule, WeightedSum))

    @property
    def coordinates(self) -> NormalCoordinates:
        """Coordinates psi; empty if the kernels are known."""
        return self.composition.coordinates

    def stack(self, psi: Array) -> Array:
        """Kernels (S, N, M) at coordinates (P,)."""
        values = self.coordinates.values(psi)
        if self.is_product:
            return self.composition.composite(values)[None]
        return self.composition.kernels(values)

    def start(self, weights: Array) -> Normal:
        """Make the factor before the first update, at kernel weights (S,)."""
        exponents = np.maximum(weights / weights.max(), LEAST_EXPONENT)
        prior_means = self.coordinates.omega / self.coordinates.phi
        center = self.coordinates.psi({"beta": exponents, "theta": prior_means})
        return Normal(center, FIRST_SD * np.eye(len(center)))

    def expected(self, factor: Normal) -> ExpectedKernels:
        """Take expectations under a factor.

        Each point costs one stack of kernels and O(S^2 N M^2).
        """
        points, weights = factor.expectation
        first = ExpectedKernels.of(self.stack(points[0]))
        design, products = weights[0] * first.design, weights[0] * first.products.products
        for psi, weight in zip(points[1:], weights[1:], strict=True):
            stack = self.stack(psi)
            design += weight * stack
            products += weight * KernelProducts.of(stack).products
        return ExpectedKernels(design, replace(first.products, products=products))

    def log_likelihood(
        self, target: Array, mean: Array, second_moment: Array, moment: Array
    ) -> Callable[[Array], float]:
        """Make the expected log likelihood of psi, up to a constant.

        Parameters
        ----------
        target : array of shape (N, M)
            E[Y] E[W].
        mean, second_moment : array of shape (S,) and (S, S)
            Moments of the weights.
        moment : array of shape (M, M)
            E[W'W].

        Notes
        -----
        An evaluation costs one stack of kernels and O(S N M^2).
        """
        eigenvalues, axes = np.linalg.eigh(second_moment)
        kept = eigenvalues > 1e-14 * eigenvalues.max()
        roots = (axes[:, kept] * np.sqrt(eigenvalues[kept])).T

        def of(psi: Array) -> float:
            stack = self.stack(psi)
            linear = np.vdot(np.tensordot(mean, stack, axes=1), target)
            combined = (np.tensordot(root, stack, axes=1) for root in roots)
            quadratic = sum(np.vdot(each @ moment, each) for each in combined)
            return float(linear - 0.5 * quadratic)

        return of
