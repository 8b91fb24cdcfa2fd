"""Features whose inner products are a kernel or approximate it, for many objects.

Features of normalised kernels
------------------------------
With phi(x) the features, k the kernel and N training objects:

========== ==============================================  ========================================
step       features                                        error
========== ==============================================  ========================================
"trace"    phi(x) sqrt(N / sum_i k(x_i, x_i))              that of phi: k(x, x) is exact
"unit"     phi(x) / sqrt(k(x, x))                          that of phi: k(x, x) is exact
"center"   phi(x) - mu, mu = mean_i phi(x_i)               that of phi, centred
========== ==============================================  ========================================

After centring, k(x, x) is k(x, x) - 2 phi(x)'mu + mu'mu, whose means come from the features: for
Nystroem features it is an upper bound of ||phi(x) - mu||^2, for exact features it is exact.  The
inner products of features are those of the normalised kernel's own features, so that no step adds
to their error.  Nystroem features therefore have a trace of at most N after "trace", and
self-similarities of at most 1 after "unit".  Random features of a Gaussian, Laplace or Matern
kernel have them exactly.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from hashlib import sha256
from math import comb
from typing import Any, ClassVar, Protocol, Self, override

import numpy as np
from numpy.typing import NDArray

from ...validation import argument_error
from .base import BaseKernel, Linear, Polynomial
from .normalization import Around, around
from .rows import Rows, blocks_of

__all__ = [
    *("ExactFeatures", "FeatureMap", "KernelFeatures"),
    *("check_exact", "fingerprint", "normalized_map"),
]

# More exact features than this cost more than Nystroem features as good.
MOST_FEATURES = 5_000


class FeatureMap(Protocol):
    """Map of objects (n, D) to features (n, M), with everything that depends on training data."""

    @property
    def n_features(self) -> int:
        """Number of features M."""
        ...

    @property
    def constants(self) -> tuple[NDArray, ...]:
        """Numbers that tell the map from maps with other training objects or another order."""
        ...

    def __call__(self, X: NDArray) -> NDArray:
        """Features (n, M) of objects (n, D)."""
        ...


def fingerprint(constants: Sequence[NDArray]) -> str:
    """Short fingerprint of arrays up to rounding errors: last digits depend on the machine."""
    digest = sha256()
    for array in constants:
        largest = float(np.abs(array).max(initial=0.0))
        # Zeros may have a sign.
        parts = np.round(array / (largest or 1.0) * 2**20) + 0.0
        digest.update(f"{array.shape} {largest:.6g}".encode() + parts.tobytes())
    return digest.hexdigest()[:8]


@dataclass(frozen=True)
class KernelFeatures(BaseKernel):
    """Features in place of a kernel.

    Parameters
    ----------
    base : BaseKernel
        A function of features.
    """

    base: BaseKernel
    is_kernel: ClassVar[bool] = False
    kind: ClassVar[str]

    @abstractmethod
    def fitted(self, X: Rows) -> FeatureMap:
        """Choose what depends on the training objects (N, D)."""

    def around(self, X: Rows, steps: Sequence[str]) -> tuple[Self, Sequence[str]]:
        """Features of a kernel shifted where centring cancels the shift, and the steps left."""
        return self, steps

    def after_steps(self, fitted: FeatureMap, normalized: FeatureMap) -> FeatureMap:
        """Make the columns of the stack from the features of the normalised kernel."""
        return normalized

    @property
    @override
    def adds_features_up(self) -> bool:
        return self.base.adds_features_up

    @override
    def on_training(self, X: Any) -> Self:
        return replace(self, base=self.base.on_training(X))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Features (n, M) of X, with the training objects Y."""
        features = self.fitted(X if Y is None else Y)
        return self.after_steps(features, features)(X)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self.base.diagonal(X)

    @override
    def describe(self, space: str | None) -> str:
        return f"{self.kind} {self.base.describe(space)}"


