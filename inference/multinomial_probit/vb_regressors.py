r"""q(W) of the marginal scheme: one normal distribution of the regressors of all classes.

Given E[1/zeta] (C, M) and the composite kernel K, the regressors w_c are normal a priori, and the
likelihood of the scores K w_c is replaced by a normal one of each object: a site, with the
precision diag(d) - d d' / sum(d) over the classes and the linear term b (see
`numerics.gaussian_scores`). Classes are coupled: the precision of W is the prior's, plus

    K' diag(d_c) K 1(c = e) - sum_n k_n k_n' d_nc d_ne / sum_c d_nc.

Two classes have one site each, of the contrast D = w_1 - w_0: given D, W does not depend on the
data, so that one Cholesky factor of order M suffices. More classes take C + 1 factors: the second
term has rank N, and is added by Woodbury's formula.

`spread` (M, M) is a term that the uncertainty of the kernels adds to the precision: of D, half of
it, and of every w_c.
"""

from copy import copy
from functools import cached_property
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from ...numerics.expected_probit import (
    Codes,
    ExpectedProbit,
    expected_contrast,
    expected_scores,
)
from ...numerics.gaussian_scores import Sites
from ..variational.factors import precision_factor

type Array = NDArray[np.float64]

LOG_2PI = float(np.log(2 * np.pi))


class Regressors(Protocol):
    """q(W) for one composite kernel K (N, M).

    Attributes
    ----------
    mean, variance : array (C, M)
    log_det : float
        Log determinant of the covariance of W.
    """

    mean: Array
    variance: Array
    log_det: float

    def expected(self, codes: Codes) -> ExpectedProbit:
        """Average the log likelihood of class codes (N,)."""

    def sites(self, expected: ExpectedProbit) -> tuple[Array, Array]:
        """Sites d, b (N, F) that the expectations call for."""

    def scaled(self, square: float) -> Self:
        """Distribution of W times the root of a number."""

    def slope_of_scale(self, expected: ExpectedProbit) -> float:
        """Differentiate the expected log likelihood with respect to the log of that number."""

    def moment(self) -> Array:
        """E[W'W] (M, M) of the regressors, or half of E[DD'] of two classes."""

    def target(self, expected: ExpectedProbit) -> Array:
        """T (N, M) with <K_s, T> the sum over the objects of E[g_n' W k_sn]."""

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws (draw, C, M) and log densities (draw,)."""


def regressors(
    K: Array, precision: Array, d: Array, b: Array, spread: Array | None = None
) -> Regressors:
    """Make q(W) of the `precision` (C, M) of the prior and of sites d, b (N, 1 or C).

    LinAlgError when a covariance is numerically singular.
    """
    return (Contrast if len(precision) == 2 else Coupled)(K, precision, d, b, spread)


def _gram(K: Array, d: Array) -> Array:
    """Upper triangle of K' diag(d) K (M, M), in Fortran order."""
    return blas.dsyrk(1.0, (np.sqrt(d)[:, None] * K).T)


def _inverse(factor: Array) -> Array:
    """Inverse of a lower triangular matrix."""
    return lapack.dtrtri(factor, lower=1)[0]


