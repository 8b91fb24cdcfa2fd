r"""Gaussian-process classification: normal approximations of the scores, and Laplace's method.

The scores :math:`f_c \sim \mathcal N(0, K)` of C functions are independent a priori; C is 1 for two
classes (a logistic likelihood), otherwise the number of classes (a softmax). Approximations of
their posterior have the form :math:`\mathcal N(m, (K^{-1} + W)^{-1})`, with a matrix W (C, C) of
each object. By `laplace`, m is the mode and W the negative Hessian of the log likelihood there; its
evidence has a gradient with respect to every entry of K. `expectation_propagation` finds others.

Notation (Rasmussen & Williams 2006, chapters 3 and 5):

============== ================================================ ===========
book           meaning                                          code
============== ================================================ ===========
K              covariance of a function                         ``K`` (N, N)
a              K^-1 m; grad log p(t | f) at the mode            ``a`` (N, C)
W              diag(d) - d d' / sum(d) by object, or d if C = 1 ``d`` (N, C)
E_c            D_c^1/2 (I + D_c^1/2 K D_c^1/2)^-1 D_c^1/2       ``E`` (N, N)
(K + W^-1)^-1  what maps residuals to weights                   `Curvature`
v              whitened scores, f = L v with LL' = K            ``v`` (N, C)
============== ================================================ ===========
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from .gaussian_process import (
    Array,
    cholesky,
    diagonal_of_inverse,
    inverse,
    log_det,
    product,
    solve,
    solve_triangular,
)
from .likelihoods import Likelihood

#: Increase of the log posterior, in nats, after which Newton's method ends: that of the next step
#: would be about its square.
NEWTON_NATS = 1e-5
NEWTON_STEPS = 100
#: Shares of the given weights that are tried as a start: their own K may have been smaller.
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.0)
#: Least and largest curvature of an object.
CURVATURES = (1e-7, 1e4)
#: Steps that solve for d given the diagonal of W, and the largest share of one function in d.
DIAGONAL_STEPS = 50
LARGEST_SHARE = 0.98


@dataclass(frozen=True)
class Sites:
    """W of every object, from d (N, C): diag(d) - d d' / sum(d), or d if C = 1."""

    d: Array

    @property
    def coupled(self) -> bool:
        """Whether there are several functions."""
        return self.d.shape[1] > 1

    @cached_property
    def total(self) -> Array:
        """Sums (N,) of d."""
        return self.d.sum(axis=1)

    @cached_property
    def shares(self) -> Array:
        """Shares (N, C) of the functions in the sums of d."""
        return self.d / self.total[:, None]

    @property
    def diagonal(self) -> Array:
        """Diagonals (N, C) of W."""
        return self.d * (1.0 - self.shares) if self.coupled else self.d

    def apply(self, b: Array) -> Array:
        """W b for b (N, C), or (N, C, S)."""
        more = [1] * (b.ndim - 2)
        scaled = self.d.reshape(*self.d.shape, *more) * b
        if not self.coupled:
            return scaled
        shares = self.shares.reshape(*self.d.shape, *more)
        return scaled - shares * scaled.sum(axis=1, keepdims=True)

    def noise(self, standard: Array) -> Array:
        """Draws (N, C, S) of covariance W, from standard normal numbers."""
        noise = np.sqrt(self.d)[..., None] * standard
        if self.coupled:
            noise -= self.shares[..., None] * noise.sum(axis=1, keepdims=True)
        return noise

    def matrices(self) -> Array:
        """W (N, C, C)."""
        diagonal = self.d[:, :, None] * np.eye(self.d.shape[1])
        if not self.coupled:
            return diagonal
        return diagonal - self.d[:, :, None] * self.shares[:, None, :]

    @classmethod
    def at(cls, p: Array) -> "Sites":
        """Curvature of the log likelihood at probabilities p (N, C)."""
        return cls(np.clip(p * (1.0 - p) if p.shape[1] == 1 else p, *CURVATURES))

    @classmethod
    def of_diagonal(cls, diagonal: Array) -> "Sites":
        """Sites whose matrices have this diagonal (N, C)."""
        n_functions = diagonal.shape[1]
        diagonal = np.clip(diagonal, *CURVATURES)
        d = diagonal
        if n_functions > 1:
            d = diagonal * n_functions / (n_functions - 1.0)
            for _ in range(DIAGONAL_STEPS):
                shares = d / d.sum(axis=1, keepdims=True)
                d = diagonal / (1.0 - np.minimum(shares, LARGEST_SHARE))
        return cls(np.clip(d, *CURVATURES))