@dataclass(frozen=True)
class ExactFeatures(KernelFeatures):
    """Features whose inner products are a linear or polynomial kernel."""

    kind = "exact"

    @override
    def around(self, X: Rows, steps: Sequence[str]) -> tuple[Self, Sequence[str]]:
        base, steps = around(self.base, X, steps)
        return replace(self, base=base), steps

    @override
    def fitted(self, X: Rows) -> FeatureMap:
        return exact_map(self.base, X.shape[1])


@singledispatch
def exact_map(base: BaseKernel, n_columns: int) -> FeatureMap:
    """Map of objects with `n_columns` features to exact features of a kernel."""
    raise argument_error(
        "kernels", "exact_features", "linear or polynomial", repr(base.describe(None))
    )


def check_exact(base: BaseKernel) -> None:
    """Raise unless a kernel has exact features."""
    if exact_map.dispatch(type(base)) is exact_map.dispatch(BaseKernel):
        exact_map(base, 1)


@dataclass(frozen=True)
class _Monomials:
    """Monomials of the features, each multiplied by the root of its coefficient."""

    monomials: Any
    roots: NDArray

    @property
    def n_features(self) -> int:
        return len(self.roots)

    @property
    def constants(self) -> tuple[NDArray, ...]:
        return (self.roots,)

    def __call__(self, X: NDArray) -> NDArray:
        return self.monomials.transform(X) * self.roots


@dataclass(frozen=True)
class _Shifted:
    """Features of another map, of objects minus `centre` (D,), times `root`."""

    features: FeatureMap
    centre: NDArray
    root: float

    @property
    def n_features(self) -> int:
        return self.features.n_features

    @property
    def constants(self) -> tuple[NDArray, ...]:
        return (*self.features.constants, self.centre, np.array([self.root]))

    def __call__(self, X: NDArray) -> NDArray:
        return self.features(X - self.centre) * self.root


@exact_map.register
def _(base: Around, n_columns: int) -> FeatureMap:
    return _Shifted(exact_map(base.base, n_columns), base.centre, np.sqrt(base.scale))


@exact_map.register
def _(base: Linear, n_columns: int) -> FeatureMap:
    return exact_map(Polynomial(1, 1.0, 0.0), n_columns)


@exact_map.register
def _(base: Polynomial, n_columns: int) -> FeatureMap:
    """Multinomial theorem: (gamma x'x + c)^d has the monomials of degree up to d."""
    from scipy.special import gammaln
    from sklearn.preprocessing import PolynomialFeatures

    degree = int(base.degree)
    lowest = 0 if base.coef0 else degree
    n_features = comb(n_columns + degree, degree)
    n_features -= comb(n_columns + degree - 1, degree - 1) if lowest else 0
    if n_features > MOST_FEATURES:
        raise argument_error(
            "kernels",
            "exact_features",
            f"of at most {MOST_FEATURES} features (or use nystroem)",
            f"{n_features} for {base.describe(None)!r} of {n_columns} columns",
        )
    monomials = PolynomialFeatures((lowest, degree), include_bias=lowest == 0)
    powers = monomials.fit(np.zeros((1, n_columns))).powers_
    total = powers.sum(axis=1)
    logs = gammaln(degree + 1) - gammaln(powers + 1).sum(axis=1) - gammaln(degree - total + 1)
    scale = base.gamma**total * base.coef0 ** (degree - total)
    return _Monomials(monomials, np.sqrt(np.exp(logs) * scale))


type Block = tuple[NDArray, NDArray | None]
# From features (n, M) and self-similarities (n,) to those after a step; features may be None.
type Step = Callable[[NDArray | None, NDArray], tuple[NDArray | None, NDArray]]


