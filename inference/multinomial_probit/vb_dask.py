"""Expectations of the multinomial probit's kernels in a Dask array.

Each pass maps sums over the blocks and adds them where they are; this process does the algebra of
the columns. An iteration moves W (C, M) to each worker, and S C M numbers from one of them; the
labels have gone to the workers before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...models.kernels.dask_stack import DaskStack, rows_of
from ...numerics.kernel_products import KernelProducts
from ...numerics.threads import blocks_of
from ...validation import argument_error
from .expected_utilities import (
    ExpectedUtilities,
    Sums,
    added,
    sums_of_utilities,
)

__all__ = ["KernelsOfDask"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelsOfDask:
    """Known kernels (S, N, M) in blocks, and their products; as `ExpectedKernels`.

    Parameters
    ----------
    stack : DaskStack
    products : KernelProducts
    labels : sequence
        Class codes of each block's objects, where the workers are.
    """

    stack: DaskStack
    products: KernelProducts
    labels: Sequence[Any]

    @classmethod
    def of(cls, stack: DaskStack, labels: npt.NDArray[np.intp]) -> Self:
        """Compute the products; O(S^2 N M^2)."""
        (products,) = stack.total(_products)
        pairs = np.triu_indices(stack.shape[0])
        return cls(stack, KernelProducts(pairs, products), stack.held(labels))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Numbers of kernels, objects and columns."""
        return self.stack.shape

    def spread(self, weights: Array, regressors: Array) -> float:
        """Compute the standard deviation of the scores of all objects and classes."""
        number = len(self.stack) * len(regressors)
        total, squares = self.stack.total(_moments, weights, regressors)
        return float(np.sqrt(max(squares / number - (total / number) ** 2, 0.0)))

    def utilities(
        self,
        weights: Array,
        regressors: Array,
        labels: npt.NDArray[np.intp],
        objects: slice = slice(None),
    ) -> ExpectedUtilities:
        """Expect the utilities of all objects, whose labels the workers have."""
        if len(labels) != len(self.stack):
            raise argument_error(
                "labels", "VB", f"one of each of the {len(self.stack)} objects", f"{len(labels)}"
            )
        log_z, square, cross, products = self.stack.total(
            _utilities, weights, regressors, by_object=[self.labels]
        )
        none = np.empty((0, len(regressors)))
        return ExpectedUtilities(log_z, square, cross, none, products)


def _products(block: npt.NDArray[np.floating]) -> tuple[Array]:
    total = np.zeros(())
    for part in rows_of(block):
        total = total + KernelProducts.of(np.asarray(block[:, part], dtype=float)).products
    return (total,)


def _moments(
    block: npt.NDArray[np.floating], weights: Array, regressors: Array
) -> tuple[float, float]:
    total, squares = 0.0, 0.0
    for part in rows_of(block):
        rows = np.asarray(block[:, part], dtype=float)
        f = np.tensordot(weights, rows @ regressors.T, axes=1)
        total, squares = total + float(f.sum()), squares + float(np.vdot(f, f))
    return total, squares


def _utilities(
    block: npt.NDArray[np.floating],
    labels: npt.NDArray[np.integer],
    weights: Array,
    regressors: Array,
) -> Sums:
    def sums(objects: slice) -> Sums:
        rows = np.asarray(block[:, objects], dtype=float)
        return sums_of_utilities(rows, weights, regressors, labels[objects])

    return added(map(sums, blocks_of(len(labels))))
