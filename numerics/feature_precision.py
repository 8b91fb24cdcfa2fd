"""Posterior precision of the weights of features, and solutions with it.

Several functions have a softmax. The likelihood knows only their differences, so that the sum of
the functions keeps its prior. The others are C - 1 orthonormal contrasts of classes, whose joint
precision is factorised where it is small (`COUPLED`); otherwise the precision of each class given
the other classes stands for it, and conditions the conjugate gradients that find the mode. Symbols
are those of `features`.
"""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple, Protocol, override

import numpy as np
from scipy.linalg import helmert

from .features import Features
from .gaussian_process import Array, cholesky, inverse, log_det, solve, solve_triangular
from .gaussian_scores import Sites
from .likelihoods import Likelihood

#: Solutions (m, C) of right sides (m, C).
type Solver = Callable[[Array], Array]
#: Largest number of contrasts' weights, (C - 1) m, that are factorised together.
COUPLED = 1000
#: Steps of conjugate gradients within one of Newton's, and the squared norm of the residual,
#: relative to the first one, that ends them.
GRADIENT_STEPS = 20
GRADIENT_REST = 1e-2
#: The same as above of solutions that derivatives need.
SOLVED = 1e-14
SOLUTION_STEPS = 500


class Term(NamedTuple):
    """A part of the precision: s Phi' diag(weights) Phi, of one class or a pair of them.

    Attributes
    ----------
    inverse : array (m, m)
        The log determinant changes by the trace of s times it and Phi' diag(change) Phi.
    weights : array (N,)
    slopes : array (N, C)
        Derivatives of the weights with respect to the scores.
    """

    inverse: Array
    weights: Array
    slopes: Array


class Precision(Protocol):
    """Posterior precision of the weights of all functions."""

    def __init__(self, features: Features, sites: Sites, scale: float): ...

    @property
    def log_det(self) -> float:
        """Log determinant."""

    def solve(self, b: Array) -> Array:
        """A^-1 b for b (m, C)."""

    def terms(self, p: Array) -> Iterator[Term]:
        """Parts of the precision at probabilities p (N, C), whose curvature it has."""

    def covariances(self, values: Array) -> Array:
        """Covariances (n, C, C) of Phi W for objects with features (n, m). O(n C^2 m^2)."""

    def deviations(self, normal: Array) -> Array:
        """Draws (S, m, C) with this precision, of standard normal numbers (S, m, C)."""


