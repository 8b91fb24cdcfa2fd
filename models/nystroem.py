"""Nystroem features: a basis expansion of m functions in place of a kernel among N objects.

With landmarks l_1..l_m among the training objects, the features of x are

    phi(x) = K_ll^(-1/2) (k(x, l_1), ..., k(x, l_m)),

so that phi(x)'phi(x') is the kernel projected on the landmarks, and the kernel itself where m = N.
Williams & Seeger (2001), Using the Nystroem method to speed up kernel machines.
"""

from dataclasses import dataclass
from typing import ClassVar, override

import numpy as np
from numpy.typing import NDArray
from sklearn.kernel_approximation import Nystroem

from .base_kernels import BaseKernel
from .checks import argument_error

__all__ = ["NystroemFeatures"]


@dataclass(frozen=True)
class NystroemFeatures(BaseKernel):
    """Nystroem features of another kernel, with landmarks drawn from the training objects.

    Parameters
    ----------
    base : BaseKernel
        A function of features.
    n_components : int
        Number of landmarks m.
    seed : int
        Of the landmarks: the same training objects give the same ones.
    """

    base: BaseKernel
    n_components: int
    seed: int
    is_kernel: ClassVar[bool] = False

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
        # Given the landmarks' kernel, scikit-learn has but to find its inverse root; it permutes
        # the columns of that.
        gram = self.base.pairwise(landmarks, None)
        fitted = Nystroem(kernel="precomputed", n_components=len(gram), random_state=0).fit(gram)
        return self.base.pairwise(X, landmarks) @ fitted.normalization_.T

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        features = self.pairwise(X, None)
        return np.einsum("nm,nm->n", features, features)

    @override
    def describe(self, space: str | None) -> str:
        return f"nystroem {self.base.describe(space)}"