class Curvature:
    """M = (K + W^-1)^-1, without forming W^-1. O(C N^3).

    By blocks, M_cd = E_c 1(c = d) - E_c F^-1 E_d with F the sum of the E_c (section 3.5); for one
    function M is E_1.
    """

    def __init__(self, K: Array, sites: Sites):
        self.K = K
        self.sites = sites
        self.coupled = sites.coupled
        self.roots = np.sqrt(sites.d)
        self.factors = []
        for root in self.roots.T:
            matrix = root[:, None] * K * root
            matrix.flat[:: len(matrix) + 1] += 1.0
            self.factors.append(cholesky(matrix))
        #: log|I + K W|
        self.log_det = sum(map(log_det, self.factors))
        if self.coupled:
            self.sum_factor = cholesky(sum(self.E[1:], start=self.E[0]))
            self.log_det += log_det(self.sum_factor) - float(np.log(sites.total).sum())

    @cached_property
    def E(self) -> list[Array]:
        """Matrices E_c (N, N)."""
        return [
            root[:, None] * inverse(factor) * root
            for root, factor in zip(self.roots.T, self.factors, strict=True)
        ]

    def apply(self, b: Array) -> Array:
        """M b for b (N, C), or (N, C, S). O(C N^2 S)."""
        if not self.coupled:
            root = self.roots.reshape(-1, *[1] * (b.ndim - 1))
            flat = (root * b).reshape(len(b), -1)
            return root * solve(self.factors[0], flat).reshape(b.shape)
        parts = np.stack([E @ b[:, c] for c, E in enumerate(self.E)], axis=1)
        shared = solve(self.sum_factor, parts.sum(axis=1))
        return parts - np.stack([E @ shared for E in self.E], axis=1)

    def trace_of_blocks(self) -> Array:
        """Sum of the diagonal blocks M_cc (N, N). O(C N^3)."""
        total = sum(self.E[1:], start=self.E[0].copy())
        if self.coupled:
            for E in self.E:
                half = solve_triangular(self.sum_factor, E)
                total -= half.T @ half
        return total

    def covariances(self) -> Array:
        """Covariances (N, C, C) of the scores of each object. O(C N^3)."""
        prior = self.K.diagonal()
        if not self.coupled:
            # W^-1/2 (I - (I + W^1/2 K W^1/2)^-1) W^-1/2, a third of the work of solving for K.
            remaining = 1.0 - diagonal_of_inverse(self.factors[0])
            return (remaining / self.sites.d[:, 0])[:, None, None]
        products = [E @ self.K for E in self.E]
        halves = np.stack([solve_triangular(self.sum_factor, each) for each in products])
        by_object = halves.transpose(2, 0, 1)
        covariances = by_object @ by_object.transpose(0, 2, 1)
        for c, each in enumerate(products):
            covariances[:, c, c] += prior - np.einsum("nm,mn->n", self.K, each)
        return covariances


