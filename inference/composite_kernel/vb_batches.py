"""Classification in batches of objects: their points xi take turns, and all other factors follow.

Jaakkola's bound touches the likelihood of object n at xi_n, which gives it the weight w_n =
tanh(xi_n / 2) / (2 xi_n). The other factors see the objects through the sums sum_n w_n k_in k_jn'
alone. A turn renews the points of one batch at E[f_n^2], then the sums by its difference, so that
each turn is a step of coordinate ascent: the bound is exact, and does not fall (Neal & Hinton 1998,
A view of the EM algorithm that justifies incremental, sparse, and other variants).

Points approach their optimum slowly where objects are far from the boundary. From the second pass
on they go half as far again, each only where that does not lower its part of the bound.
"""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self, override

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack
from scipy.special import log_expit

from ...numerics.kernel_products import KernelProducts
from ...numerics.threads import in_blocks
from ..variational.gamma import Gamma
from ..variational.regressors import precision_factor
from .vb_likelihoods import Likelihood, Regressors, Tangents, second_moments

__all__ = ["BatchedBernoulli"]

type Array = npt.NDArray[np.float64]

# Steps of log xi from the second pass on, in units of the step to its optimum.
STRETCH = 1.5


@dataclass(frozen=True)
class BatchedTangents(Tangents):
    """Points xi (N,), and what the other factors need of them.

    Attributes
    ----------
    products : KernelProducts
        Sums of w_n k_in k_jn'.
    touch : float
        Sum of log sigmoid(xi_n) - xi_n / 2 + w_n xi_n^2 / 2.
    square : float
        Sum of w_n E[f_n^2], at the latest factors.
    turn : int
        Number of turns so far.
    """

    products: KernelProducts = field(repr=False)
    touch: float
    square: float
    turn: int


@dataclass(frozen=True)
class BatchedBernoulli(Likelihood[BatchedTangents]):
    """t_n ~ Bernoulli(1 / (1 + exp(-f_n))), the points of a batch of objects a turn.

    A turn costs O(K^2 N M^2) for N objects of a batch and O(M^3 + K^2 M^2); the sums take
    K (K + 1) / 2 M x M matrices of memory.
    """

    design: Array
    projections: Array
    batches: tuple[slice, ...]
    first: BatchedTangents

    @classmethod
    def of(cls, design: Array, labels: npt.NDArray[np.intp], batch: int) -> Self:
        """Keep the kernels (K, N, M), and form the sums; labels are 0 and 1."""
        n_obs = design.shape[1]
        begin = Tangents(np.ones(n_obs))
        products = _weighted_products(design, begin.weight)
        touch = float(_touches(begin).sum())
        first = BatchedTangents(begin.xi, products, touch, square=np.nan, turn=0)
        batches = tuple(slice(start, start + batch) for start in range(0, n_obs, batch))
        return cls(design, (labels - 0.5) @ design, batches, first)

    def _turn(self, noise: BatchedTangents) -> slice:
        """Objects whose turn it is."""
        return self.batches[noise.turn % len(self.batches)]

    @override
    def start(self) -> BatchedTangents:
        return self.first

    @override
    def precisions(
        self, noise: BatchedTangents, phi: Array, beta_second: Array
    ) -> Iterator[tuple[int, Array, Array]]:
        yield 1, *precision_factor(noise.products.gram(beta_second), phi)

    @override
    def regressors(
        self, noise: BatchedTangents, phi: Array, beta_mean: Array, beta_second: Array
    ) -> Regressors:
        ((_, factor, pivots),) = self.precisions(noise, phi, beta_second)
        log_det = -2 * np.log(pivots).sum()
        root, _ = lapack.dtrtri(factor, lower=True, overwrite_c=True)
        mean = beta_mean @ self.projections
        for transposed in (False, True):
            mean = blas.dtrmv(root, mean, lower=True, trans=transposed)
        by_object = second_moments(self.design[:, self._turn(noise)], root, mean)
        var = np.einsum("ij,ij->j", root, root)
        # One triangle of E[alpha alpha'] takes the memory of the root of the covariance.
        moment, _ = lapack.dlauum(root, lower=True, overwrite_c=True)
        moment = blas.dsyr(1.0, mean, lower=True, a=moment, overwrite_a=True).T
        second = noise.products.traces(moment * noise.products.fold)
        linear = self.projections @ mean
        return Regressors(mean[None], var[None], log_det, linear, second, by_object)

    @override
    def weights_terms(self, alpha: Regressors, noise: BatchedTangents) -> tuple[Array, Array]:
        return alpha.linear, alpha.second

    @override
    def noise(
        self,
        noise: BatchedTangents,
        alpha: Regressors,
        beta_mean: Array,
        beta_second: Array,
        priors: Mapping[str, Gamma],
    ) -> BatchedTangents:
        objects = self._turn(noise)
        first, other = noise.products.pairs
        assert alpha.by_object is not None
        squares = np.where(first == other, 1.0, 2.0) * beta_second[first, other] @ alpha.by_object
        before, after = Tangents(noise.xi[objects]), Tangents(np.sqrt(np.maximum(squares, 0)))
        if noise.turn >= len(self.batches):
            after = _stretched(before, after)
        difference = after.weight - before.weight
        change = _weighted_products(self.design[:, objects], difference)
        xi = noise.xi.copy()
        xi[objects] = after.xi
        return BatchedTangents(
            xi,
            KernelProducts(change.pairs, noise.products.products + change.products),
            touch=noise.touch + float(np.sum(_touches(after) - _touches(before))),
            square=float(np.sum(beta_second * alpha.second) + difference @ squares),
            turn=noise.turn + 1,
        )

    @override
    def bound(
        self,
        alpha: Regressors,
        noise: BatchedTangents,
        beta_mean: Array,
        priors: Mapping[str, Gamma],
    ) -> float:
        return float(noise.touch - 0.5 * noise.square + beta_mean @ alpha.linear)


def _stretched(before: Tangents, best: Tangents) -> Tangents:
    """Go from `before` past the points of the highest bound, where the bound is not below before.

    The bound of object n, with E[f_n^2] = best_n^2, is touch_n - w_n best_n^2 / 2 and constants.
    """
    ahead = before.at(before.coordinates + STRETCH * (best.coordinates - before.coordinates))
    heights = [_touches(points) - 0.5 * points.weight * best.xi**2 for points in (before, ahead)]
    return Tangents(np.where(heights[1] >= heights[0], ahead.xi, best.xi))


def _touches(points: Tangents) -> Array:
    """Return log sigmoid(xi_n) - xi_n / 2 + w_n xi_n^2 / 2 of each object."""
    xi = points.xi
    return log_expit(xi) - 0.5 * xi + 0.5 * points.weight * xi**2


def _weighted_products(design: Array, weights: Array) -> KernelProducts:
    """Sum w_n k_in k_jn' over the objects of a design (K, N, M), in threads."""

    def products(objects: slice) -> Array:
        return KernelProducts.of(design[:, objects], weights[objects]).products

    pairs = np.triu_indices(len(design))
    return KernelProducts(pairs, functools.reduce(np.add, in_blocks(products, len(weights))))
