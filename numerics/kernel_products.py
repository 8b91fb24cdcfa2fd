"""Stacks of kernels, and sums over pairs of kernels from precomputed products K_i'K_j."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from .packed_factor import triangle, triangle_of

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelProducts:
    """Products of kernels (S, N, M) by pair: K_i'K_i, and K_i'K_j + K_j'K_i for j < i.

    `products` (S (S + 1) / 2, M (M + 1) / 2) has the lower triangles, by rows, of both symmetries.
    """

    products: Array

    @classmethod
    def of(cls, design: Array, weights: Array | None = None) -> Self:
        """Form the products, with the objects' weights (N,) if given; O(S^2 N M^2)."""
        pairs = np.tril_indices(len(design))
        lower = triangle(design.shape[2]).lower
        products = np.empty((len(pairs[0]), lower.sum()))
        weighted = design if weights is None else design * weights[:, None]
        for k, (i, j) in enumerate(zip(*pairs, strict=True)):
            product = weighted[i].T @ design[j]
            products[k] = (product if i == j else product + product.T)[lower]
        return cls(products)

    def gram(self, weights: Array) -> Array:
        """G(B) = sum_ij B_ij K_i'K_j (M, M) for symmetric B (S, S); O(S^2 M^2)."""
        pairs, entries = map(triangle_of, self.products.shape)
        return (weights[pairs.lower] @ self.products)[entries.places]

    def traces(self, matrix: Array) -> Array:
        """tr(K_i'K_j matrix) (S, S) for the lower triangle of a symmetric (M, M); O(S^2 M^2)."""
        pairs, entries = map(triangle_of, self.products.shape)
        sums = self.products @ (entries.fold * matrix[entries.lower])
        return (sums / pairs.fold)[pairs.places]


@dataclass(frozen=True)
class Design:
    """Stack (S, N, M) of kernels or expansions, with their products if these take little memory.

    If `constant`, the last kernel always has weight 1, and no entry in `beta`.
    """

    stack: Array
    products: KernelProducts | None
    constant: bool = False

    @classmethod
    def of(cls, stack: Array, constant: bool = False) -> Self:
        """Precompute the products if they take at most 1.5 times the memory of the stack."""
        s, n, m = stack.shape
        products = KernelProducts.of(stack) if (s + 1) * m <= 6 * n else None
        return cls(stack, products, constant)

    def composite(self, beta: Array) -> Array:
        """K_beta = sum_s beta_s K_s, shape (N, M); O(S N M), with S the number of weights not 0."""
        weights = self._weights(beta)
        flat = self.stack.reshape(len(self.stack), -1)
        # Of hundreds of kernels, a selection takes a few: to read all would take most of the time.
        if 4 * np.count_nonzero(weights) < len(weights):
            weights, flat = weights[weights != 0], flat[weights != 0]
        return (weights @ flat).reshape(self.stack.shape[1:])

    def gram(self, beta: Array, composite: Array) -> Array:
        """K_beta'K_beta (M, M) as a new array; O(S^2 M^2) with products, otherwise O(N M^2)."""
        if self.products is None:
            return composite.T @ composite
        weights = self._weights(beta)
        return self.products.gram(np.outer(weights, weights))

    def _weights(self, beta: Array) -> Array:
        """Weights (S,) of all kernels, as floats."""
        return np.append(beta, 1.0) if self.constant else np.asarray(beta, dtype=float)