class OfContrasts(Precision):
    """Precision A of the weights of one function, or exactly of several ones.

    With the contrasts H (C, C - 1) of classes and W_cd = -d_c d_d / sum(d), it is
    I + s sum_{c < d} (h_c - h_d)(h_c - h_d)' x Phi' diag(-W_cd) Phi. O(C^2 N m^2 + C^3 m^3).
    """

    def __init__(self, features: Features, sites: Sites, scale: float):
        self.problem = features, sites, scale
        self.n_features = len(features.squares)
        self.n_classes = sites.d.shape[1]
        self.contrasts = helmert(self.n_classes).T if sites.coupled else np.ones((1, 1))

    @cached_property
    def factor(self) -> Array:
        """Cholesky factor; a mode alone needs none."""
        features, sites, scale = self.problem
        size = self.contrasts.shape[1] * self.n_features
        matrix = np.zeros((self.contrasts.shape[1], self.n_features) * 2)
        for direction, weights in self._terms(sites):
            square = scale * features.weighted_square(weights)
            matrix += np.multiply.outer(np.outer(direction, direction), square).swapaxes(1, 2)
        matrix = matrix.reshape(size, size)
        matrix.flat[:: size + 1] += 1.0
        return cholesky(matrix)

    @property
    @override
    def log_det(self) -> float:
        return log_det(self.factor)

    def _terms(self, sites: Sites) -> Iterator[tuple[Array, Array]]:
        """Directions among the contrasts, and the weights (N,) of objects along them."""
        if not sites.coupled:
            yield self.contrasts[0], sites.d[:, 0]
            return
        for c in range(self.n_classes):
            for e in range(c):
                yield self.contrasts[c] - self.contrasts[e], sites.d[:, c] * sites.shares[:, e]

    def _split(self, b: Array) -> tuple[Array, Array]:
        """Contrasts of b (..., m, C), shape (size, S), and what all classes share of it."""
        contrasts = np.moveaxis(b @ self.contrasts, (-1, -2), (0, 1))
        flat = contrasts.reshape(len(self.factor), -1)
        return flat, b - b @ self.contrasts @ self.contrasts.T

    def _join(self, flat: Array, shared: Array) -> Array:
        contrasts = flat.reshape(self.contrasts.shape[1], self.n_features, *shared.shape[:-2])
        return np.moveaxis(contrasts, (0, 1), (-1, -2)) @ self.contrasts.T + shared

    @override
    def solve(self, b: Array) -> Array:
        flat, shared = self._split(b)
        return self._join(solve(self.factor, flat), shared)

    @cached_property
    def blocks(self) -> Array:
        """Inverse (C - 1, m, C - 1, m) of the precision of the contrasts."""
        shape = (self.contrasts.shape[1], self.n_features) * 2
        return inverse(self.factor).reshape(shape)

    @override
    def terms(self, p: Array) -> Iterator[Term]:
        if self.n_classes == 1:
            weights = p[:, 0] * (1.0 - p[:, 0])
            yield Term(self.blocks[0, :, 0], weights, weights[:, None] * (1.0 - 2.0 * p))
            return
        classes = np.eye(self.n_classes)
        for c in range(self.n_classes):
            for e in range(c):
                direction = self.contrasts[c] - self.contrasts[e]
                block = np.einsum("i,iajb,j->ab", direction, self.blocks, direction, optimize=True)
                weights = p[:, c] * p[:, e]
                yield Term(block, weights, weights[:, None] * (classes[c] + classes[e] - 2.0 * p))

    @override
    def covariances(self, values: Array) -> Array:
        n_contrasts = self.contrasts.shape[1]
        of_contrasts = np.empty((len(values), n_contrasts, n_contrasts))
        for i in range(n_contrasts):
            for j in range(i + 1):
                along = np.einsum("nm,nm->n", values @ self.blocks[i, :, j], values)
                of_contrasts[:, i, j] = of_contrasts[:, j, i] = along
        if self.n_classes == 1:
            return of_contrasts
        shared = np.einsum("nm,nm->n", values, values) / self.n_classes
        return self.contrasts @ of_contrasts @ self.contrasts.T + shared[:, None, None]

    @override
    def deviations(self, normal: Array) -> Array:
        flat, shared = self._split(normal)
        return self._join(solve_triangular(self.factor, flat, transposed=True), shared)


