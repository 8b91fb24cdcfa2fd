r"""Expectations of multinomial-probit log likelihoods under normal distributions of the scores.

For scores f_n ~ N(m_n, S_n) of C classes and an object of class t these are E[log P(t | f_n)] and
its derivatives in m_n: E[g_n] and E[H_n] of the gradient g and the Hessian H of log P. By the
theorems of Bonnet and Price E[H] / 2 is the derivative in S_n (Opper & Archambeau 2009), and with
f = m + R z, RR' = S, Stein's lemma gives E[H] = E[g z'] R^-1, so that gradients suffice.

Two classes depend on the contrast x = f_1 - f_0 alone: log P is log Phi(x / root 2) of the winner's
contrast, a one-dimensional integral, for Gauss-Hermite quadrature. Of more classes the sum over the
losers j of log Phi((f_t - f_j) / root 2) is a control variate: its expectation has the same
one-dimensional integrals, and what is left is small and smooth. It is averaged over quasi-random
points with the mean and covariance of a standard normal, so that quadratics have no error. On glass
(104 objects, 6 classes) 64 points are off by 0.1 nats in all; without the two devices by 4.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, roots_hermitenorm
from scipy.stats import norm, qmc

from .probit import SQRT_2PI, log_probability_and_gradient

type Array = NDArray[np.float64]
type Codes = NDArray[np.int64]

#: Nodes of Gauss-Hermite quadrature over one contrast, and points over the scores of more classes.
CONTRAST_NODES = 32
SCORE_POINTS = 64
#: Added to variances of scores, which may vanish up to rounding.
LEAST_VARIANCE = 1e-10

_ROOT_HALF = float(np.sqrt(0.5))


@dataclass(frozen=True)
class ExpectedProbit:
    """Expectations by object.

    Attributes
    ----------
    log_p : array (N,)
        E[log P(t_n | f_n)].
    gradient : array (N, F)
        E[g_n] of the C scores, or of one contrast of two classes.
    curvature : array (N, F, F)
        -E[H_n].
    """

    log_p: Array
    gradient: Array
    curvature: Array


@lru_cache
def _nodes() -> tuple[Array, Array]:
    """Nodes and weights (`CONTRAST_NODES`,) of a standard normal."""
    nodes, weights = roots_hermitenorm(CONTRAST_NODES)
    return nodes, weights / weights.sum()


@lru_cache
def _points(n_classes: int) -> Array:
    """Points (`SCORE_POINTS`, C) with mean zero, covariance one and no odd moments."""
    half = norm.ppf(qmc.Sobol(n_classes, rng=0).random(max(SCORE_POINTS, 4 * n_classes) // 2))
    z = np.vstack([half, -half])
    return np.linalg.solve(np.linalg.cholesky(z.T @ z / len(z)), z.T).T


def _pairs(gaps: Array) -> tuple[Array, Array]:
    """Log Phi(gap / root 2) and its derivative, for gaps of any shape."""
    x = gaps * _ROOT_HALF
    log_p = log_ndtr(x)
    return log_p, _ROOT_HALF / SQRT_2PI * np.exp(-0.5 * x * x - log_p)


def _expected_pairs(mean: Array, variance: Array) -> tuple[Array, Array, Array]:
    """Expect log Phi(gap / root 2), its derivative and its negative curvature; gaps (...,)."""
    nodes, weights = _nodes()
    gaps = mean[..., None] + np.sqrt(np.maximum(variance, LEAST_VARIANCE))[..., None] * nodes
    log_p, slope = _pairs(gaps)
    # With h = phi / Phi at x, -h' = h (x + h); each derivative in the gap has a factor root 1/2.
    curvature = slope * (0.5 * gaps + slope)
    return log_p @ weights, slope @ weights, curvature @ weights


def expected_contrast(codes: Codes, mean: Array, variance: Array) -> ExpectedProbit:
    """Take expectations for two classes, of contrasts f_1 - f_0 ~ N(mean, variance), shape (N,).

    `codes` (N,) are 0 and 1.
    """
    sign = 2.0 * codes - 1.0
    log_p, slope, curvature = _expected_pairs(sign * mean, variance)
    return ExpectedProbit(log_p, (sign * slope)[:, None], curvature[:, None, None])


def expected_scores(codes: Codes, mean: Array, covariance: Array) -> ExpectedProbit:
    """Take expectations for C > 2 classes; f_n ~ N(mean (N, C), covariance (N, C, C)).

    O(N C (points sqrt(C) + nodes) + N C^3).
    """
    n_objects, n_classes = mean.shape
    objects = np.arange(n_objects)
    z = _points(n_classes)
    root = np.linalg.cholesky(covariance + LEAST_VARIANCE * np.eye(n_classes))
    f = mean + np.einsum("ncd,sd->snc", root, z)
    log_p, gradient = log_probability_and_gradient(f.reshape(-1, n_classes), np.tile(codes, len(z)))
    log_p = log_p.reshape(len(z), -1)
    gradient = gradient.reshape(f.shape)
    each, slope = _pairs(f[:, objects, codes][..., None] - f)
    each[:, objects, codes] = 0.0
    slope[:, objects, codes] = 0.0
    rest = (log_p - each.sum(axis=2)).mean(axis=0)
    gradient += slope
    gradient[:, objects, codes] -= slope.sum(axis=2)
    # E[(g - control) z'] R^-1, symmetric but for the error of the points.
    crossed = np.einsum("snc,sd->ncd", gradient, z, optimize=True) / len(z)
    rest_curvature = -crossed @ np.linalg.inv(root)
    rest_curvature = (rest_curvature + rest_curvature.transpose(0, 2, 1)) / 2
    pairs = _controls(codes, mean, covariance)
    return ExpectedProbit(
        rest + pairs.log_p,
        gradient.mean(axis=0) + pairs.gradient,
        rest_curvature + pairs.curvature,
    )


def _controls(codes: Codes, mean: Array, covariance: Array) -> ExpectedProbit:
    """Take expectations of the sum over the losers of log Phi(gap / root 2)."""
    n_objects, n_classes = mean.shape
    objects = np.arange(n_objects)
    variances = np.einsum("ncc->nc", covariance)
    gap_variance = variances[objects, codes][:, None] + variances - 2 * covariance[objects, codes]
    gap = mean[objects, codes][:, None] - mean
    log_p, slope, bend = _expected_pairs(gap, gap_variance)
    for each in (log_p, slope, bend):
        each[objects, codes] = 0.0
    gradient = -slope
    gradient[objects, codes] = slope.sum(axis=1)
    curvature = bend[:, :, None] * np.eye(n_classes)
    curvature[objects, codes] -= bend
    curvature[objects, :, codes] -= bend
    curvature[objects, codes, codes] = bend.sum(axis=1)
    return ExpectedProbit(log_p.sum(axis=1), gradient, curvature)
