"""Nystroem features: m basis functions that replace a kernel among N objects.

With landmarks l_1..l_m among the training objects, the features of x are

    phi(x) = K_ll^(-1/2) (k(x, l_1), ..., k(x, l_m)),

so that phi(x)'phi(x') is the kernel projected on the landmarks, and the kernel itself for m = N.
Williams & Seeger (2001), Using the Nystroem method to speed up kernel machines.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Self, override

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel

__all__ = ["NystroemFeatures"]

# Eigenvalues of the landmarks' kernel below this fraction of the largest are dominated by rounding.
RELATIVE_FLOOR = 1e-12


@dataclass(frozen=True)
class NystroemFeatures(BaseKernel):
    """Nystroem features of another kernel, with landmarks drawn from the training objects.

    The features of c times the kernel are sqrt(c) times those of the kernel.

    Parameters
    ----------
    base : BaseKernel
        A function of features.
    n_components : int
        Number of landmarks m.
    seed : int
        Seed of the landmarks: the same training objects give the same landmarks.
    """

    base: BaseKernel
    n_components: int
    seed: int
    is_kernel: ClassVar[bool] = False

    @property
    @override
    def adds_features_up(self) -> bool:
        return self.base.adds_features_up

    @override
    def on_training(self, X: NDArray) -> Self:
        return replace(self, base=self.base.on_training(X))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Features (n, m) of X with landmarks among Y; O(m^3 + n m (m + D))."""
        known = X if Y is None else Y
        if self.n_components > len(known):
            raise argument_error(
                "n_components",
                "nystroem",
                f"at most the number of training objects, {len(known)}",
                str(self.n_components),
            )
        rng = np.random.default_rng(self.seed)
        landmarks = known[rng.choice(len(known), self.n_components, replace=False)]
        eigenvalues, axes = np.linalg.eigh(self.base.pairwise(landmarks, None))
        # The floor keeps division by small roots from amplifying rounding errors.
        least = max(RELATIVE_FLOOR * eigenvalues[-1], np.finfo(float).tiny)
        roots = np.sqrt(np.maximum(eigenvalues, least))
        return self.base.pairwise(X, landmarks) @ (axes / roots) @ axes.T

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        """Not defined: X does not hold the landmarks, and features are not normalised."""
        raise NotImplementedError("Nystroem features cannot be normalised: they are not a kernel.")

    @override
    def describe(self, space: str | None) -> str:
        return f"nystroem {self.base.describe(space)}"
