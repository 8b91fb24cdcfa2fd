"""Landmarks: m basis functions that replace the N basis functions of a kernel among N objects.

With landmarks l_1..l_m, the Nystroem features of x are

    phi(x) = K_ll^(-1/2) (k(x, l_1), ..., k(x, l_m)),

so that phi(x)'phi(x') is the kernel projected on the landmarks, and the kernel itself if all N
training objects are landmarks.  Williams & Seeger (2001), Using the Nystroem method to speed up
kernel machines.

The inner products phi(x)'phi(l) with the landmarks are the columns k(x, l) of the kernel itself,
which are the basis functions of the models.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self, override

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel
from .kernel_features import FeatureMap, KernelFeatures
from .normalization import around
from .rows import Rows

__all__ = ["LANDMARKS", "LandmarkColumns", "NystroemFeatures"]

# Eigenvalues of the landmarks' kernel below this fraction of the largest are dominated by rounding.
RELATIVE_FLOOR = 1e-12
# k-means is run on this many objects a cluster at most, so that they fit into memory.
OBJECTS_A_CLUSTER = 50


@dataclass(frozen=True)
class NystroemFeatures(KernelFeatures):
    """Nystroem features of another kernel.

    The features of c times the kernel are sqrt(c) times those of the kernel.

    Parameters
    ----------
    base : BaseKernel
        A function of features.
    n_components : int
        Number of landmarks m.
    seed : int
        Seed of the landmarks: the same training objects in the same order give the same landmarks.
    by : {"uniform", "kmeans"}
        Choice of the landmarks.
    """

    n_components: int
    seed: int
    by: str = "uniform"

    kind = "nystroem"

    @override
    def around(self, X: Rows, steps: Sequence[str]) -> tuple[Self, Sequence[str]]:
        base, steps = around(self.base, X, steps)
        return replace(self, base=base), steps

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        """Choose landmarks; O(m^3), and what their choice costs."""
        if self.n_components > len(X):
            raise argument_error(
                "n_components",
                self.kind,
                f"at most the number of training objects, {len(X)}",
                str(self.n_components),
            )
        rng = np.random.default_rng(self.seed)
        return _Projection.on(self.base, LANDMARKS[self.by](self.base, X, self.n_components, rng))


@dataclass(frozen=True)
class LandmarkColumns(NystroemFeatures):
    """Columns of another kernel at landmarks, from the Nystroem features.

    The columns of c times the kernel are c times those of the kernel.
    """

    kind = "landmarks"

    @override
    def after_steps(self, fitted: FeatureMap, normalized: FeatureMap) -> FeatureMap:
        assert isinstance(fitted, _Projection)
        return _Columns(normalized, normalized(fitted.landmarks))


@dataclass(frozen=True)
class _Columns:
    """Inner products with the features (m, M) of landmarks."""

    features: FeatureMap
    at_landmarks: NDArray

    @property
    def n_features(self) -> int:
        return len(self.at_landmarks)

    @property
    def constants(self) -> tuple[NDArray, ...]:
        return self.features.constants

    def __call__(self, X: NDArray) -> NDArray:
        """Columns (n, m); O(n m (m + D))."""
        return self.features(X) @ self.at_landmarks.T


@dataclass(frozen=True)
class _Projection:
    """Features of objects from their kernel with the landmarks (m, D)."""

    base: BaseKernel
    landmarks: NDArray
    root: NDArray

    @classmethod
    def on(cls, base: BaseKernel, landmarks: NDArray) -> "_Projection":
        eigenvalues, axes = np.linalg.eigh(base.pairwise(landmarks, None))
        # The floor keeps division by small roots from amplifying rounding errors.
        least = max(RELATIVE_FLOOR * eigenvalues[-1], np.finfo(float).tiny)
        roots = np.sqrt(np.maximum(eigenvalues, least))
        return cls(base, landmarks, (axes / roots) @ axes.T)

    @property
    def n_features(self) -> int:
        return len(self.landmarks)

    @property
    def constants(self) -> tuple[NDArray, ...]:
        # The root has rounding errors that a small eigenvalue magnifies.
        return self.landmarks, self.base.pairwise(self.landmarks, None)

    def __call__(self, X: NDArray) -> NDArray:
        """Features (n, m); O(n m (m + D))."""
        return self.base.pairwise(X, self.landmarks) @ self.root


def _uniform(base: BaseKernel, X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Draw training objects that differ as far as there are different ones.

    Imputed objects may be equal: many equal landmarks would be a single column.
    """
    chosen = rng.choice(len(X), m, replace=False)
    rows = np.asarray(X[chosen])
    repeated = _repeated(rows)
    if not repeated.any():
        return rows
    left = rng.permutation(np.setdiff1d(np.arange(len(X)), chosen))
    while repeated.any() and len(left):
        places = np.flatnonzero(repeated)[: len(left)]
        rows[places], left = np.asarray(X[left[: len(places)]]), left[len(places) :]
        repeated = _repeated(rows)
    return rows


def _repeated(rows: NDArray) -> NDArray:
    """Whether each row is that of an earlier one."""
    repeated = np.ones(len(rows), dtype=bool)
    repeated[np.unique(rows, axis=0, return_index=True)[1]] = False
    return repeated


def _by_k_means(base: BaseKernel, X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Centres of clusters of the training objects, which need not be objects themselves.

    Zhang, Tsang & Kwok (2008), Improved Nystroem low-rank approximation and error analysis.
    Clusters come from a uniform sample of 50 m objects at most.
    """
    from sklearn.cluster import MiniBatchKMeans

    sample = _uniform(base, X, min(OBJECTS_A_CLUSTER * m, len(X)), rng)
    # scikit-learn forms distances from squares.
    centre = np.median(sample, axis=0)
    clusters = MiniBatchKMeans(m, random_state=int(rng.integers(2**31)), n_init=1)
    return clusters.fit(sample - centre).cluster_centers_ + centre


LANDMARKS: dict[str, Callable[[BaseKernel, Rows, int, np.random.Generator], NDArray]] = {
    "uniform": _uniform,
    "kmeans": _by_k_means,
}