@dataclass(frozen=True)
class _NormalizedMap:
    """Features of a normalised kernel, with the constants of the training objects."""

    features: FeatureMap
    diagonal: Callable[[NDArray], NDArray]
    steps: tuple[Step, ...] = ()
    centred: bool = False

    @property
    def n_features(self) -> int:
        return self.features.n_features

    @property
    def constants(self) -> tuple[NDArray, ...]:
        # The steps' constants are told by what they do to one object, whose self-similarity is so
        # large that no centre makes it negative.
        values, _ = self._stepped(np.ones((1, self.n_features)), np.array([1e200]))
        assert values is not None
        return (*self.features.constants, values)

    def __call__(self, X: NDArray) -> NDArray:
        values, _ = self._normalized(X, self.features(X))
        assert values is not None
        return values

    def self_similarity(self, X: NDArray) -> NDArray:
        """Self-similarities after the steps; features are computed only if a step centres."""
        return self._normalized(X, self.features(X) if self.centred else None)[1]

    def _normalized(self, X: NDArray, values: NDArray | None) -> tuple[NDArray | None, NDArray]:
        return self._stepped(values, self.diagonal(X))

    def _stepped(self, values: NDArray | None, diagonal: NDArray) -> tuple[NDArray | None, NDArray]:
        for step in self.steps:
            values, diagonal = step(values, diagonal)
        return values, diagonal


def normalized_map(base: KernelFeatures, X: Rows, steps: Sequence[str], name: str) -> FeatureMap:
    """Features of a normalised kernel.

    Parameters
    ----------
    base : KernelFeatures
    X : Rows (N, D)
        Training objects.
    steps : sequence of {"trace", "unit", "center"}
    name : str
        Name of the kernel, for messages.

    Raises
    ------
    ValueError
        For a trace or a self-similarity that is not positive.

    Notes
    -----
    "trace" and "center" read the training objects once more, in blocks; "center" computes their
    features, which are not kept.
    """
    base, steps = base.around(X, steps)
    features = base.fitted(X)
    if not steps:
        return base.after_steps(features, features)
    normalized = _NormalizedMap(features, base.diagonal)
    for step in steps:
        constant = STEPS[step](normalized, X, name)
        normalized = replace(
            normalized,
            steps=(*normalized.steps, constant),
            centred=normalized.centred or step == "center",
        )
    return base.after_steps(features, normalized)


def _to_trace(normalized: _NormalizedMap, X: Rows, name: str) -> Step:
    width = normalized.n_features
    trace = sum(normalized.self_similarity(x).sum() for _, x in blocks_of(X, width))
    if not trace > 0:
        raise argument_error(
            "X", name, "of positive trace for the 'trace' normalisation", f"a trace of {trace:.4g}"
        )
    scale = len(X) / trace

    def step(values: NDArray | None, diagonal: NDArray) -> tuple[NDArray | None, NDArray]:
        return None if values is None else values * np.sqrt(scale), diagonal * scale

    return step


def _to_unit(normalized: _NormalizedMap, X: Rows, name: str) -> Step:
    def step(values: NDArray | None, diagonal: NDArray) -> tuple[NDArray | None, NDArray]:
        if not np.all(diagonal > 0):
            worst = int(np.argmin(diagonal))
            raise argument_error(
                "X",
                name,
                "of positive self-similarities for the 'unit' normalisation",
                f"{diagonal[worst]:.4g} for an object",
            )
        scaled = None if values is None else values / np.sqrt(diagonal)[:, None]
        return scaled, np.ones_like(diagonal)

    return step


def _to_zero_mean(normalized: _NormalizedMap, X: Rows, name: str) -> Step:
    width = normalized.n_features
    mean = np.zeros(width)
    for _, x in blocks_of(X, width):
        mean += normalized(x).sum(axis=0) / len(X)

    def step(values: NDArray | None, diagonal: NDArray) -> tuple[NDArray | None, NDArray]:
        assert values is not None
        return values - mean, diagonal - 2 * values @ mean + mean @ mean

    return step


STEPS: dict[str, Callable[[_NormalizedMap, Rows, str], Step]] = {
    "trace": _to_trace,
    "unit": _to_unit,
    "center": _to_zero_mean,
}
