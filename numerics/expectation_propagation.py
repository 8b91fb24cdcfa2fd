"""Expectation propagation: the normal approximation of scores that has the right marginals.

The likelihood of each object is replaced by a site, exp(b'f - f'W f / 2), such that the marginal of
the object has the moments that its true likelihood would give it (Minka 2001; Rasmussen & Williams
2006, section 3.6). Its evidence is nearly exact: the probability of the classes of 245 objects is
off by a few per cent, where Laplace's is off by a factor of ten. Symbols are those of
`gaussian_scores`.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import product as product_of
from typing import NamedTuple, Protocol, Self

import numpy as np
from scipy.linalg import helmert
from scipy.special import roots_hermitenorm
from scipy.stats import norm, qmc

from .gaussian_process import Array
from .gaussian_scores import Sites
from .likelihoods import Likelihood
from .softmax import log_sum_exp

#: Change of the log evidence, in nats, that ends expectation propagation, and most steps of it.
SITE_NATS = 0.03
SITE_STEPS = 20
#: Least share of a step.
LEAST_STEP = 0.25
#: Added to variances of scores, which may vanish up to rounding.
LEAST_VARIANCE = 1e-12
#: Nodes of Gauss-Hermite quadrature along each axis, by the number of axes.
PRODUCTS = {1: 64, 2: 20, 3: 8}
#: Pairs of opposite Sobol' points over more axes. Over nine, 128 pairs are off by 30 nats where the
#: scale is 1,000.
SOBOL_PAIRS = 256
#: Numbers that are computed together, so that they stay in the processor's cache.
BLOCK_NUMBERS = 200_000
#: Nodes of Gauss-Hermite quadrature of predictive densities over one score, and pairs of opposite
#: Sobol' points over several.
PREDICTIVE_NODES = 128


class NormalScores(Protocol):
    """Normal approximation of the scores, in any form."""

    @property
    def likelihood(self) -> Likelihood:
        """Likelihood of the scores."""

    @property
    def a(self) -> Array:
        """Weights (N, C); scores are the prior covariance times these."""

    @property
    def mean(self) -> Array:
        """Mean of the scores (N, C)."""

    @property
    def sites(self) -> Sites:
        """W of every object."""

    @property
    def log_det(self) -> float:
        """Log determinant of I + K W."""

    @property
    def squares(self) -> float:
        """Sum of a'K a over all functions."""

    @property
    def log_evidence(self) -> float:
        """Laplace's approximation at the mode, or that of the sites; NaN if unknown."""

    def with_evidence(self, log_evidence: float) -> Self:
        """Approximation with another value of its evidence."""

    def covariances(self) -> Array:
        """Covariances (N, C, C) of the scores of each object."""


def linear_terms(fit: NormalScores) -> Array:
    """Return b (N, C) of the sites exp(b'f - f'W f / 2) that an approximation has."""
    return fit.sites.apply(fit.mean) + fit.a


def expectation_propagation[S: NormalScores](
    of_sites: Callable[[Sites, Array], S], d: Array, b: Array
) -> S | None:
    """Find the approximation with the moments of each object's true likelihood, and its evidence.

    Return None where the steps do not converge, as in scores of a size of several hundreds, whose
    likelihood is a jump for the quadrature.

    Parameters
    ----------
    of_sites : callable
        Makes the approximation with sites exp(b'f - f'W f / 2) in place of likelihoods.
    d, b : array (N, C)
        To begin with, such as those of Laplace's method or of a similar covariance.

    Notes
    -----
    Each step replaces all sites by those with which the marginal of an object has the mean and the
    variances that its true likelihood would give it. Of several functions the variance of each is
    matched, as far as W's form allows. Where the sites are best, the evidence does not change with
    them to first order. A step costs an approximation and its `covariances`, and O(N C^2) a node.
    """
    sites = Sites(d)
    before = -np.inf
    step = 1.0
    for _ in range(SITE_STEPS):
        fit = of_sites(sites, b)
        try:
            tilted = _tilted(fit, b)
        except np.linalg.LinAlgError:
            return None
        shares = float(tilted.log_shares.sum())
        evidence = shares - 0.5 * fit.log_det + 0.5 * float((b * fit.mean).sum())
        # Steps that go astray may end with more than a probability can be.
        if abs(evidence - before) < SITE_NATS and evidence <= 0:
            return fit.with_evidence(evidence)
        if evidence < before:
            step = max(step / 2, LEAST_STEP)
        before = evidence
        target = Sites.of_diagonal(tilted.diagonal)
        b = b + step * (target.apply(tilted.mean) - sites.apply(tilted.mean) + tilted.pull)
        sites = Sites(sites.d + step * (target.d - sites.d))
    return None


class _Tilted(NamedTuple):
    """Marginals of a normal approximation with true likelihoods in place of their sites.

    Attributes
    ----------
    log_shares : array (N,)
        Logarithms of the normalisers.
    mean : array (N, C)
        Of the scores.
    pull : array (N, C)
        Marginal precision of the normal approximation, times the difference of the means.
    diagonal : array (N, C)
        Diagonal of the W of a site that gives the same variances.
    """

    log_shares: Array
    mean: Array
    pull: Array
    diagonal: Array


