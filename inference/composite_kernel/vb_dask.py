"""Likelihoods of the composite-kernel models' mean field whose kernels are in a Dask array.

Regression forms its sums in one pass over the blocks, which are not read again. In classification
an iteration passes twice: the square roots of the weights (N,) go to the blocks, a matrix (M, M)
comes from one of them, and moments (pairs of kernels, N) come from all.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import override

import numpy as np
import numpy.typing as npt

from ...models.composite_kernel import (
    Basis,
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from ...models.kernels.dask_stack import DaskStack
from ...numerics.kernel_products import KernelProducts
from ...numerics.threads import blocks_of
from .vb_likelihoods import (
    Bernoulli,
    Gaussian,
    WeightedKernels,
    moments_of_rows,
    targets_by_kernel,
    weighted_gram,
)

__all__ = ["bernoulli_of_dask", "gaussian_of_dask"]

type Array = npt.NDArray[np.float64]


def gaussian_of_dask(
    model: CompositeKernelRegression, blocks: DaskStack, shared_noise: bool
) -> Gaussian:
    """Form the sums of a regression; O(K^2 N M^2), in one pass."""
    targets = model.target_values
    columns = targets.reshape(len(targets), -1)
    products, projections = blocks.total(
        _of_regression, model.functions, by_object=[blocks.parts(columns)]
    )
    pairs = np.triu_indices(projections.shape[1])
    return Gaussian.of_sums(KernelProducts(pairs, products), projections, targets, shared_noise)


def bernoulli_of_dask(model: CompositeKernelClassification, blocks: DaskStack) -> Bernoulli:
    """Form the products of the labels with the kernels (K, N, M), in one pass."""
    signs = model.label_codes - 0.5
    (projections,) = blocks.total(_of_labels, model.functions, by_object=[blocks.parts(signs)])
    return Bernoulli(KernelsInBlocks(blocks, model.functions), projections, len(signs))


@dataclass(frozen=True)
class KernelsInBlocks(WeightedKernels):
    """Passes over blocks; the matrices (K, N, M) are made of each when it is read."""

    stack: DaskStack
    functions: Basis

    @override
    def gram(self, root: Array, scale: Array) -> Array:
        (gram,) = self.stack.total(_gram, self.functions, root, by_object=[self.stack.parts(scale)])
        # The order in memory that BLAS returned and LAPACK needs, whatever the sums made of it.
        return np.asfortranarray(gram)

    @override
    def moments(self, root: Array, mean: Array) -> Array:
        return np.concatenate(self.stack.each(_moments, self.functions, root, mean), axis=1)


def _each[T](
    block: npt.NDArray[np.floating], functions: Basis, of_rows: Callable[[Array, slice], T]
) -> Iterator[T]:
    """Values of a function on the matrices (K, n, M) of a few objects at a time."""
    for objects in blocks_of(block.shape[1]):
        yield of_rows(functions(np.asarray(block[:, objects], dtype=float)), objects)


def _total(arrays: Iterable[Array]) -> Array:
    return functools.reduce(np.add, arrays)


def _of_regression(
    block: npt.NDArray[np.floating], targets: Array, functions: Basis
) -> tuple[Array, Array]:
    products = _each(block, functions, lambda rows, _: KernelProducts.of(rows).products)
    projections = _each(block, functions, lambda rows, s: targets_by_kernel(rows, targets[s].T))
    return _total(products), _total(projections)


def _of_labels(block: npt.NDArray[np.floating], signs: Array, functions: Basis) -> tuple[Array]:
    return (_total(_each(block, functions, lambda rows, s: signs[s] @ rows)),)


def _gram(
    block: npt.NDArray[np.floating], scale: Array, functions: Basis, root: Array
) -> tuple[Array]:
    return (_total(_each(block, functions, lambda rows, s: weighted_gram(rows, root, scale[s]))),)


def _moments(block: npt.NDArray[np.floating], functions: Basis, root: Array, mean: Array) -> Array:
    moments = _each(block, functions, lambda rows, _: moments_of_rows(rows, root, mean))
    return np.concatenate(list(moments), axis=1)
