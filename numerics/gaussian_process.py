"""Gaussian-process regression: evidence, its gradient, and the posterior of the functions.

Targets are t_o ~ N(f_o, noise_o I) of independent functions f_o ~ N(0, K), so that the posterior is
normal (Rasmussen & Williams 2006, section 2.2). The evidence has a gradient with respect to every
entry of K, G (N, N): the gradient with respect to a hyperparameter is the sum of G times the
derivative of K, whatever the hyperparameter is.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

type Array = NDArray[np.float64]


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


def diagonal_of_inverse(factor: Array) -> Array:
    """Diagonal (N,) of (LL')^-1 for a lower triangular L (N, N)."""
    half, _ = lapack.dtrtri(factor, lower=1)
    return np.einsum("mn,mn->n", half, half)


def solve_triangular(factor: Array, right: Array, *, transposed: bool = False) -> Array:
    """L^-1 B, or L'^-1 B, for a lower triangular L (N, N)."""
    return lapack.dtrtrs(factor, right, lower=1, trans=int(transposed))[0]


def log_det(factor: Array) -> float:
    """Log determinant of LL'."""
    return 2.0 * float(np.log(factor.diagonal()).sum())


@dataclass(frozen=True)
class NormalRegression:
    """Targets t_o ~ N(0, K + noise_o I), for P outputs (sections 2.2 and 5.4.1).

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

    def draw(self, root: Array, normal: Array, noise: Array) -> Array:
        """Draws v (N, P, S) of f = root v, with root root' = K. O(N^2 P S).

        `normal` and `noise` (N, P, S) are independent standard normal numbers.
        """
        simulated = product(root, normal) + np.sqrt(self.noise)[:, None] * noise
        misfit = self.targets[..., None] - simulated
        weights = np.empty_like(misfit)
        for outputs, factor in self.groups:
            columns = misfit[:, outputs].reshape(len(misfit), -1)
            weights[:, outputs] = solve(factor, columns).reshape(misfit[:, outputs].shape)
        return normal + product(root.T, weights)


def product(matrix: Array, b: Array) -> Array:
    """Products of a matrix (N, N) with b (N, C, S). O(C N^2 S)."""
    return (matrix @ b.reshape(len(b), -1)).reshape(b.shape)