def _tilted(fit: NormalScores, b: Array) -> _Tilted:
    """Quadrature over the contrasts of each object's scores; their sum is independent of these."""
    n_objects, n_functions = b.shape
    H = helmert(n_functions).T if fit.sites.coupled else np.ones((1, 1))
    nodes = _nodes(H.shape[1])
    W = fit.sites.matrices()
    covariances = H.T @ fit.covariances() @ H
    roots = H @ np.linalg.cholesky(covariances + LEAST_VARIANCE * np.eye(H.shape[1]))
    # The log site is b'f - f'W f / 2: a value at the mean and a parabola in the nodes' coordinates.
    pulled = fit.sites.apply(fit.mean)
    at_mean = ((b - 0.5 * pulled) * fit.mean).sum(axis=1)
    slopes = np.einsum("nci,nc->ni", roots, b - pulled)
    curvatures = (roots.transpose(0, 2, 1) @ W @ roots).reshape(n_objects, -1)
    log_shares = np.empty(n_objects)
    centre = np.empty((n_objects, H.shape[1]))
    seconds = np.empty((n_objects, H.shape[1] ** 2))
    size = max(1, BLOCK_NUMBERS // (len(nodes.weights) * n_functions))
    for first in range(0, n_objects, size):
        rows = np.arange(first, min(first + size, n_objects))
        moved = nodes.points @ roots[rows].reshape(-1, H.shape[1]).T
        f = fit.mean[rows] + moved.reshape(-1, len(rows), n_functions)
        log_ratios = fit.likelihood.of_rows(rows).log_density(f) - at_mean[rows]
        log_ratios -= nodes.points @ slopes[rows].T - 0.5 * nodes.squares @ curvatures[rows].T
        log_shares[rows] = log_sum_exp(log_ratios, axis=0, weights=nodes.weights[:, None])
        ratios = nodes.weights[:, None] * np.exp(log_ratios - log_shares[rows])
        centre[rows] = ratios.T @ nodes.points
        seconds[rows] = ratios.T @ nodes.squares
    covariance = seconds.reshape(-1, *covariances.shape[1:])
    covariance -= centre[:, :, None] * centre[:, None, :]
    change = np.linalg.inv(covariance) - np.eye(H.shape[1])
    back = np.linalg.solve(H.T @ roots, np.broadcast_to(H.T, (n_objects, *H.T.shape)))
    return _Tilted(
        log_shares,
        mean=fit.mean + np.einsum("nci,ni->nc", roots, centre),
        pull=np.einsum("nic,ni->nc", back, centre),
        diagonal=np.einsum("ncc->nc", W) + (back * (change @ back)).sum(axis=1),
    )


class _Nodes(NamedTuple):
    """Points (S, D), their products with themselves (S, D^2), and weights (S,)."""

    points: Array
    squares: Array
    weights: Array


@lru_cache
def _nodes(size: int) -> _Nodes:
    """Nodes of expectations over a few standard normal numbers.

    Products of Gauss-Hermite's nodes; of more numbers than `PRODUCTS` has, Sobol' points that are
    moved so that their covariance is exactly I.
    """
    if number := PRODUCTS.get(size):
        nodes, weights = roots_hermitenorm(number)
        points = np.array(list(product_of(nodes, repeat=size)))
        shares = np.array(list(product_of(weights / weights.sum(), repeat=size))).prod(axis=1)
        kept = shares > 0
        points = points[kept]
        weights = shares[kept]
    else:
        points, weights = _quadrature(size, SOBOL_PAIRS)
        root = np.linalg.cholesky(points.T @ points / len(points))
        points = np.linalg.solve(root, points.T).T
    squares = points[:, :, None] * points[:, None, :]
    return _Nodes(points, squares.reshape(len(points), -1), weights)


def log_predictive(likelihood: Likelihood, mean: Array, covariances: Array) -> Array:
    """Log (N,) of the expected likelihood of each object, of scores with mean (N, C).

    `covariances` are (N, C, C). O(N C^2) for each node of the quadrature.
    """
    points, weights = _quadrature(mean.shape[1], PREDICTIVE_NODES)
    roots = np.linalg.cholesky(covariances + LEAST_VARIANCE * np.eye(mean.shape[1]))
    f = mean + np.einsum("ncd,sd->snc", roots, points)
    return log_sum_exp(likelihood.log_density(f), axis=0, weights=weights[:, None])


@lru_cache
def _quadrature(n_functions: int, number: int) -> tuple[Array, Array]:
    """Points (S, C) and weights (S,) for expectations over standard normal numbers."""
    if n_functions == 1:
        nodes, weights = roots_hermitenorm(number)
        return nodes[:, None], weights / weights.sum()
    normal = norm.ppf(qmc.Sobol(n_functions, rng=0).random(number))
    points = np.vstack([normal, -normal])
    return points, np.full(len(points), 1 / len(points))
