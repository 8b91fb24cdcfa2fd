"""Kernels of many objects with a few landmarks, chosen among the training objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, override

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel
from .normalization import with_centring
from .rows import Rows

# k-means is run on this many objects per cluster at most, so that they fit into memory.
OBJECTS_PER_CLUSTER = 50


@dataclass(frozen=True)
class Landmarks(BaseKernel):
    """Columns k(x, l_1), ..., k(x, l_m) of a kernel at landmarks, basis functions of the models."""

    base: BaseKernel
    n_components: int
    seed: int
    by: str = "uniform"

    is_kernel: ClassVar[bool] = False

    def chosen(self, X: Rows, steps: Sequence[str], name: str) -> tuple[Any, Sequence[str], Any]:
        """Kernel, steps left and landmarks (m, D) in place of the training objects (N, D).

        A trace before all other steps is that of the training objects; other constants are those of
        the landmarks. The same training objects in the same order give the same landmarks.
        """
        m = self.n_components
        if m > len(X):
            rule = f"at most the number of training objects, {len(X)}"
            raise argument_error("n_components", "landmarks", rule, str(m))
        landmarks = CHOICES[self.by](X, m, np.random.default_rng(self.seed))
        return *with_centring(self.base, X, steps, name, every_trace=True), landmarks

    @property
    @override
    def adds_features_up(self) -> bool:
        return self.base.adds_features_up

    @override
    def on_training(self, X: Any) -> Self:
        return replace(self, base=self.base.on_training(X))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return self.base.pairwise(X, Y)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self.base.diagonal(X)

    @override
    def describe(self, space: str | None) -> str:
        return f"landmarks {self.base.describe(space)}"


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


CHOICES: dict[str, Callable[[Rows, int, np.random.Generator], NDArray]] = {
    "uniform": _uniform,
    "kmeans": _by_k_means,
}