class ByClass(Precision):
    """Precision of the weights of each class given those of the others. O(C N m^2 + C m^3).

    `share` is that of each class's curvature whose objects are used, those of the largest ones.
    """

    def __init__(self, features: Features, sites: Sites, scale: float, share: float = 1.0):
        self.problem = features, sites, scale
        self.share = share

    @cached_property
    def factors(self) -> list[Array]:
        """Cholesky factors; a mode alone needs none of all objects."""
        features, sites, scale = self.problem
        factors = []
        for weights in sites.diagonal.T:
            used = weights if self.share == 1.0 else _heaviest(weights, self.share)
            matrix = scale * features.weighted_square(used)
            matrix.flat[:: len(matrix) + 1] += 1.0
            factors.append(cholesky(matrix))
        return factors

    @property
    @override
    def log_det(self) -> float:
        """Not less than that of all classes together (Fischer's inequality)."""
        return sum(map(log_det, self.factors))

    @override
    def solve(self, b: Array) -> Array:
        near = self.solve_by_class
        return conjugate_gradients(*self.problem, b, near, SOLVED, SOLUTION_STEPS, exact=True)

    def solve_by_class(self, b: Array) -> Array:
        """Solution (m, C) of each class alone, less what all classes share.

        For b that sum to zero over classes, as must then the solution: a matrix of each class alone
        is far too steep along what all share, and takes ten times as many steps without this.
        """
        parts = [solve(factor, b[:, c]) for c, factor in enumerate(self.factors)]
        solution = np.stack(parts, axis=1)
        return solution - solution.mean(axis=1, keepdims=True)

    @override
    def terms(self, p: Array) -> Iterator[Term]:
        coupled = p.shape[1] > 1
        for c, factor in enumerate(self.factors):
            own = p[:, [c]]
            weights = own * (1.0 - own)
            slopes = (np.arange(p.shape[1]) == c) - p if coupled else 1.0 - own
            yield Term(inverse(factor), weights[:, 0], own * (1.0 - 2.0 * own) * slopes)

    @override
    def covariances(self, values: Array) -> Array:
        return self.variances(values, 1.0)[:, :, None] * np.eye(len(self.factors))

    @override
    def deviations(self, normal: Array) -> Array:
        parts = [
            solve_triangular(factor, normal[..., c].T, transposed=True).T
            for c, factor in enumerate(self.factors)
        ]
        return np.stack(parts, axis=-1)

    def variances(self, values: Array, scale: float) -> Array:
        """Variances (n, C) of the scores of objects with features (n, m)."""
        own = [np.einsum("mn,mn->n", half, half) for half in self.halves(values)]
        return scale * np.stack(own, axis=1)

    def halves(self, values: Array) -> Iterator[Array]:
        """For each class an array (m, n) whose products of columns are covariances, unscaled."""
        return (solve_triangular(factor, values.T) for factor in self.factors)


def _heaviest(weights: Array, share: float) -> Array:
    """Weights without the smallest ones, which leave this share of the sum."""
    falling = np.argsort(-weights)
    totals = weights[falling].cumsum()
    kept = falling[: np.searchsorted(totals, share * totals[-1]) + 1]
    heaviest = np.zeros_like(weights)
    heaviest[kept] = weights[kept]
    return heaviest


def conjugate_gradients(
    features: Features,
    sites: Sites,
    scale: float,
    b: Array,
    near: Solver | None = None,
    rest: float = GRADIENT_REST,
    steps: int = GRADIENT_STEPS,
    *,
    exact: bool = False,
) -> Array:
    """A^-1 b (m, C), nearly, conditioned by solutions with a similar matrix.

    By default this is diagonal, as if objects had their mean curvature.
    """
    # What all classes share of b is its own solution; the rest sums to zero over the classes.
    split = near is not None and sites.coupled
    shared = b.mean(axis=1, keepdims=True) if split else 0.0
    near = near or with_mean_curvature(features, sites, scale)
    x = np.zeros_like(b) + shared
    residual = b - shared
    direction = near(residual)
    norm = first = float((residual * direction).sum())
    for _ in range(steps):
        if norm <= rest * first:
            break
        image = scale * features.curvature(sites, direction, exact=exact) + direction
        share = norm / float((direction * image).sum())
        x = x + share * direction
        residual = residual - share * image
        scaled = near(residual)
        before = norm
        norm = float((residual * scaled).sum())
        direction = scaled + norm / before * direction
    return x


def with_mean_curvature(features: Features, sites: Sites, scale: float) -> Solver:
    """Solve by class as if all objects had the mean curvature."""
    diagonal = 1.0 + scale * features.squares[:, None] * sites.diagonal.mean(axis=0)
    return lambda b: b / diagonal


def is_joint(features: Features, likelihood: Likelihood, most_coupled: int | None = None) -> bool:
    """Whether the weights of all functions are factorised together."""
    n_functions = likelihood.shape[1]
    most = COUPLED if most_coupled is None else most_coupled
    return n_functions == 1 or (n_functions - 1) * len(features.squares) <= most


def kind_of(
    features: Features, likelihood: Likelihood, most_coupled: int | None = None
) -> type[OfContrasts | ByClass]:
    """Class of the precision that serves so many weights."""
    return OfContrasts if is_joint(features, likelihood, most_coupled) else ByClass
