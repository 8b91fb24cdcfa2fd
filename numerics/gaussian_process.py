r"""Gaussian processes on one covariance matrix: evidence, its gradient, and the scores' posterior.

The scores :math:`f_c \sim \mathcal N(0, K)` of C functions (classes or outputs) are independent a
priori. Given normal targets the posterior is normal; given classes it is approximated by Laplace's
method, a normal distribution at the mode. C is 1 for two classes (a logistic likelihood), otherwise
the number of classes (a softmax).

Notation (Rasmussen & Williams 2006, chapters 2, 3 and 5):

============ ================================================ ==========
book         meaning                                          code
============ ================================================ ==========
K            covariance of a function                         ``K`` (N, N)
f            scores, at the mode                              ``mode`` (N, C)
a            K^-1 f = grad log p(t | f)                       ``a`` (N, C)
W            -grad grad log p(t | f), D - Pi Pi' by object    ``W`` (N, C, C)
E_c          D_c^1/2 (I + D_c^1/2 K D_c^1/2)^-1 D_c^1/2       ``E`` (N, N) each
(K + W^-1)^-1 what maps residuals to weights                  `Curvature`
============ ================================================ ==========

The evidence has a gradient with respect to every entry of K, G (N, N): the gradient with respect to
a hyperparameter is the sum of G times the derivative of K, whatever the hyperparameter is.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, override

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.special import expit, log_expit, logsumexp, softmax

type Array = NDArray[np.float64]

#: Increase of the log posterior, in nats, after which Newton's method ends: that of the next step
#: would be about its square.
NEWTON_NATS = 1e-5
NEWTON_STEPS = 100
#: Shares of the given weights that are tried as a start: their own K may have been smaller.
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.0)


class NotPositiveDefiniteError(ValueError):
    """A matrix without a Cholesky factor."""


def cholesky(matrix: Array) -> Array:
    """Lower Cholesky factor (N, N); raise `NotPositiveDefiniteError` if there is none."""
    factor, failed = lapack.dpotrf(matrix, lower=1, clean=1)
    if failed:
        raise NotPositiveDefiniteError(f"The leading minor of order {failed} is not positive.")
    return factor


def solve(factor: Array, right: Array) -> Array:
    """(LL')^-1 B for a lower triangular L (N, N) and B (N, ...)."""
    return lapack.dpotrs(factor, right, lower=1)[0]


def inverse(factor: Array) -> Array:
    """(LL')^-1 for a lower triangular L (N, N)."""
    lower, _ = lapack.dpotri(factor, lower=1)
    return np.tril(lower) + np.tril(lower, -1).T


def solve_triangular(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """L^-1 B, or L'^-1 B, for a lower triangular L (N, N)."""
    return lapack.dtrtrs(factor, right, lower=1, trans=int(transposed))[0]


def log_det(factor: Array) -> float:
    """Log determinant of LL'."""
    return 2.0 * float(np.log(factor.diagonal()).sum())


@dataclass(frozen=True)
class NormalRegression:
    """Targets t_o ~ N(0, K + noise_o I), for P outputs.

    Parameters
    ----------
    K : array (N, N)
    targets : array (N, P)
    noise : array (P,)
        Variances; equal ones share a factorisation.
    """

    K: Array
    targets: Array
    noise: Array

    @cached_property
    def groups(self) -> list[tuple[NDArray[np.bool_], Array]]:
        """Outputs of each distinct noise, as a mask (P,), and their factor; O(N^3) per noise."""
        groups = []
        for variance in np.unique(self.noise):
            matrix = self.K.copy()
            matrix.flat[:: len(matrix) + 1] += variance
            groups.append((self.noise == variance, cholesky(matrix)))
        return groups

    def solve(self, right: Array) -> Array:
        """(K + noise_o I)^-1 b_o for the columns of B (N, P). O(N^2 P)."""
        solved = np.empty_like(right)
        for outputs, factor in self.groups:
            solved[:, outputs] = solve(factor, right[:, outputs])
        return solved

    @cached_property
    def a(self) -> Array:
        """(K + noise_o I)^-1 t_o, shape (N, P)."""
        return self.solve(self.targets)

    @cached_property
    def log_evidence(self) -> float:
        """Log density of the targets."""
        squares = float((self.a * self.targets).sum())
        determinants = sum(outputs.sum() * log_det(factor) for outputs, factor in self.groups)
        constant = self.targets.size * np.log(2 * np.pi)
        return -0.5 * float(squares + determinants + constant)

    def gradient(self) -> tuple[Array, Array]:
        """Gradient of the log evidence with respect to K (N, N) and the noises (P,). O(N^3)."""
        of_covariance = self.a @ self.a.T
        of_noise = np.einsum("np,np->p", self.a, self.a)
        for outputs, factor in self.groups:
            precision = inverse(factor)
            of_covariance -= outputs.sum() * precision
            of_noise[outputs] -= precision.trace()
        return 0.5 * of_covariance, 0.5 * of_noise

    def left_out(self) -> tuple[Array, Array]:
        """Mean and variance (N, P) of every target given all others (eq 5.12). O(N^3)."""
        precision = np.empty_like(self.targets)
        for outputs, factor in self.groups:
            precision[:, outputs] = inverse(factor).diagonal()[:, None]
        return self.targets - self.a / precision, 1.0 / precision

    def draw(self, root: Array, rng: np.random.Generator) -> Array:
        """Draw v (N, P) of f = root v from its posterior, with root root' = K. O(N^2 P)."""
        prior = rng.standard_normal(self.targets.shape)
        noise = rng.standard_normal(self.targets.shape) * np.sqrt(self.noise)
        misfit = self.targets - root @ prior - noise
        return prior + root.T @ self.solve(misfit)


class Likelihood(Protocol):
    """Log likelihood of the scores f (N, C) of all objects, with its derivatives."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers N of objects and C of functions."""

    def log_density(self, f: Array) -> Array:
        """Log likelihood (N,) of each object."""

    def probabilities(self, f: Array) -> Array:
        """Probabilities (N, C) that a score makes more likely."""

    @property
    def observed(self) -> Array:
        """1 where an object is of the class of a function, else 0, shape (N, C)."""


@dataclass(frozen=True)
class Logistic(Likelihood):
    """Two classes: 1 has the probability 1 / (1 + exp(-f)). `codes` (N,) are 0 and 1."""

    codes: NDArray[np.int64]

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return len(self.codes), 1

    @property
    @override
    def observed(self) -> Array:
        return self.codes[:, None].astype(float)

    @override
    def log_density(self, f: Array) -> Array:
        return log_expit(f[:, 0] * (2 * self.codes - 1))

    @override
    def probabilities(self, f: Array) -> Array:
        return expit(f)


@dataclass(frozen=True)
class Softmax(Likelihood):
    """Classes 0, ..., C - 1 with probabilities proportional to exp(f_c). `codes` are (N,)."""

    codes: NDArray[np.int64]
    n_classes: int

    @property
    @override
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.n_classes

    @property
    @override
    def observed(self) -> Array:
        return (self.codes[:, None] == np.arange(self.n_classes)).astype(float)

    @override
    def log_density(self, f: Array) -> Array:
        own = np.take_along_axis(f, self.codes[:, None], axis=1)[:, 0]
        return own - logsumexp(f, axis=1)

    @override
    def probabilities(self, f: Array) -> Array:
        return softmax(f, axis=1)


class Curvature:
    """M = (K + W^-1)^-1 for probabilities p (N, C), without forming W^-1. O(C N^3).

    By blocks, M_cd = E_c 1(c = d) - E_c F^-1 E_d with F the sum of the E_c; for one function M is
    E_1 (algorithms 3.1 and 3.3).
    """

    def __init__(self, K: Array, p: Array):
        self.K = K
        self.p = p
        self.coupled = p.shape[1] > 1
        variances = p if self.coupled else p * (1.0 - p)
        self.roots = np.sqrt(variances)
        self.factors = []
        for root in self.roots.T:
            matrix = root[:, None] * K * root
            matrix.flat[:: len(matrix) + 1] += 1.0
            self.factors.append(cholesky(matrix))
        self.log_det = sum(map(log_det, self.factors))
        if self.coupled:
            self.sum_factor = cholesky(sum(self.E[1:], start=self.E[0]))
            self.log_det += log_det(self.sum_factor)

    @cached_property
    def E(self) -> list[Array]:
        """Matrices E_c (N, N)."""
        return [
            root[:, None] * inverse(factor) * root
            for root, factor in zip(self.roots.T, self.factors, strict=True)
        ]

    def apply_W(self, b: Array) -> Array:
        """W b for b (N, C)."""
        if not self.coupled:
            return self.roots**2 * b
        return self.p * (b - (self.p * b).sum(axis=1, keepdims=True))

    def apply(self, b: Array) -> Array:
        """M b for b (N, C). O(C N^2)."""
        if not self.coupled:
            root = self.roots
            return root * solve(self.factors[0], root * b)
        parts = np.column_stack([E @ column for E, column in zip(self.E, b.T, strict=True)])
        shared = solve(self.sum_factor, parts.sum(axis=1))
        return parts - np.column_stack([E @ shared for E in self.E])

    def trace_of_blocks(self) -> Array:
        """Sum of the diagonal blocks M_cc (N, N). O(C N^3)."""
        if not self.coupled:
            return self.E[0].copy()
        total = sum(self.E[1:], start=self.E[0].copy())
        for E in self.E:
            half = solve_triangular(self.sum_factor, E)
            total -= half.T @ half
        return total

    def covariances(self, cross: Array | None = None, own: Array | None = None) -> Array:
        """Posterior covariances (n, C, C) of the scores of objects. O(C N^2 n).

        `cross` (n, N) and `own` (n,) are the prior covariances of other objects with the training
        objects, and their prior variances; None for the training objects themselves.
        """
        rows = self.K if cross is None else cross
        variances = self.K.diagonal() if own is None else own
        n_functions = self.p.shape[1]
        result = np.zeros((len(rows), n_functions, n_functions))
        if not self.coupled:
            half = solve_triangular(self.factors[0], self.roots * rows.T)
            result[:, 0, 0] = variances - np.einsum("mn,mn->n", half, half)
            return result
        products = [E @ rows.T for E in self.E]
        for c, product in enumerate(products):
            result[:, c, c] = variances - np.einsum("nm,mn->n", rows, product)
        halves = np.stack([solve_triangular(self.sum_factor, each) for each in products])
        by_object = halves.transpose(2, 0, 1)
        return result + by_object @ by_object.transpose(0, 2, 1)


@dataclass(frozen=True)
class LaplaceFit:
    """Normal approximation of the scores at the mode of their posterior, and the evidence.

    Attributes
    ----------
    K : array (N, N)
    likelihood : Likelihood
    a, mode : array (N, C)
    log_evidence : float
        Laplace's approximation (eqs 3.32 and 3.44).
    """

    K: Array
    likelihood: Likelihood
    a: Array
    mode: Array
    curvature: Curvature
    log_evidence: float

    def gradient(self) -> Array:
        """Gradient (N, N) of the log evidence with respect to K, algorithm 5.1. O(C N^3)."""
        curvature, a, p = self.curvature, self.a, self.curvature.p
        explicit = a @ a.T - curvature.trace_of_blocks()
        # The mode moves with K, and the determinant with the mode.
        moved = self._slope_of_determinant(curvature.covariances(), p)
        moved -= curvature.apply(self.K @ moved)
        implicit = moved @ a.T
        return 0.5 * (explicit + implicit + implicit.T)

    def _slope_of_determinant(self, covariance: Array, p: Array) -> Array:
        """Differentiate -log|I + K W| / 2 with respect to the scores (N, C)."""
        if not self.curvature.coupled:
            variance = covariance[:, 0]
            return -0.5 * variance * p * (1.0 - p) * (1.0 - 2.0 * p)
        # tr(S W) = sum_c S_cc p_c - p'Sp, with dp_i/df_c = p_i (1(i = c) - p_c).
        product = np.einsum("nij,nj->ni", covariance, p)
        slope = np.einsum("nii->ni", covariance) - 2.0 * product
        return -0.5 * p * (slope - (p * slope).sum(axis=1, keepdims=True))

    def left_out(self) -> tuple[Array, Array]:
        """Mean (N, C) and covariance (N, C, C) of the scores of each object given all others.

        The likelihood of an object is replaced by its normal approximation at the mode, and
        divided out.
        """
        covariance = self.curvature.covariances()
        p, n_functions = self.curvature.p, self.a.shape[1]
        # In terms of the covariance, since W is singular: S (I - W S)^-1.
        W = p[:, :, None] * (np.eye(n_functions) - p[:, None, :])
        shrunk = np.eye(n_functions) - W @ covariance
        others = covariance @ np.linalg.inv(shrunk)
        shift = np.einsum("ncd,nd->nc", others, self.a)
        return self.mode - shift, (others + others.transpose(0, 2, 1)) / 2

    def draw(self, root: Array, rng: np.random.Generator) -> Array:
        """Draw v (N, C) of f = root v from the approximation, with root root' = K. O(C N^2)."""
        prior = rng.standard_normal(self.a.shape)
        p = self.curvature.p
        noise = rng.standard_normal(self.a.shape)
        if self.curvature.coupled:
            noise *= np.sqrt(p)
            noise -= p * noise.sum(axis=1, keepdims=True)
        else:
            noise *= self.curvature.roots
        scores = root @ (prior + root.T @ noise)
        weights = self.a + noise - self.curvature.apply(scores)
        return prior + root.T @ weights


def laplace(K: Array, likelihood: Likelihood, start: Array | None = None) -> LaplaceFit:
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
    (2006), algorithms 3.1 and 3.3.
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
        curvature = Curvature(K, p)
        b = curvature.apply_W(f) + observed - p
        target = b - curvature.apply(K @ b)
        a, f, value, gain = _uphill(height, K, a, f, target, value)
        if gain < NEWTON_NATS:
            break
    p = likelihood.probabilities(f)
    curvature = Curvature(K, p)
    # At the mode; a of the last step is equal to it up to rounding.
    return LaplaceFit(K, likelihood, a, f, curvature, value - 0.5 * curvature.log_det)


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
