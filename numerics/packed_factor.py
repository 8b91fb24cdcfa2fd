"""Packed form of positive definite matrices, to and from their Cholesky factors.

X = LL' is packed as the lower triangle of L by rows, with the logarithms of its diagonal: n(n+1)/2
numbers.
"""

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

type Array = npt.NDArray[np.float64]
type Positions = npt.NDArray[np.intp]


class Triangle(NamedTuple):
    """Layout of the packed form of a matrix of order n; made by `triangle`.

    `lower` (n, n) is the mask of the lower triangle. `lengths`, `first` and `diagonal` (n,) are the
    lengths of the rows, and the positions of their first entries and of those on the diagonal.
    """

    lower: npt.NDArray[np.bool_]
    lengths: Positions
    first: Positions
    diagonal: Positions

    def pack(self, factor: Array) -> Array:
        """Packed form of the lower triangular L (n, n).

        A diagonal entry of 0 is replaced by the smallest positive normal number: chi-square draws
        with almost zero degrees of freedom underflow to 0.
        """
        packed = factor[self.lower]
        diagonal = np.maximum(packed[self.diagonal], np.finfo(float).tiny)
        packed[self.diagonal] = np.log(diagonal)
        return packed

    def unpack(self, packed: Array) -> Array:
        """L (n, n) of a packed form, in C order."""
        factor = np.zeros(self.lower.shape)
        factor[self.lower] = packed
        diagonal = np.einsum("ii->i", factor)
        diagonal[:] = np.exp(diagonal)
        return factor


@cache
def triangle(n: int) -> Triangle:
    """Layout of the packed form of matrices of order n."""
    lengths = np.arange(1, n + 1)
    ends = np.cumsum(lengths)
    return Triangle(np.tri(n, dtype=bool), lengths, ends - lengths, ends - 1)


def order_of_packed(length: int) -> int:
    """Find n with n(n+1)/2 = `length`."""
    return (math.isqrt(8 * length + 1) - 1) // 2
