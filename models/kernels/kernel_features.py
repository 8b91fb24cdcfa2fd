"""Nystroem features of kernels, and their columns at landmarks, for many objects.

With phi(x) the features of the kernel k and N training objects, a normalisation gives

========== ==============================================
step       features
========== ==============================================
"trace"    phi(x) sqrt(N / sum_i k(x_i, x_i))
"unit"     phi(x) / sqrt(k(x, x))
"center"   phi(x) - mu, mu = mean_i phi(x_i)
========== ==============================================

k(x, x) is exact, so that no step adds to the error of the inner products. Features have a trace of
at most N after "trace" and self-similarities of at most 1 after "unit". After centring, k(x, x) is
k(x, x) - 2 phi(x)'mu + mu'mu, an upper bound of ||phi(x) - mu||^2.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel
from .normalization import around, check_self_similarity, check_trace
from .rows import Rows, blocks_of

__all__ = ["LANDMARKS", "FeatureMap", "LandmarkColumns", "NystroemFeatures"]

# Eigenvalues of the landmarks' kernel below this fraction of the largest are dominated by rounding.
RELATIVE_FLOOR = 1e-12
# k-means is run on this many objects per cluster at most, so that they fit into memory.
OBJECTS_PER_CLUSTER = 50


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Map of objects (n, D) to features (n, m); `constants` tell it from those of other objects."""

    function: Callable[[NDArray], NDArray]
    landmarks: NDArray
    constants: tuple[NDArray, ...]

    def __call__(self, X: NDArray) -> NDArray:
        """Features (n, m) of objects (n, D)."""
        return self.function(X)


