r"""The variational factor of exponents and kernel parameters.

Exponents beta of a product and kernel parameters theta enter the kernels nonlinearly. They share
one factor of their coordinates psi with prior N(0, I) (`normal_coordinates`). Mean field
gives

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

__all__ = ["Expectation", "LogDensity", "Normal"]

type Array = npt.NDArray[np.float64]
type LogDensity = Callable[[Array], float]

# Gauss-Hermite nodes per axis by number of coordinates.
NODES_PER_AXIS = {1: 11, 2: 5, 3: 4}
# Least number of quasi-random nodes, for more coordinates.
LEAST_NODES = 64
# With more coordinates, the curvature is approximated by its diagonal.
LARGEST_FULL = 6
# Bounds on the factor by which a step changes precisions, in the factor's own coordinates.
LEAST_PRECISION, LARGEST_PRECISION = 0.5, 10.0
HALVINGS = 5
# If no step raises the bound, the values at the nodes are far from quadratic: try a narrower
# factor.
SHRINKAGE = 0.7


class Expectation(NamedTuple):
    """Points (n, P) and weights (n,) for expectations."""

    points: Array
    weights: Array


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
    def expectation(self) -> Expectation:
        """Points to sum over."""
        z, weights, _ = _nodes(len(self.mean))
        return Expectation(self.mean + z @ self.factor.T, weights)

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
        gradient, hessian = coefficients[1 : n + 1], np.diag(coefficients[n + 1 : 2 * n + 1])
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
        if new._height(log_likelihood) > height:
            return new
        return self

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws (draw, P) of psi, and their log densities (draw,)."""
        z = rng.standard_normal((draws, len(self.mean)))
        return self.mean + z @ self.factor.T, norm.logpdf(z).sum(axis=1) - self._log_root
