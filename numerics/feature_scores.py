r"""Scores of many objects as weighted features: Laplace's method and normal targets.

The scores :math:`f_c = \sqrt s\, \Phi w_c` of C functions have independent weights
:math:`w_c \sim \mathcal N(0, I)` a priori, so that their covariance is :math:`s \Phi\Phi'`. With
the kernels of N objects and M landmarks, :math:`\Phi\Phi' = K_{nm} K_{mm}^{-1} K_{mn}`, the
covariance of the projected process (Quinonero-Candela & Rasmussen 2005, section 5); it is the
kernel itself if all objects are landmarks. The features are in the basis of the eigenvectors of
:math:`\Phi'\Phi`: normal targets have closed forms there, for every scale and noise, and the
curvature of other likelihoods is nearly diagonal.

Several functions have a softmax. The likelihood knows only their differences, so that the sum of
the functions keeps its prior. The others are C - 1 orthonormal contrasts of classes, whose joint
precision is factorised where it is small (`COUPLED`); otherwise the precision of each class given
the other classes stands for it, and conditions the conjugate gradients that find the mode.

============== ================================================== ======================
symbol         meaning                                            code
============== ================================================== ======================
Phi            features of objects                                ``values`` (N, m)
lambda         eigenvalues of Phi'Phi                             ``squares`` (m,)
W              weights of features                                ``W`` (m, C)
s              variance of the functions                          ``scale``
D              curvature of the log likelihood, as `Sites`        ``sites``
A              precision of W, I + s Phi' D Phi                   `Precision`
============== ================================================== ======================
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self, override

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, helmert

from .gaussian_process import Array, cholesky, inverse, log_det, solve, solve_triangular
from .gaussian_scores import NEWTON_STEPS, SHARES, Likelihood, Sites

#: Solutions (m, C) of right sides (m, C).
type Solver = Callable[[Array], Array]

#: Least eigenvalue of Phi'Phi that is kept, relative to the largest one: the data say nothing of
#: the features below it, whose weights keep their prior.
LEAST_SQUARE = 1e-13
#: Largest number of contrasts' weights, (C - 1) m, that are factorised together.
COUPLED = 1000
#: Increase of the log posterior, in nats an object, after which Newton's method ends.
NEWTON_NATS = 1e-7
#: Objects of whom there are so many that Newton's method begins at the mode of some of them, whose
#: precision stands for that of all in its steps, and the number of these: with half of them, 17
#: rather than 10 products with 100,000 simulated objects of two classes.
MANY_OBJECTS = 50_000
FIRST = 20_000
#: Steps of conjugate gradients within one of Newton's, and the squared norm of the residual,
#: relative to the first one, that ends them.
GRADIENT_STEPS = 20
GRADIENT_REST = 1e-2
#: Share of the curvature of a class whose objects make the matrix that conditions gradients: of the
#: letters a twentieth of all objects, with 5 steps to the rest above; with all objects 3 steps, and
#: seven times the time for the matrix. The increase of the log posterior, in nats an object, after
#: which the matrix is kept: the curvature hardly changes from there.
SHARE_OF_CURVATURE = 0.95
SETTLED = 1e-3
#: The same as above of solutions that derivatives need.
SOLVED = 1e-14
SOLUTION_STEPS = 500
#: Numbers in the features from which their weighted squares, O(N m^2), are in single precision: it
#: saves 40 % of a fit, with the same log evidence to four decimals.
SINGLE_PRECISION_NUMBERS = 500_000
#: Least share of an object's precision that the others are taken to leave, in left-out scores.
LEAST_REST = 0.02


class Features:
    """Features of objects in the eigenbasis of Phi'Phi.

    Parameters
    ----------
    values : array (N, m)
    map : array (M, m)
        k(x, landmarks) @ map are the features of an object x.
    rotation : array (M, m)
        Orthonormal columns V: the features are K_nm L^-T V, with LL' = K_mm.
    squares : array (m,)
        Eigenvalues of Phi'Phi, ascending.
    """

    def __init__(self, values: Array, map: Array, rotation: Array, squares: Array):
        self.values = values
        self.map = map
        self.rotation = rotation
        self.squares = squares

    @cached_property
    def factor(self) -> NDArray[np.floating]:
        """The features as factors of weighted squares, see `SINGLE_PRECISION_NUMBERS`."""
        return (
            self.values.astype(np.float32)
            if self.values.size >= SINGLE_PRECISION_NUMBERS
            else self.values
        )

    def weighted_square(self, weights: Array) -> Array:
        """Phi' diag(weights) Phi (m, m), for weights (N,) that are not negative.

        O(N m^2), with N the number of weights that are not zero.
        """
        rows = np.flatnonzero(weights)
        # To take most of the rows would be slower than to use all.
        chosen = rows if 2 * len(rows) < len(weights) else slice(None)
        roots = np.sqrt(weights[chosen]).astype(self.factor.dtype)
        half = self.factor[chosen] * roots[:, None]
        return (half.T @ half).astype(float)

    def curvature(self, sites: Sites, W: Array, *, exact: bool = False) -> Array:
        """Phi' D Phi W (m, C), of many numbers in single precision unless exact. O(N m C)."""
        values: Any = self.values if exact else self.factor
        of_values = Sites(sites.d.astype(values.dtype, copy=False))
        curved = of_values.apply(values @ W.astype(values.dtype, copy=False))
        return (values.T @ curved).astype(float, copy=False)

    def times(self, W: Array) -> Array:
        """Phi W (N, C)."""
        return self.values @ W

    def transposed_times(self, b: Array) -> Array:
        """Phi' b (m, C)."""
        return self.values.T @ b

    def of_rows(self, rows: NDArray[np.intp]) -> "Features":
        """Features of some objects; in their eigenbasis, if they are as the others."""
        values = self.values[rows]
        return Features(values, self.map, self.rotation, np.square(values).sum(axis=0))

    @classmethod
    def of_landmarks(cls, K_nm: Array, K_mm: Array, least: float = LEAST_SQUARE) -> Self:
        """Features K_nm L^-T V of kernels (N, M) and (M, M). O(N M^2).

        Raises NotPositiveDefiniteError for a K_mm without a Cholesky factor.
        """
        factor = cholesky(K_mm)
        # From K_nm'K_nm instead, small eigenvalues would be lost.
        half = solve_triangular(factor, K_nm.T)
        squares, rotation = kept_eigenvectors(half @ half.T, least)
        mapped = solve_triangular(factor, rotation, transposed=True)
        return cls(half.T @ rotation, mapped, rotation, squares)

    @classmethod
    def of_gram(cls, K: Array, least: float = LEAST_SQUARE) -> Self:
        """Features of all objects of a Gram matrix (N, N), each of them a landmark. O(N^3).

        The rotation is relative to the symmetric square root of K.
        """
        squares, rotation = kept_eigenvectors(K, least)
        roots = np.sqrt(squares)
        return cls(rotation * roots, rotation / roots, rotation, squares)

    def gradient(self, pulled: Array) -> tuple[Array, Array]:
        """Gradients with respect to K_nm (N, M) and K_mm (M, M) by that of the covariance.

        `pulled` (N, m) is G Phi, if G (N, N) is the gradient with respect to Phi Phi' scaled, and
        the kernels are scaled alike. O(N m M).
        """
        of_landmarks = self.map @ (self.values.T @ pulled) @ self.map.T
        return 2.0 * pulled @ self.map.T, -(of_landmarks + of_landmarks.T) / 2

    def whitened(self, W: Array, normal: Array) -> Array:
        """Scores v (S, M, C) with f = sqrt(s) K_nm L^-T v, of weights (S, m, C).

        The directions that are not among the features have the standard `normal` scores (S, M, C).
        """
        return normal + self.rotation @ (W - self.rotation.T @ normal)


