"""Packed form of X = LL': the lower triangle of L by rows, with the logarithms of its diagonal."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

type Array = npt.NDArray[np.float64]
type Positions = npt.NDArray[np.intp]


class Triangle(NamedTuple):
    """Mask of a lower triangle (n, n); packed rows' lengths, first and diagonal positions (n,).

    `places` (n, n) are positions of a symmetric matrix; `fold` counts those off the diagonal twice.
    """

    lower: npt.NDArray[np.bool_]
    lengths: Positions
    first: Positions
    diagonal: Positions
    places: Positions
    fold: Array

    def pack(self, factor: Array) -> Array:
        """Packed form of the lower triangular L (n, n)."""
        packed = factor[self.lower]
        # Chi-square draws with almost zero degrees of freedom underflow to 0.
        packed[self.diagonal] = np.log(np.maximum(packed[self.diagonal], np.finfo(float).tiny))
        return packed

    def unpack(self, packed: Array) -> Array:
        """L (n, n) of a packed form, in C order."""
        factor = np.zeros(self.lower.shape)
        factor[self.lower] = packed
        diagonal = np.einsum("ii->i", factor)
        diagonal[:] = np.exp(diagonal)
        return factor


@lru_cache(8)
def triangle(n: int) -> Triangle:
    """Layout of the packed form of matrices of order n."""
    lower = np.tri(n, dtype=bool)
    lengths = np.arange(1, n + 1)
    ends = np.cumsum(lengths)
    places = np.where(lower, np.cumsum(lower).reshape(n, n) - 1, 0)
    places = np.maximum(places, places.T)
    return Triangle(lower, lengths, ends - lengths, ends - 1, places, (2.0 - np.eye(n))[lower])


@lru_cache(8)
def triangle_of(length: int) -> Triangle:
    """Layout of a packed form with so many numbers."""
    return triangle(order_of_packed(length))


def order_of_packed(length: int) -> int:
    """Find n with n(n+1)/2 = `length`."""
    return (math.isqrt(8 * length + 1) - 1) // 2