@dataclass(frozen=True)
class GaussianScores:
    """Normal approximation N(K a, (K^-1 + W)^-1) of the scores.

    The gradient of its evidence is that of section 5.5.1.

    Attributes
    ----------
    likelihood : Likelihood
    a, mean : array (N, C)
    curvature : Curvature
    log_evidence : float
        Laplace's approximation at the mode, or that of the sites.
    """

    likelihood: Likelihood
    a: Array
    mean: Array
    curvature: Curvature
    log_evidence: float

    @property
    def K(self) -> Array:
        """Prior covariance (N, N) of a function."""
        return self.curvature.K

    @property
    def sites(self) -> Sites:
        """W of every object."""
        return self.curvature.sites

    @property
    def log_det(self) -> float:
        """Log determinant of I + K W."""
        return self.curvature.log_det

    @property
    def squares(self) -> float:
        """Sum of a'K a over all functions."""
        return float((self.a * self.mean).sum())

    def with_evidence(self, log_evidence: float) -> Self:
        """Approximation with another value of its evidence."""
        return replace(self, log_evidence=log_evidence)

    def covariances(self) -> Array:
        """Covariances (N, C, C) of the scores of each object."""
        return self.curvature.covariances()

    def without_matrices(self) -> tuple[Array, Array]:
        """Return a and d (N, C), of which `with_matrices` makes the approximation again."""
        return self.a, self.curvature.sites.d

    @classmethod
    def with_matrices(cls, K: Array, likelihood: Likelihood, a: Array, d: Array) -> Self:
        """Approximation of a and d under a covariance; its evidence is NaN. O(C N^3)."""
        return cls(likelihood, a, K @ a, Curvature(K, Sites(d)), np.nan)

    @classmethod
    def of_sites(cls, K: Array, likelihood: Likelihood, sites: Sites, b: Array) -> Self:
        """Approximation with sites exp(b'f - f'W f / 2), b (N, C), of objects. O(C N^3)."""
        curvature = Curvature(K, sites)
        a = b - curvature.apply(K @ b)
        return cls(likelihood, a, K @ a, curvature, np.nan)

    def gradient(self) -> Array:
        """Gradient (N, N) of Laplace's log evidence with respect to K at the mode. O(C N^3)."""
        curvature = self.curvature
        a = self.a
        explicit = a @ a.T - curvature.trace_of_blocks()
        # The mode moves with K, and the determinant with the mode.
        moved = self._slope_of_determinant(curvature.covariances())
        moved -= curvature.apply(self.K @ moved)
        implicit = moved @ a.T
        return 0.5 * (explicit + implicit + implicit.T)

    def _slope_of_determinant(self, covariance: Array) -> Array:
        """Differentiate -log|I + K W| / 2 with respect to the scores (N, C)."""
        p = self.likelihood.probabilities(self.mean)
        if not self.curvature.coupled:
            return -0.5 * covariance[:, 0] * p * (1.0 - p) * (1.0 - 2.0 * p)
        # tr(S W) = sum_c S_cc p_c - p'Sp, with dp_i/df_c = p_i (1(i = c) - p_c).
        product = np.einsum("nij,nj->ni", covariance, p)
        slope = np.einsum("nii->ni", covariance) - 2.0 * product
        return -0.5 * p * (slope - (p * slope).sum(axis=1, keepdims=True))

    def left_out(self) -> tuple[Array, Array]:
        """Mean (N, C) and covariance (N, C, C) of the scores of each object given all others.

        The normal approximation of the object's likelihood is divided out.
        """
        covariance = self.curvature.covariances()
        W = self.curvature.sites.matrices()
        # In terms of the covariance, since W is singular: S (I - W S)^-1.
        others = covariance @ np.linalg.inv(np.eye(W.shape[1]) - W @ covariance)
        # Linear terms of the object's normal likelihood are W m + a.
        mean = self.mean - np.einsum("ncd,nd->nc", others, self.a)
        return mean, (others + others.transpose(0, 2, 1)) / 2

    def draw(self, root: Array, normal: Array, noise: Array) -> Array:
        """Draws v (N, C, S) of f = root v, with root root' = K. O(C N^2 S).

        `normal` and `noise` (N, C, S) are independent standard normal numbers.
        """
        noise = self.curvature.sites.noise(noise)
        scores = product(root, normal + product(root.T, noise))
        return normal + product(root.T, self.a[..., None] + noise - self.curvature.apply(scores))

    def log_ratios(self, root: Array, v: Array) -> Array:
        """Log of p(t | v) p(v) / q(v) for draws v (N, C, S), shape (S,). O(C N^2 S)."""
        centre = root.T @ self.a
        deviation = v - centre[..., None]
        along = product(root, deviation)
        squares = np.square(deviation).sum(axis=(0, 1))
        squares += (along * self.curvature.sites.apply(along)).sum(axis=(0, 1))
        log_q = 0.5 * (self.curvature.log_det - squares)
        f = product(root, v).transpose(2, 0, 1)
        return self.likelihood.log_density(f).sum(axis=1) - 0.5 * np.square(v).sum((0, 1)) - log_q


def laplace(K: Array, likelihood: Likelihood, start: Array | None = None) -> GaussianScores:
    """Find the mode of the scores by Newton's method, and Laplace's evidence.

    Parameters
    ----------
    K : array (N, N)
        Positive definite.
    likelihood : Likelihood
    start : array (N, C), optional
        Weights `a` to begin with, such as those of a similar K.

    Raises
    ------
    NotPositiveDefiniteError

    Notes
    -----
    C + 1 Cholesky factorisations an iteration, one for C = 1: O(C N^3). See Rasmussen & Williams
    (2006), section 3.4, and section 3.5 for several classes.
    """
    a = np.zeros(likelihood.shape) if start is None else start

    def height(a: Array, f: Array) -> float:
        return float(likelihood.log_density(f).sum()) - 0.5 * float((a * f).sum())

    f = K @ a
    heights = [height(share * a, share * f) for share in SHARES]
    best = int(np.argmax(heights))
    a = SHARES[best] * a
    f = SHARES[best] * f
    value = heights[best]
    observed = likelihood.observed
    for _ in range(NEWTON_STEPS):
        p = likelihood.probabilities(f)
        curvature = Curvature(K, Sites.at(p))
        b = curvature.sites.apply(f) + observed - p
        target = b - curvature.apply(K @ b)
        a, f, value, gain = _uphill(height, K, a, f, target, value)
        if gain < NEWTON_NATS:
            break
    curvature = Curvature(K, Sites.at(likelihood.probabilities(f)))
    return GaussianScores(likelihood, a, f, curvature, value - 0.5 * curvature.log_det)


def _uphill(
    height: Callable[[Array, Array], float],
    K: Array,
    a: Array,
    f: Array,
    target: Array,
    value: float,
) -> tuple[Array, Array, float, float]:
    """Step from a towards the target, halved until the log posterior rises."""
    direction = target - a
    along = K @ direction
    size = 1.0
    while size > 1e-8:
        new_a = a + size * direction
        new_f = f + size * along
        new = height(new_a, new_f)
        if new >= value:
            return new_a, new_f, new, new - value
        size /= 2
    return a, f, value, 0.0
