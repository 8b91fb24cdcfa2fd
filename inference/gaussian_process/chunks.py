"""INLA on kernels in a Dask array: features are computed chunk by chunk in each pass."""

from collections.abc import Sequence
from typing import override

import numpy as np
from numpy.typing import NDArray

from ...models.gaussian_process import JITTER
from ...models.kernels.chunked_stack import ChunkedStack, rows_of
from ...models.learned_scale import LearnedScale
from ...numerics.features import SINGLE_PRECISION_NUMBERS, Features, kept_eigenvectors
from ...numerics.gaussian_process import cholesky, solve_triangular
from ...numerics.gaussian_scores import Sites
from .hyperparameters import GaussianProcess

type Array = NDArray[np.float64]


def why_not_by_chunks(model: GaussianProcess) -> str | None:
    """Why INLA cannot read a model's kernels by chunks; None where it can, or need not."""
    if model.kernel_source.in_memory:
        return None
    numbers = [model.scale, getattr(model, "gamma", 1.0)]
    if not model.learned and not any(isinstance(number, LearnedScale) for number in numbers):
        return None
    return (
        "of kernels in a Dask array it finds the functions alone: give numbers for scale and "
        "gamma, and FixedWeights, such as those of a fit to some of the objects"
    )


class ChunkedFeatures(Features):
    """Features of a weighted sum of kernels at landmarks; every product is a pass over the chunks.

    A pass computes or reads the kernels, O(N M D); `weighted_square` then costs O(N M^2). Chunks
    and matrices (M, M) are in memory, and products with the functions' weights.

    Parameters
    ----------
    source : ChunkedStack
    weights : array (S,)
        Weights of the kernels.
    K_mm : array (M, M)
        Their sum between the landmarks, with the declaration's jitter.
    """

    def __init__(self, source: ChunkedStack, weights: Array, K_mm: Array):
        self.chunks = source.chunks
        self.weights = weights
        self.landmarks = source.landmarks
        # The mean of the diagonal is (1 + JITTER) times that of the kernels.
        self.jitter = JITTER / (1.0 + JITTER) * K_mm.diagonal().mean()
        self.root = cholesky(K_mm)
        self.rotation = np.eye(len(K_mm))
        self.n_objects = source.stack.sizes["obs"]
        total = self.weighted_square(np.ones(self.n_objects))
        self.squares, self.rotation = kept_eigenvectors(total)
        self.map = solve_triangular(self.root, self.rotation, transposed=True)

    @property
    @override
    def values(self) -> Array:  # type: ignore[override]
        """All features (N, m), for some thousands of objects."""
        values = np.concatenate(self.chunks.each(_sum_of_kernels, self.weights)) @ self.map
        values[self.landmarks] += self.jitter * self.map
        return values

    @override
    def of_rows(self, rows: NDArray[np.intp]) -> Features:
        kernels = self.chunks.of_objects(rows)
        # The jitter of the few landmarks among them does not matter for a start.
        values = _sum_of_kernels(kernels, self.weights) @ self.map
        return Features(values, self.map, self.rotation, np.square(values).sum(axis=0))

    def _own(self) -> Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows of landmarks in each chunk, and their columns."""
        each = []
        for rows in self.chunks.slices:
            columns = np.flatnonzero((self.landmarks >= rows.start) & (self.landmarks < rows.stop))
            each.append((self.landmarks[columns] - rows.start, columns))
        return each

    @override
    def weighted_square(self, weights: Array) -> Array:
        parts = [self._own(), self.chunks.parts(weights)]
        shared = self.weights, self.jitter, self.root
        (square,) = self.chunks.total(_weighted_square, *shared, by_object=parts)
        return self.rotation.T @ square @ self.rotation

    @override
    def times(self, W: Array) -> Array:
        mapped = self.map @ W
        f = np.concatenate(self.chunks.each(_scores, self.weights, mapped))
        f[self.landmarks] += self.jitter * mapped
        return f

    @override
    def transposed_times(self, b: Array) -> Array:
        parts = [self.chunks.parts(b)]
        (product,) = self.chunks.total(_transposed_product, self.weights, by_object=parts)
        return self.map.T @ (product + self.jitter * b[self.landmarks])

    @override
    def curvature(self, sites: Sites, W: Array, *, exact: bool = False) -> Array:
        mapped = self.map @ W
        parts = [self._own(), self.chunks.parts(sites.d)]
        shared = self.weights, self.jitter, mapped
        (product,) = self.chunks.total(_curvature, *shared, by_object=parts)
        return self.map.T @ product


def _sum_of_kernels(chunk: NDArray, weights: Array) -> Array:
    """Weighted sum (n, M) of the kernels of a chunk."""
    K = np.multiply(weights[0], chunk[0], dtype=float)
    for weight, kernel in zip(weights[1:], chunk[1:], strict=True):
        K += weight * kernel
    return K


def _scores(chunk: NDArray, weights: Array, mapped: Array) -> Array:
    """Scores (n, C) of a chunk."""
    parts = (_sum_of_kernels(chunk[:, part], weights) @ mapped for part in rows_of(chunk))
    return np.concatenate([*parts])


def _transposed_product(chunk: NDArray, b: Array, weights: Array) -> tuple[Array]:
    """Sum (M, C) over the objects of a chunk of their kernels times b (n, C)."""
    parts = (_sum_of_kernels(chunk[:, part], weights).T @ b[part] for part in rows_of(chunk))
    return (np.sum([*parts], axis=0),)


def _curvature(
    chunk: NDArray,
    own: tuple[NDArray[np.intp], NDArray[np.intp]],
    d: Array,
    weights: Array,
    jitter: float,
    mapped: Array,
) -> tuple[Array]:
    """Sum (M, C) over the objects of a chunk of their kernels times the curved scores."""
    total = np.zeros_like(mapped)
    for part in rows_of(chunk):
        K = _with_jitter(_sum_of_kernels(chunk[:, part], weights), part, own, jitter)
        total += K.T @ Sites(d[part]).apply(K @ mapped)
    return (total,)


def _with_jitter(
    K: Array, part: slice, own: tuple[NDArray[np.intp], NDArray[np.intp]], jitter: float
) -> Array:
    """Kernels of some rows of a chunk, with the jitter where landmarks meet themselves."""
    here = (own[0] >= part.start) & (own[0] < part.start + len(K))
    K[own[0][here] - part.start, own[1][here]] += jitter
    return K


def _weighted_square(
    chunk: NDArray,
    own: tuple[NDArray[np.intp], NDArray[np.intp]],
    by_object: Array,
    weights: Array,
    jitter: float,
    root: Array,
) -> tuple[Array]:
    """Sum (M, M) over the objects of a chunk of L^-1 k k' L^-T, times their weights (n,)."""
    total = np.zeros((len(root), len(root)))
    for part in rows_of(chunk):
        K = _with_jitter(_sum_of_kernels(chunk[:, part], weights), part, own, jitter)
        half = solve_triangular(root, K.T) * np.sqrt(by_object[part])
        # As in memory, see `SINGLE_PRECISION_NUMBERS`.
        half = half.astype(np.float32) if half.size >= SINGLE_PRECISION_NUMBERS else half
        total += half @ half.T
    return (total,)