def kept_eigenvectors(matrix: Array, least: float = LEAST_SQUARE) -> tuple[Array, Array]:
    """Eigenvalues of a matrix that are not negligible, and their eigenvectors."""
    values, vectors = eigh(matrix, driver="evd", check_finite=False)
    keep = values > least * values[-1]
    return values[keep], vectors[:, keep]


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
        return _conjugate_gradients(*self.problem, b, near, SOLVED, SOLUTION_STEPS, exact=True)

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
        halves = (solve_triangular(factor, values.T) for factor in self.factors)
        return scale * np.stack([np.einsum("mn,mn->n", half, half) for half in halves], axis=1)


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
        precision = _kind(features, likelihood)(features, sites, scale)
        return cls(features, likelihood, scale, a, W, mean, sites, precision)

    @classmethod
    def of_sites(
        cls, features: Features, likelihood: Likelihood, scale: float, sites: Sites, b: Array
    ) -> Self:
        """Approximation with sites exp(b'f - f'W f / 2), b (N, C), of objects."""
        root = np.sqrt(scale)
        precision = _kind(features, likelihood)(features, sites, scale)
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

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variances (N, C) of the scores of each object given all others. O(C N m^2).

        The normal approximation of the object's likelihood is divided out: exact for one function,
        and of several ones by class, given the other classes' scores.
        """
        variances = self.by_class.variances(self.features.values, self.scale)
        rest = np.maximum(1.0 - self.sites.diagonal * variances, LEAST_REST)
        return self.mean - variances * self.a / rest, variances / rest

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
    kind = _kind(features, likelihood, most_coupled)
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
            step = _conjugate_gradients(features, sites, scale, gradient, near)
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
        settled = gain < SETTLED * n_objects
        if gain < tolerance * n_objects:
            break
    p = likelihood.probabilities(f)
    sites = Sites.at(p)
    precision = kind(features, sites, scale)
    return FeatureScores(features, likelihood, scale, observed - p, W, f, sites, precision, top)


def is_joint(features: Features, likelihood: Likelihood, most_coupled: int | None = None) -> bool:
    """Whether the weights of all functions are factorised together."""
    n_functions = likelihood.shape[1]
    most = COUPLED if most_coupled is None else most_coupled
    return n_functions == 1 or (n_functions - 1) * len(features.squares) <= most


def _kind(
    features: Features, likelihood: Likelihood, most_coupled: int | None = None
) -> type[OfContrasts | ByClass]:
    return OfContrasts if is_joint(features, likelihood, most_coupled) else ByClass


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


def _with_mean_curvature(features: Features, sites: Sites, scale: float) -> Solver:
    """Solve by class as if all objects had the mean curvature."""
    diagonal = 1.0 + scale * features.squares[:, None] * sites.diagonal.mean(axis=0)
    return lambda b: b / diagonal


def _heaviest(weights: Array, share: float) -> Array:
    """Weights without the smallest ones, which leave this share of the sum."""
    falling = np.argsort(-weights)
    totals = weights[falling].cumsum()
    kept = falling[: np.searchsorted(totals, share * totals[-1]) + 1]
    heaviest = np.zeros_like(weights)
    heaviest[kept] = weights[kept]
    return heaviest


def _conjugate_gradients(
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
    near = near or _with_mean_curvature(features, sites, scale)
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


@dataclass(frozen=True)
class ProjectedTargets:
    """Normal targets of objects, and what all scales and noises need of them.

    Attributes
    ----------
    features : Features
    targets : array (N, P)
    """

    features: Features
    targets: Array

    @cached_property
    def projections(self) -> Array:
        """Phi' t (m, P). O(N m P)."""
        return self.features.transposed_times(self.targets)

    @cached_property
    def sums_of_squares(self) -> Array:
        """Sums of squares of the targets (P,)."""
        return np.einsum("np,np->p", self.targets, self.targets)


