"""Packed form of positive definite matrices, to and from their Cholesky factors."""

import numpy as np
import numpy.typing as npt

__all__ = ["Triangle"]

type Array = npt.NDArray[np.float64]


class Triangle:
    """Matrices of order n in the packed form of `PositiveDefinite`."""

    def __init__(self, n: int):
        self._lower = np.tri(n, dtype=bool)
        self._diagonal = np.cumsum(np.arange(1, n + 1)) - 1

    def pack(self, factor: Array) -> Array:
        """Packed form of the lower triangular L (n, n).

        A diagonal entry of 0 is replaced by the smallest positive normal number: chi-square draws
        with almost zero degrees of freedom underflow to 0.
        """
        packed = factor[self._lower]
        diagonal = np.maximum(packed[self._diagonal], np.finfo(float).tiny)
        packed[self._diagonal] = np.log(diagonal)
        return packed

    def unpack(self, packed: Array) -> Array:
        """L (n, n) of a packed form, in C order."""
        factor = np.zeros(self._lower.shape)
        factor[self._lower] = packed
        diagonal = np.einsum("ii->i", factor)
        diagonal[:] = np.exp(diagonal)
        return factor