class Contrast:
    """q(W) for two classes; O(N M^2 + M^3). The arguments are those of `regressors`."""

    def __init__(self, K: Array, precision: Array, d: Array, b: Array, spread: Array | None):
        self.K = K
        prior = 1 / precision
        total = prior.sum(axis=0)
        #: Parts of D that w_0 and w_1 have in the mean.
        self.shares = np.array([[-1.0], [1.0]]) * prior / total
        #: Variances of W given D, the same for both classes.
        self.rest = prior[0] * prior[1] / total
        gram = _gram(K, d[:, 0])
        if spread is not None:
            gram += spread / 2
        factor, pivots = precision_factor(gram, 1 / total)
        self.root = _inverse(factor)
        self.log_det = float(np.log(self.rest).sum() - 2 * np.log(pivots).sum())
        self.contrast = self.root.T @ (self.root @ (K.T @ b[:, 0]))
        self.mean = self.shares * self.contrast
        self.variance = self.shares**2 * np.square(self.root).sum(axis=0) + self.rest

    @cached_property
    def turned(self) -> Array:
        """L^-1 K' (M, N), where D has the precision LL'."""
        return self.root @ self.K.T

    @cached_property
    def scores(self) -> Array:
        """Means (N,) of the contrasts of the scores."""
        return self.K @ self.contrast

    @property
    def covariance(self) -> Array:
        """Variances (N, 1, 1) of the contrasts of the scores."""
        return np.square(self.turned).sum(axis=0)[:, None, None]

    def expected(self, codes: Codes) -> ExpectedProbit:
        """See `Regressors`."""
        return expected_contrast(codes, self.scores, self.covariance[:, 0, 0])

    def scaled(self, square: float) -> "Contrast":
        """See `Regressors`."""
        new = copy(self)
        for name in ("root", "turned", "contrast", "scores", "mean"):
            setattr(new, name, getattr(self, name) * np.sqrt(square))
        new.rest = self.rest * square
        new.variance = self.variance * square
        new.log_det = self.log_det + self.mean.size * float(np.log(square))
        return new

    def slope_of_scale(self, expected: ExpectedProbit) -> float:
        """See `Regressors`."""
        return _slope_of_scale(expected, self.scores[:, None], self.covariance)

    def sites(self, expected: ExpectedProbit) -> tuple[Array, Array]:
        """See `Regressors`."""
        return _sites(expected.curvature[:, 0], self.scores[:, None], expected.gradient)

    def moment(self) -> Array:
        """See `Regressors`."""
        return (self.root.T @ self.root + np.outer(self.contrast, self.contrast)) / 2

    def target(self, expected: ExpectedProbit) -> Array:
        """See `Regressors`."""
        crossed = self.turned.T @ self.root
        return expected.gradient * self.contrast - expected.curvature[:, 0] * crossed

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Regressors`."""
        of_contrast, of_rest = noise = rng.standard_normal((2, draws, len(self.contrast)))
        contrast = self.contrast + of_contrast @ self.root
        W = self.shares[:, None] * contrast + np.sqrt(self.rest) * of_rest
        square = np.square(noise).sum(axis=(0, 2))
        log_q = -0.5 * (square + self.log_det) - self.mean.size * LOG_2PI / 2
        return W.transpose(1, 0, 2), log_q


class Coupled:
    """q(W) for more classes; O(C (M + N)^3). The arguments are those of `regressors`.

    `roots` are the inverses of the factors L_c of the blocks of the precision without its second
    term; that term's are F F', so that the covariance of w_c and w_e is L_c'^-1 L_c^-1 1(c = e) +
    L_c'^-1 J_c J_e' L_e^-1 with the `shared` J_c (M, N).
    """

    def __init__(self, K: Array, precision: Array, d: Array, b: Array, spread: Array | None):
        self.K = K
        self.precision = precision
        self.own = Sites(d)
        self.spread = spread
        rest = np.asfortranarray(np.diag(self.own.total))
        self.roots = []
        self.turned = []
        self.log_det = float(np.log(self.own.total).sum())
        for of_class, weights in zip(precision, d.T, strict=True):
            gram = _gram(K, weights)
            if spread is not None:
                gram += spread
            factor, pivots = precision_factor(gram, of_class)
            self.log_det -= 2 * float(np.log(pivots).sum())
            self.roots.append(_inverse(factor))
            self.turned.append(self.roots[-1] @ K.T)
            weighted = self.turned[-1] * weights
            rest = blas.dsyrk(-1.0, weighted.T, beta=1.0, c=rest, overwrite_c=1)
        factor, pivots = precision_factor(rest, np.zeros(len(K)))
        self.log_det -= 2 * float(np.log(pivots).sum())
        self.rest = _inverse(factor)
        self.shared = [
            (turned * weights) @ self.rest.T
            for turned, weights in zip(self.turned, d.T, strict=True)
        ]
        self.mean, self.variance = self._moments(b)

    def _moments(self, b: Array) -> tuple[Array, Array]:
        """Mean and variance (C, M)."""
        halves = [turned @ of_class for turned, of_class in zip(self.turned, b.T, strict=True)]
        along = sum(J.T @ half for J, half in zip(self.shared, halves, strict=True))
        mean = []
        variance = []
        for root, J, half in zip(self.roots, self.shared, halves, strict=True):
            mean.append(root.T @ (half + J @ along))
            square = np.square(root).sum(axis=0) + np.square(root.T @ J).sum(axis=1)
            variance.append(square)
        return np.array(mean), np.array(variance)

    @cached_property
    def scores(self) -> Array:
        """Means (N, C) of the scores."""
        return self.K @ self.mean.T

    @cached_property
    def crossed(self) -> Array:
        """J_c' L_c^-1 K' by object, (N, N, C)."""
        pairs = zip(self.turned, self.shared, strict=True)
        return np.stack([turned.T @ J for turned, J in pairs], axis=2)

    @cached_property
    def covariance(self) -> Array:
        """Covariances (N, C, C) of the scores of each object."""
        covariance = self.crossed.transpose(0, 2, 1) @ self.crossed
        for c, turned in enumerate(self.turned):
            covariance[:, c, c] += np.square(turned).sum(axis=0)
        return covariance

    def expected(self, codes: Codes) -> ExpectedProbit:
        """See `Regressors`."""
        return expected_scores(codes, self.scores, self.covariance)

    def scaled(self, square: float) -> "Coupled":
        """See `Regressors`."""
        new = copy(self)
        root = np.sqrt(square)
        new.roots = [each * root for each in self.roots]
        new.turned = [each * root for each in self.turned]
        for name in ("mean", "scores", "crossed"):
            setattr(new, name, getattr(self, name) * root)
        new.covariance = self.covariance * square
        new.variance = self.variance * square
        new.precision = self.precision / square
        new.own = Sites(self.own.d / square)
        new.spread = None if self.spread is None else self.spread / square
        new.log_det = self.log_det + self.mean.size * float(np.log(square))
        return new

    def slope_of_scale(self, expected: ExpectedProbit) -> float:
        """See `Regressors`."""
        return _slope_of_scale(expected, self.scores, self.covariance)

    def sites(self, expected: ExpectedProbit) -> tuple[Array, Array]:
        """See `Regressors`."""
        diagonal = np.einsum("ncc->nc", expected.curvature)
        return _sites(diagonal, self.scores, expected.gradient)

    def moment(self) -> Array:
        """See `Regressors`."""
        total = self.mean.T @ self.mean
        for root, J in zip(self.roots, self.shared, strict=True):
            rotated = root.T @ J
            total += root.T @ root + rotated @ rotated.T
        return total

    def target(self, expected: ExpectedProbit) -> Array:
        """See `Regressors`."""
        total = expected.gradient @ self.mean
        for c, (root, turned, J) in enumerate(
            zip(self.roots, self.turned, self.shared, strict=True)
        ):
            own = expected.curvature[:, c]
            bent = np.einsum("nmc,nc->nm", self.crossed, own)
            total -= (own[:, c, None] * turned.T + bent @ J.T) @ root
        return total

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """See `Regressors`."""
        n_classes, n_basis = self.mean.shape
        common = rng.standard_normal((len(self.K), draws))
        noise = rng.standard_normal((n_classes, n_basis, draws))
        parts = zip(self.roots, self.shared, noise, strict=True)
        deviation = np.stack([root.T @ (own + J @ common) for root, J, own in parts])
        f = np.einsum("nm,cms->ncs", self.K, deviation, optimize=True)
        square = np.einsum("cm,cms->s", self.precision, deviation**2)
        square += (f * self.own.apply(f)).sum(axis=(0, 1))
        if self.spread is not None:
            square += np.einsum("cms,cms->s", deviation, self.spread @ deviation)
        W = self.mean + deviation.transpose(2, 0, 1)
        return W, -0.5 * (square + self.log_det) - self.mean.size * LOG_2PI / 2


def _slope_of_scale(expected: ExpectedProbit, scores: Array, covariance: Array) -> float:
    """Differentiate sum E[log P] in log a, for scores of mean root(a) m and covariance a S."""
    along = np.vdot(expected.gradient, scores) - np.vdot(expected.curvature, covariance)
    return 0.5 * float(along)


def _sites(diagonal: Array, scores: Array, gradient: Array) -> tuple[Array, Array]:
    """Sites d, b (N, F) of curvatures with this diagonal and of this gradient at the scores."""
    sites = Sites.of_diagonal(diagonal)
    return sites.d, sites.apply(scores) + gradient