@dataclass(frozen=True)
class NystroemFeatures(BaseKernel):
    """Nystroem features K_ll^(-1/2) k(x, l) with landmarks l_1..l_m, in place of a kernel `base`.

    Williams & Seeger (2001), Using the Nystroem method to speed up kernel machines. scikit-learn's
    Nystroem takes no kernel with a shifted origin, and its floor of eigenvalues is absolute.
    """

    base: BaseKernel
    n_components: int
    seed: int
    by: str = "uniform"

    is_kernel: ClassVar[bool] = False
    kind: ClassVar[str] = "nystroem"

    def fitted(self, X: Rows) -> FeatureMap:
        """Choose landmarks among the training objects (N, D); O(m^3), and the choice."""
        base, m = self.base, self.n_components
        if m > len(X):
            rule = f"at most the number of training objects, {len(X)}"
            raise argument_error("n_components", self.kind, rule, str(m))
        landmarks = LANDMARKS[self.by](X, m, np.random.default_rng(self.seed))
        gram = base.pairwise(landmarks, None)
        eigenvalues, axes = np.linalg.eigh(gram)
        # The floor keeps division by small roots from amplifying rounding errors.
        least = max(RELATIVE_FLOOR * eigenvalues[-1], np.finfo(float).tiny)
        root = (axes / np.sqrt(np.maximum(eigenvalues, least))) @ axes.T
        # The root has rounding errors that a small eigenvalue magnifies: the Gram matrix is told.
        constants = (landmarks, gram)
        return FeatureMap(lambda X: base.pairwise(X, landmarks) @ root, landmarks, constants)

    def normalized(self, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
        """Features of the normalised kernel on training objects (N, D); `name` is for messages."""
        base, steps = around(self.base, X, steps)
        return _normalized(replace(self, base=base).fitted(X), base.diagonal, X, steps, name)

    @property
    @override
    def adds_features_up(self) -> bool:
        return self.base.adds_features_up

    @override
    def on_training(self, X: Any) -> Self:
        return replace(self, base=self.base.on_training(X))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Features (n, m) of X, with the training objects Y."""
        return self.normalized(X if Y is None else Y, (), self.kind)(X)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self.base.diagonal(X)

    @override
    def describe(self, space: str | None) -> str:
        return f"{self.kind} {self.base.describe(space)}"


@dataclass(frozen=True)
class LandmarkColumns(NystroemFeatures):
    """Columns k(x, l) of a kernel: inner products of features with those of the landmarks."""

    kind = "landmarks"

    @override
    def normalized(self, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
        features = super().normalized(X, steps, name)
        at_landmarks = features(features.landmarks)
        return replace(features, function=lambda X: features(X) @ at_landmarks.T)


def _normalized(
    features: FeatureMap,
    diagonal: Callable[[NDArray], NDArray],
    X: Rows,
    steps: Sequence[str],
    name: str,
) -> FeatureMap:
    """Features of a normalised kernel; "trace" and "center" read X (N, D) again, in blocks."""
    done: list[tuple[str, Any]] = []
    m = len(features.landmarks)

    def stepped(values: NDArray, similarity: NDArray) -> tuple[NDArray, NDArray]:
        """Features (n, m) and self-similarities (n,) after the steps done."""
        for step, constant in done:
            values, similarity = _step(step, constant, values, similarity, name)
        return values, similarity

    def after_steps(x: NDArray) -> NDArray:
        return stepped(features(x), diagonal(x))[0]

    for step in steps:
        constant: Any = None
        if step == "trace":
            # Self-similarities depend on the features only after centring.
            centred = any(before == "center" for before, _ in done)
            trace = sum(
                stepped(features(x) if centred else np.empty((len(x), 0)), diagonal(x))[1].sum()
                for x in blocks_of(X, m)
            )
            constant = len(X) / check_trace(trace, name)
        elif step == "center":
            constant = np.zeros(m)
            for x in blocks_of(X, m):
                constant += after_steps(x).sum(axis=0) / len(X)
        done.append((step, constant))
    if not done:
        return features
    # The steps' constants are told by what they do to one object, whose self-similarity is so
    # large that no centre makes it negative.
    told, _ = stepped(np.ones((1, m)), np.array([1e200]))
    return replace(features, function=after_steps, constants=(*features.constants, told))


def _step(
    step: str, constant: Any, values: NDArray, diagonal: NDArray, name: str
) -> tuple[NDArray, NDArray]:
    """Features (n, m) and self-similarities (n,) after one step with its constant."""
    if step == "trace":
        return values * np.sqrt(constant), diagonal * constant
    if step == "unit":
        check_self_similarity(diagonal, name)
        return values / np.sqrt(diagonal)[:, None], np.ones_like(diagonal)
    return values - constant, diagonal - 2 * values @ constant + constant @ constant


def _uniform(X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Draw training objects that differ, as far as there are: equal ones would be one column."""
    chosen = rng.choice(len(X), m, replace=False)
    rows = np.asarray(X[chosen])
    repeated = pd.DataFrame(rows).duplicated().to_numpy()
    if not repeated.any():
        return rows
    left = rng.permutation(np.setdiff1d(np.arange(len(X)), chosen))
    while repeated.any() and len(left):
        places = np.flatnonzero(repeated)[: len(left)]
        rows[places], left = np.asarray(X[left[: len(places)]]), left[len(places) :]
        repeated = pd.DataFrame(rows).duplicated().to_numpy()
    return rows


def _by_k_means(X: Rows, m: int, rng: np.random.Generator) -> NDArray:
    """Centres of clusters of a uniform sample of the training objects.

    Zhang, Tsang & Kwok (2008), Improved Nystroem low-rank approximation and error analysis.
    """
    from sklearn.cluster import MiniBatchKMeans

    sample = _uniform(X, min(OBJECTS_PER_CLUSTER * m, len(X)), rng)
    # scikit-learn forms distances from squares.
    centre = np.median(sample, axis=0)
    clusters = MiniBatchKMeans(m, random_state=int(rng.integers(2**31)), n_init=1)
    return clusters.fit(sample - centre).cluster_centers_ + centre


LANDMARKS: dict[str, Callable[[Rows, int, np.random.Generator], NDArray]] = {
    "uniform": _uniform,
    "kmeans": _by_k_means,
}