@dataclass(frozen=True)
class NormalFeatureScores:
    """Posterior of the weights given targets t_o ~ N(f_o, noise_o I); exact.

    Each weight is independent of the others, since Phi'Phi is diagonal.

    Parameters
    ----------
    of : ProjectedTargets
    scale : float
    noise : array (P,)
        Variances.
    """

    of: ProjectedTargets
    scale: float
    noise: Array

    @cached_property
    def totals(self) -> Array:
        """Variances s lambda + noise (m, P) of the targets along the eigenvectors."""
        return self.scale * self.of.features.squares[:, None] + self.noise

    @cached_property
    def W(self) -> Array:
        """Mean of the weights (m, P)."""
        return np.sqrt(self.scale) * self.of.projections / self.totals

    @property
    def variances(self) -> Array:
        """Variances of the weights (m, P)."""
        return self.noise / self.totals

    @property
    def log_evidence(self) -> float:
        """Log density of the targets. O(m P)."""
        n_objects = len(self.of.targets)
        explained = self.scale * (self.of.projections**2 / self.totals).sum(axis=0)
        squares = (self.of.sums_of_squares - explained) / self.noise
        determinants = np.log(self.totals / self.noise).sum(axis=0)
        constants = n_objects * np.log(2 * np.pi * self.noise)
        return -0.5 * float((squares + determinants + constants).sum())

    def gradient(self) -> tuple[float, Array]:
        """Gradient of the log evidence with respect to the scale and the noises (P,). O(m P)."""
        squares = self.of.features.squares[:, None]
        projections = self.of.projections
        totals = self.totals
        of_scale = 0.5 * float(((projections / totals) ** 2 - squares / totals).sum())
        explained = self.scale * projections**2 / totals
        fits = (self.of.sums_of_squares - explained.sum(axis=0)) / self.noise
        fits -= (explained / totals).sum(axis=0)
        determinants = len(self.of.targets) - (self.scale * squares / totals).sum(axis=0)
        return of_scale, 0.5 * (fits - determinants) / self.noise

    def gradient_of_covariance(self) -> Array:
        """Gradient of the log evidence with respect to s Phi Phi' (N, N), times Phi. O(N m P)."""
        values = self.of.features.values
        projections = self.of.projections / self.totals
        a = (self.of.targets - np.sqrt(self.scale) * (values @ self.W)) / self.noise
        return 0.5 * (a @ projections.T - values * (1.0 / self.totals).sum(axis=1))

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variance (N, P) of every target given all others. O(N m P).

        Residuals and variances are divided by what the object's own leverage leaves.
        """
        values = self.of.features.values
        leverages = values**2 @ (self.scale / self.totals)
        residuals = self.of.targets - np.sqrt(self.scale) * (values @ self.W)
        rest = 1.0 - leverages
        return self.of.targets - residuals / rest, self.noise / rest

    def draw(self, number: int, rng: np.random.Generator) -> Array:
        """Draws of the weights (draw, m, P)."""
        normal = rng.standard_normal((number, *self.W.shape))
        return self.W + np.sqrt(self.variances) * normal
