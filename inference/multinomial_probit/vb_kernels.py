"""Known and expected kernels of the multinomial probit, and the expected utilities (eqs 6-8).

If the composite kernel is linear in the learned weights, the kernels and their products are fixed;
otherwise expectations are taken under the factor of exponents and kernel parameters, `Normal`.

One pass over the objects computes all that an iteration needs from the data: the expected utilities
and their products with the kernels.

Exponents beta of a product and kernel parameters theta share one factor of their coordinates psi
with prior N(0, I) (`normal_coordinates`). Mean field gives

    log Q(psi) = log p(psi) + sum_s E[beta_s] tr(K_s' E[Y] E[W])
                 - 1/2 sum_st E[beta_s beta_t] tr(K_s' K_t E[W'W]) + const,

with, for products, the composite kernel in place of the K_s, and beta = 1. The paper (appendix B.4)
uses importance sampling from the prior, factor by factor, and evaluates the kernels at the means of
their parameters ("first order"). Here Q is a normal distribution of psi, fitted by damped
natural-gradient steps. Expectations of K_s and of K_s'K_t over psi are sums over fixed nodes, so
that the bound cannot fall: Gauss-Hermite products for up to three coordinates, else quasi-random
nodes with the exact mean and covariance.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy.special import roots_hermitenorm
from scipy.stats import norm, qmc

from ...models.combinations.normal_coordinates import NormalCoordinates
from ...models.combinations.sums import WeightedSum
from ...models.multinomial_probit import Composition
from ...numerics.kernel_products import KernelProducts
from ...numerics.probit import log_probability_and_gradient
from ...numerics.threads import sums_over_blocks

type Array = npt.NDArray[np.float64]
type LogDensity = Callable[[Array], float]

# Gauss-Hermite nodes per axis by number of coordinates.
NODES_PER_AXIS = {1: 11, 2: 5, 3: 4}
# Least number of quasi-random nodes, for more coordinates.
LEAST_NODES = 64
# With more coordinates, the curvature is approximated by its diagonal.
LARGEST_FULL = 6
# Bounds on the factor by which a step changes precisions, in the factor's own coordinates.
LEAST_PRECISION = 0.5
LARGEST_PRECISION = 10.0
HALVINGS = 5
# If no step raises the bound, the values at the nodes are far from quadratic: try a narrower
# factor.
SHRINKAGE = 0.7
# Standard deviation of the coordinates at the start.
FIRST_SD = 0.1
# Exponent at the start of a kernel with a starting weight of zero.
LEAST_EXPONENT = 0.05


@cache
def _nodes(dimension: int) -> tuple[Array, Array, Array]:
    """Nodes z (n, P) and weights of a standard normal, and the fit of a quadratic to values.

    The fit (q, n) gives the coefficients of 1, z_i, (z_i^2 - 1) / 2 and, for few coordinates,
    z_i z_j, which are the expectations of gradient and curvature.
    """
    if dimension in NODES_PER_AXIS:
        nodes, weights = roots_hermitenorm(NODES_PER_AXIS[dimension])
        z = np.stack(np.meshgrid(*[nodes] * dimension, indexing="ij")).reshape(dimension, -1).T
        mass = np.prod(np.meshgrid(*[weights] * dimension, indexing="ij"), axis=0).ravel()
        mass /= mass.sum()
    else:
        n = max(LEAST_NODES, 1 << int(np.ceil(np.log2(4 * dimension))))
        half = norm.ppf(qmc.Sobol(dimension, scramble=True, rng=20090405).random(n // 2))
        z = np.concatenate([half, -half])
        z = np.linalg.solve(np.linalg.cholesky(z.T @ z / n), z.T).T
        mass = np.full(n, 1 / n)
    basis = np.concatenate([np.ones((len(z), 1)), z, (z**2 - 1) / 2], axis=1)
    if dimension <= LARGEST_FULL:
        i, j = np.triu_indices(dimension, 1)
        basis = np.concatenate([basis, z[:, i] * z[:, j]], axis=1)
    root = np.sqrt(mass)[:, None]
    return z, mass, np.linalg.pinv(root * basis) * root.T


@dataclass(frozen=True)
class Normal:
    """Normal Q(psi) with mean (P,), and covariance R R' for the `factor` R (P, P)."""

    mean: Array
    factor: Array

    @property
    def gain(self) -> float:
        """E[log p(psi)] - E[log Q(psi)]."""
        n = len(self.mean)
        return float(0.5 * (n - self.mean @ self.mean - np.sum(self.factor**2))) + self._log_root

    @property
    def expectation(self) -> tuple[Array, Array]:
        """Points (n, P) and weights (n,) for expectations."""
        z, weights, _ = _nodes(len(self.mean))
        return self.mean + z @ self.factor.T, weights

    def _height(self, log_likelihood: LogDensity) -> float:
        points, weights = self.expectation
        return float(weights @ [log_likelihood(psi) for psi in points]) + self.gain

    @property
    def _log_root(self) -> float:
        return float(np.linalg.slogdet(self.factor)[1])

    def updated(self, log_likelihood: LogDensity) -> Self:
        """Take one natural-gradient step, halved until the bound rises; else change nothing."""
        n = len(self.mean)
        points, weights = self.expectation
        _, _, fit = _nodes(n)
        values = np.array([log_likelihood(psi) for psi in points])
        height = weights @ values + self.gain
        coefficients = fit @ values
        gradient = coefficients[1 : n + 1]
        hessian = np.diag(coefficients[n + 1 : 2 * n + 1])
        if n <= LARGEST_FULL:
            i, j = np.triu_indices(n, 1)
            hessian[i, j] = hessian[j, i] = coefficients[2 * n + 1 :]
        # The prior's terms are exact. Gradient and curvature are in the factor's own coordinates.
        gradient = gradient - self.factor.T @ self.mean
        eigenvalues, axes = np.linalg.eigh(self.factor.T @ self.factor - hessian)
        target = np.clip(eigenvalues, LEAST_PRECISION, LARGEST_PRECISION)
        along = axes.T @ gradient
        steps = 0.5 ** np.arange(HALVINGS)
        for precision, step in zip(1 - np.outer(steps, 1 - target), steps, strict=True):
            mean = self.mean + self.factor @ (axes @ (step * along / precision))
            new = replace(self, mean=mean, factor=self.factor @ (axes / np.sqrt(precision)))
            if new._height(log_likelihood) > height:
                return new
        new = replace(self, factor=SHRINKAGE * self.factor)
        return new if new._height(log_likelihood) > height else self

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws (draw, P) of psi, and their log densities (draw,)."""
        z = rng.standard_normal((draws, len(self.mean)))
        return self.mean + z @ self.factor.T, norm.logpdf(z).sum(axis=1) - self._log_root


class ExpectedUtilities(NamedTuple):
    """`log_z` is sum_n log P(t_n | f_n), `square` sum_nc f_nc^2, `products` (S, C, M) are E[Y]'K_s.

    `mean` is E[y] (N, C).
    """

    log_z: float
    square: float
    mean: Array
    products: Array


@dataclass(frozen=True)
class ExpectedKernels:
    """Expectations of kernels, the `design` (S, N, M), and of their products K_i'K_j."""

    design: Array
    products: KernelProducts

    @classmethod
    def of(cls, design: Array) -> Self:
        """Compute the products of known kernels; O(S^2 N M^2)."""
        return cls(design, KernelProducts.of(design))

    def utilities(
        self, weights: Array, regressors: Array, codes: npt.NDArray[np.intp]
    ) -> ExpectedUtilities:
        """Expect utilities y_n ~ N(f_n, I) whose largest is that of class t_n (eqs 7-8).

        f_n = sum_s beta_s W k_sn for weights (S,) and regressors W (C, M); `codes` are those of the
        classes (N,). O(S N M C + N C^1.5).
        """
        mean = np.empty((len(codes), len(regressors)))

        def sums(objects: slice) -> tuple[float, float, Array]:
            kernels = self.design[:, objects]
            f = np.tensordot(weights, kernels @ regressors.T, axes=1)
            log_p, gradient = log_probability_and_gradient(f, codes[objects])
            y = np.add(f, gradient, out=mean[objects])
            return float(log_p.sum()), float(np.vdot(f, f)), y.T @ kernels

        log_z, square, products = sums_over_blocks(sums, len(codes))
        return ExpectedUtilities(log_z, square, mean, products)


