"""Sums over pairs of kernels that weigh all objects equally, from precomputed products."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

__all__ = ["KernelProducts"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelProducts:
    """The products K_i'K_j of a stack (S, N, M) of kernels.

    Attributes
    ----------
    pairs : tuple of array
        Indices i <= j.
    products : array of shape (S (S + 1) / 2, M, M)
        K_i'K_i, and K_i'K_j + K_j'K_i for i < j.
    fold : array of shape (M, M)
        Multiplier that folds a symmetric matrix onto its upper triangle; inner products with
        symmetric matrices stay the same.
    """

    pairs: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]
    products: Array
    fold: Array

    @classmethod
    def of(cls, design: Array) -> Self:
        """Form the products; O(S^2 N M^2)."""
        pairs = np.triu_indices(len(design))
        products = np.empty((len(pairs[0]), design.shape[2], design.shape[2]))
        for k, (i, j) in enumerate(zip(*pairs, strict=True)):
            product = design[i].T @ design[j]
            products[k] = product if i == j else product + product.T
        ones = np.ones(products.shape[1:])
        return cls(pairs, products, np.triu(ones) + np.triu(ones, 1))

    def gram(self, weights: Array) -> Array:
        """G(B) = sum_ij B_ij K_i'K_j (M, M) for symmetric B (S, S); O(S^2 M^2)."""
        return np.tensordot(weights[self.pairs], self.products, axes=1)

    def traces(self, matrix: Array) -> Array:
        """tr(K_i'K_j matrix) (S, S) for a symmetric or folded matrix (M, M); O(S^2 M^2)."""
        n_kernels = int(self.pairs[0][-1]) + 1
        out = np.empty((n_kernels, n_kernels))
        # The products P are symmetric, so that tr(P M) is the sum of P_ab M_ab.
        half = self.products.reshape(len(self.products), -1) @ matrix.ravel()
        half[self.pairs[0] != self.pairs[1]] *= 0.5
        out[self.pairs] = half
        out[self.pairs[::-1]] = half
        return out
