"""Scores of many objects as weighted features: Laplace's method.

Symbols are those of `features`.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .feature_precision import (
    ByClass,
    OfContrasts,
    Precision,
    Solver,
    conjugate_gradients,
    kind_of,
)
from .features import Features
from .gaussian_process import Array
from .gaussian_scores import NEWTON_STEPS, SHARES, Sites
from .groups import Groups, rows_by_size
from .likelihoods import Likelihood

#: Increase of the log posterior, in nats an object, after which Newton's method ends.
NEWTON_NATS = 1e-7
#: Objects of whom there are so many that Newton's method begins at the mode of some of them, whose
#: precision stands for that of all in its steps, and the number of these: with half of them, 17
#: rather than 10 products with 100,000 simulated objects of two classes.
MANY_OBJECTS = 50_000
FIRST = 20_000
#: Share of the curvature of a class whose objects make the matrix that conditions gradients: of the
#: letters a twentieth of all objects, with 5 steps to the rest above; with all objects 3 steps, and
#: seven times the time for the matrix.
SHARE_OF_CURVATURE = 0.95
#: Increase of the log posterior, in nats an object, after which this matrix is kept: the curvature
#: hardly changes from there.
SETTLED_NATS = 1e-3
#: Least share of an object's precision that the others are taken to leave, in left-out scores.
LEAST_REST = 0.02


@dataclass(frozen=True)
class FeatureScores:
    """Normal approximation of the weights, at their posterior mode or the best one.

    Attributes
    ----------
    features : Features
    likelihood : Likelihood
    scale : float
    a : array (N, C)
        W = sqrt(s) Phi'a; residuals at the mode.
    W : array (m, C)
        Mean of the weights.
    mean : array (N, C)
        Scores there.
    sites : Sites
    precision : Precision
    height : float
        Log density of observations and weights at the mode, but for the prior's constant; NaN if
        this is not the mode.
    evidence : float, optional
        Log evidence, where it is not Laplace's approximation at the mode.
    """

    features: Features
    likelihood: Likelihood
    scale: float
    a: Array
    W: Array
    mean: Array
    sites: Sites
    precision: Precision
    height: float = np.nan
    evidence: float | None = None

    @property
    def log_evidence(self) -> float:
        """Laplace's approximation, of many classes a lower one, see `ByClass`; or `evidence`."""
        return self.height - 0.5 * self.log_det if self.evidence is None else self.evidence

    def with_evidence(self, log_evidence: float) -> Self:
        """Approximation with another value of its evidence."""
        return replace(self, evidence=log_evidence)

    @property
    def log_det(self) -> float:
        """Log determinant of the precision."""
        return self.precision.log_det

    @property
    def squares(self) -> float:
        """Sum of squares of the mean weights."""
        return float(np.square(self.W).sum())

    def covariances(self) -> Array:
        """Covariances (N, C, C) of the scores of each object."""
        return self.scale * self.precision.covariances(self.features.values)

    def without_matrices(self) -> tuple[Array, Array]:
        """Return a and d (N, C), of which `with_matrices` makes the approximation again."""
        return self.a, self.sites.d

    @classmethod
    def with_matrices(
        cls, features: Features, likelihood: Likelihood, scale: float, a: Array, d: Array
    ) -> Self:
        """Approximation of a and d; its evidence is NaN."""
        sites = Sites(d)
        root = np.sqrt(scale)
        W = root * features.transposed_times(a)
        mean = root * features.times(W)
        precision = kind_of(features, likelihood)(features, sites, scale)
        return cls(features, likelihood, scale, a, W, mean, sites, precision)

    @classmethod
    def of_sites(
        cls, features: Features, likelihood: Likelihood, scale: float, sites: Sites, b: Array
    ) -> Self:
        """Approximation with sites exp(b'f - f'W f / 2), b (N, C), of objects."""
        root = np.sqrt(scale)
        precision = kind_of(features, likelihood)(features, sites, scale)
        W = precision.solve(root * features.transposed_times(b))
        mean = root * features.times(W)
        a = b - sites.apply(mean)
        return cls(features, likelihood, scale, a, W, mean, sites, precision)

    def gradient(self) -> Array:
        """Gradient of Laplace's log evidence with respect to the covariance, times Phi (N, m).

        The covariance is s Phi Phi' (N, N). Rasmussen & Williams (2006), section 5.5.1. O(N m^2)
        for each of the `Precision.terms`.
        """
        values = self.features.values
        slope = np.zeros_like(self.a)
        curved = np.zeros_like(values)
        for block, weights, slopes in self.precision.terms(
            self.likelihood.probabilities(self.mean)
        ):
            along = values @ block
            # The mode moves with the covariance, and the determinant with the mode.
            slope -= 0.5 * self.scale * np.einsum("nm,nm->n", along, values)[:, None] * slopes
            curved += weights[:, None] * along
        moved = values @ self.precision.solve(values.T @ slope)
        moved = slope - self.scale * self.sites.apply(moved)
        explicit = (self.a + moved) @ (self.a.T @ values)
        return 0.5 * (explicit + self.a @ (moved.T @ values) - curved)

    def log_ratios(self, normal: Array) -> tuple[Array, Array]:
        """Draws W (S, m, C), and log p(t | W) p(W) / q(W) (S,), of standard `normal` numbers."""
        deviations = self.precision.deviations(normal)
        W = self.W + deviations
        f = np.sqrt(self.scale) * np.tensordot(self.features.values, W, axes=(1, 1))
        log_likelihood = self.likelihood.log_density(f.swapaxes(0, 1)).sum(axis=1)
        squares = np.square(normal).sum(axis=(1, 2)) - np.square(W).sum(axis=(1, 2))
        return W, log_likelihood + 0.5 * (squares - self.precision.log_det)

    @cached_property
    def by_class(self) -> ByClass:
        """Precision of the weights of each class given the others."""
        if isinstance(self.precision, ByClass):
            return self.precision
        return ByClass(self.features, self.sites, self.scale)

    def scores_of(self, values: Array) -> tuple[Array, Array]:
        """Mean and variances (n, C) of the scores of objects with features (n, m). O(n C m^2).

        The variance of a class is that given the scores of the other classes. What the features
        leave of the variance of an object is not in it.
        """
        return np.sqrt(self.scale) * (values @ self.W), self.by_class.variances(values, self.scale)

    def left_out(self, groups: Groups | None = None) -> tuple[Array, Array]:
        """Mean and variances (N, C) of the scores of each object given all others. O(C N m^2).

        The normal approximation of the object's likelihood is divided out: exact for one function,
        and of several ones by class, given the other classes' scores. With `groups` (N,), those of
        all objects of its group are: O(C n^3) more for each group of n objects.
        """
        if groups is not None:
            return self._groups_left_out(groups)
        variances = self.by_class.variances(self.features.values, self.scale)
        rest = np.maximum(1.0 - self.sites.diagonal * variances, LEAST_REST)
        return self.mean - variances * self.a / rest, variances / rest

    def _groups_left_out(self, groups: Groups) -> tuple[Array, Array]:
        mean = self.mean.copy()
        variances = np.empty_like(mean)
        same_size = rows_by_size(groups)
        for c, half in enumerate(self.by_class.halves(self.features.values)):
            for rows in same_size:
                members = half.T[rows]
                V = self.scale * members @ members.swapaxes(-1, -2)
                # (V^-1 - D)^-1 = V + V D^.5 (I - D^.5 V D^.5)^-1 D^.5 V, also where D is zero.
                roots = np.sqrt(self.sites.diagonal[rows, c])
                taken, vectors = np.linalg.eigh(roots[..., None] * V * roots[..., None, :])
                rest = np.maximum(1.0 - taken, LEAST_REST)
                along = V @ (roots[..., None] * vectors)
                wider = V + (along / rest[..., None, :]) @ along.swapaxes(-1, -2)
                mean[rows, c] -= np.einsum("gij,gj->gi", wider, self.a[rows, c])
                variances[rows, c] = np.diagonal(wider, axis1=-2, axis2=-1)
        return mean, variances

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Draws of the weights (draw, m, C), of many classes each given the others."""
        return self.W + self.precision.deviations(rng.standard_normal((number, *self.W.shape)))


def laplace(
    features: Features,
    likelihood: Likelihood,
    scale: float,
    start: Array | None = None,
    *,
    most_coupled: int | None = None,
    tolerance: float = NEWTON_NATS,
    rough: bool = False,
) -> FeatureScores:
    """Find the mode of the weights by Newton's method, and Laplace's evidence.

    Parameters
    ----------
    features : Features
    likelihood : Likelihood
    scale : float
    start : array (m, C), optional
        Weights to begin with, such as those of a similar scale.
    most_coupled : int, optional
        Largest number of several functions' weights that are factorised together. Default: 1,000.
    tolerance : float, default=1e-7
        Increase of the log posterior, in nats an object, after which Newton's method ends.
    rough : bool, default=False
        Condition conjugate gradients by the objects' mean curvature alone: of a few hundred objects
        cheaper, but short of the mode where the curvature differs much.

    Raises
    ------
    NotPositiveDefiniteError

    Notes
    -----
    An iteration costs O(C^2 N m^2 + C^3 m^3) where all classes are factorised together, otherwise,
    and of `MANY_OBJECTS`, O(C N m) for each step of conjugate gradients, and O(C m^3) and squares
    of some objects' features for what conditions them. See Rasmussen & Williams (2006), section
    3.4. The precision of all objects is computed where it is read.
    """
    n_objects, n_functions = likelihood.shape
    kind = kind_of(features, likelihood, most_coupled)
    root = np.sqrt(scale)
    some: _Some | None = None
    if n_objects >= MANY_OBJECTS:
        # At random, since classes may alternate.
        rows = np.sort(np.random.default_rng(0).choice(n_objects, FIRST, replace=False))
        some = _Some(rows, features.of_rows(rows))
        if start is None:
            those = likelihood.of_rows(rows)
            start = laplace(some.features, those, scale, most_coupled=most_coupled).W
    W = np.zeros((len(features.squares), n_functions)) if start is None else start

    def height(W: Array, f: Array) -> float:
        return float(likelihood.log_density(f).sum()) - 0.5 * float(np.square(W).sum())

    f = root * features.times(W)
    heights = [height(share * W, share * f) for share in SHARES] if start is not None else [-np.inf]
    best = int(np.argmax(heights))
    W = SHARES[best] * W
    f = SHARES[best] * f
    top = height(W, f)
    observed = likelihood.observed
    # At scores of zero all objects have the same curvature.
    near: Solver | None = None
    diagonal = rough or start is None
    settled = False
    for _ in range(NEWTON_STEPS):
        p = likelihood.probabilities(f)
        gradient = root * features.transposed_times(observed - p) - W
        sites = Sites.at(p)
        if kind is OfContrasts and some is None:
            step = OfContrasts(features, sites, scale).solve(gradient)
        else:
            if not diagonal and (near is None or not settled):
                near = _conditioner(kind, features, some, sites, scale)
            step = conjugate_gradients(features, sites, scale, gradient, near)
            diagonal = rough
        along = root * features.times(step)
        size_of_step = 1.0
        before = top
        while (new := height(W + size_of_step * step, f + size_of_step * along)) < before:
            size_of_step /= 2
            if size_of_step < 1e-8:
                break
        else:
            W = W + size_of_step * step
            f = f + size_of_step * along
            top = new
        gain = top - before
        settled = gain < SETTLED_NATS * n_objects
        if gain < tolerance * n_objects:
            break
    p = likelihood.probabilities(f)
    sites = Sites.at(p)
    precision = kind(features, sites, scale)
    return FeatureScores(features, likelihood, scale, observed - p, W, f, sites, precision, top)


@dataclass(frozen=True)
class _Some:
    """Some of many objects: their rows, and their features in the basis of those of all."""

    rows: NDArray[np.intp]
    features: Features

    def sites(self, sites: Sites) -> Sites:
        """Curvature of these objects that stands for that of all."""
        return Sites(sites.d[self.rows] * (len(sites.d) / len(self.rows)))


def _conditioner(
    kind: type[OfContrasts | ByClass],
    features: Features,
    some: _Some | None,
    sites: Sites,
    scale: float,
) -> Solver:
    """Solve nearly with the precision, for which its largest parts are enough."""
    if some is not None:
        features = some.features
        sites = some.sites(sites)
    if kind is OfContrasts:
        return OfContrasts(features, sites, scale).solve
    return ByClass(features, sites, scale, SHARE_OF_CURVATURE).solve_by_class