@dataclass(frozen=True)
class KernelFamily:
    """The kernels whose weighted sum is the composite kernel; for a product, this kernel alone."""

    composition: Composition

    @property
    def coordinates(self) -> NormalCoordinates:
        """Coordinates psi; empty if the kernels are known."""
        return self.composition.coordinates

    def stack(self, psi: Array) -> Array:
        """Kernels (S, N, M) at coordinates (P,)."""
        values = self.coordinates.values(psi)
        if isinstance(self.composition.rule, WeightedSum):
            return self.composition.kernels(values)
        return self.composition.composite(values)[None]

    def start(self, weights: Array) -> Normal:
        """Make the factor before the first update, at kernel weights (S,)."""
        exponents = np.maximum(weights / weights.max(), LEAST_EXPONENT)
        prior_means = self.coordinates.omega / self.coordinates.phi
        center = self.coordinates.psi({"beta": exponents, "theta": prior_means})
        return Normal(center, FIRST_SD * np.eye(len(center)))

    def expected(self, factor: Normal) -> ExpectedKernels:
        """Take expectations under a factor; O(S^2 N M^2) and one stack of kernels per node."""
        design = np.zeros(())
        products = np.zeros(())
        for psi, weight in zip(*factor.expectation, strict=True):
            stack = self.stack(psi)
            design = design + weight * stack
            products = products + weight * KernelProducts.of(stack).products
        return ExpectedKernels(design, KernelProducts(products))

    def log_likelihood(
        self, target: Array, mean: Array, second_moment: Array, moment: Array
    ) -> LogDensity:
        """Make the expected log likelihood of psi, up to a constant; O(S N M^2) per evaluation.

        `target` (N, M) is E[Y] E[W], `mean` and `second_moment` are those of the weights, and
        `moment` (M, M) is E[W'W].
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
