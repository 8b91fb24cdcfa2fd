"""Kernel functions of two sets of objects, before any normalisation.

Values are those of ``sklearn.metrics.pairwise``. Each kernel also computes its diagonal k(x, x) in
O(n D), so that normalisations need no Gram matrix for it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, override

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.pytensorf import rvs_in_graph
from scipy.spatial.distance import cdist

from ...validation import (
    argument_error,
    check_finite,
    check_name,
    check_positive,
    check_unmasked,
    number_or_nan,
)
from .widths import (
    half_at_median,
    median_of_distances,
    median_of_squared_distances,
    variance_of_entries,
)

type Rules = Mapping[str, Callable[[NDArray, str], float]]

#: Error of a kernel up to which squared distances may be computed from squares.
LOST = 1e-6


def _scikit_learn() -> Any:
    """Kernels of scikit-learn, imported late because the import takes half a second."""
    from sklearn.metrics import pairwise

    return pairwise


def near_zero(X: NDArray, Y: NDArray | None) -> tuple[NDArray, NDArray | None]:
    """Shift both sets of objects to around zero: squares lose as many digits as they are larger."""
    centre = np.median(X if Y is None else Y, axis=0)
    return X - centre, None if Y is None else Y - centre


def is_stationary(function: Any) -> bool:
    """Whether a covariance function of ``pm.gp.cov`` depends on differences of objects only."""
    if isinstance(function, pm.gp.cov.Combination):
        return all(map(is_stationary, function._factor_list))
    invariant = (pm.gp.cov.Stationary, pm.gp.cov.Constant, pm.gp.cov.WhiteNoise)
    return isinstance(function, invariant) or not isinstance(function, pm.gp.cov.BaseCovariance)


def is_affine(function: Any) -> bool:
    """Whether shifts of objects add to a covariance function only what centring removes."""
    if isinstance(function, pm.gp.cov.Add):
        return all(map(is_affine, function._factor_list))
    if isinstance(function, pm.gp.cov.Prod):
        scales = (int, float, np.number, pt.Variable, pm.gp.cov.Constant)
        others = [factor for factor in function._factor_list if not isinstance(factor, scales)]
        return is_stationary(function) or (len(others) == 1 and is_affine(others[0]))
    return isinstance(function, pm.gp.cov.Linear) or is_stationary(function)


class BaseKernel(ABC):
    """A kernel of features, without normalisation.  Subclasses are frozen dataclasses."""

    is_kernel: ClassVar[bool] = True
    _sums_features: ClassVar[bool] = False

    @property
    def adds_features_up(self) -> bool:
        """Whether the kernel sums over features without scaling them, so that scales matter."""
        return self._sums_features

    @property
    def is_affine(self) -> bool:
        """Whether shifts of the features change only what centring the kernel removes."""
        return False

    def on_training(self, X: NDArray) -> Self:
        """Kernel with its width chosen from the features (N, D) of the training objects."""
        return self

    @abstractmethod
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Values (n, m) of n objects X against m objects Y, or against themselves (None)."""

    @abstractmethod
    def diagonal(self, X: NDArray) -> NDArray:
        """Self-similarity of each object, shape (n,)."""

    def describe(self, space: str | None) -> str:
        """Readable name."""
        return label(self.function_name, space)

    @property
    def function_name(self) -> str:
        """Name of the function that specifies the kernel."""
        return type(self).__name__.lower()

    def train(self, X: NDArray, name: str) -> NDArray:
        """Values of the training objects among themselves; `name` is for messages."""
        return self.pairwise(X, None)

    def cross(self, X: NDArray, X_train: NDArray, name: str) -> NDArray:
        """Values of new objects against the training objects, shape (n, N)."""
        check_columns(X, X_train.shape[1], name)
        return self.pairwise(X, X_train)

    def new_diagonal(self, X: NDArray) -> NDArray | None:
        """Self-similarity of each new object, or None if it cannot be computed."""
        return self.diagonal(X)


def check_columns(X: NDArray, n_features: int, name: str) -> None:
    """Raise unless new objects have as many features as the training objects."""
    if X.shape[1] != n_features:
        rule = f"of {n_features} features, as the training objects are"
        raise argument_error("X", name, rule, f"{X.shape[1]} features")


def label(name: str, space: str | None, *settings: str) -> str:
    """Readable name of a kernel with its settings, and its feature space if there are several."""
    arguments = f"({', '.join(settings)})" if settings else ""
    return name + arguments + (f"[{space}]" if space is not None else "")


@dataclass(frozen=True)
class _Radial(BaseKernel):
    """Kernel with a width `gamma`: a number, perhaps by a `rule`, its name, or 1 / n_features."""

    gamma: float | str | None = None
    rule: str | None = None
    rules: ClassVar[Rules]
    _sums_features = True

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str):
            check_name(self.gamma, self.rules, "gamma", self.function_name)
        elif self.gamma is not None:
            check_positive(self.gamma, "gamma", self.function_name)

    @override
    def on_training(self, X: NDArray) -> Self:
        if not isinstance(self.gamma, str):
            return self
        owner = f"{self.function_name}({self.gamma!r})"
        return replace(self, gamma=self.rules[self.gamma](X, owner), rule=self.gamma)

    @property
    def number(self) -> float | None:
        """Gamma; raises a ValueError before a rule has computed it from training objects."""
        if isinstance(self.gamma, str):
            raise ValueError(
                f"{self.function_name}({self.gamma!r}) takes its width from the training objects, "
                "but has none. Call kernels(X_train) or kernels(X_new, X_train)."
            )
        return self.gamma

    def _scaled_distances(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Squared distances times gamma, with the digits of the differences of objects."""
        X, Y = near_zero(X, Y)
        gamma = 1 / X.shape[1] if self.number is None else self.number
        largest = max(
            np.einsum("nd,nd->n", each, each).max() for each in (X, Y) if each is not None
        )
        if not LOST <= 4 * np.finfo(float).eps * gamma * largest < np.inf:
            return gamma * _scikit_learn().euclidean_distances(X, Y, squared=True)
        # Slower, and exact within groups of objects that are far apart.
        return gamma * cdist(X, X if Y is None else Y, "sqeuclidean")

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.ones(len(X))

    @override
    def describe(self, space: str | None) -> str:
        if self.gamma is None:
            return label(self.function_name, space)
        setting = self.gamma if isinstance(self.gamma, str) else f"{self.gamma:.4g}"
        return label(
            self.function_name, space, setting if self.rule is None else f"{self.rule}={setting}"
        )


@dataclass(frozen=True)
class Gaussian(_Radial):
    """exp(-gamma ||x - x'||^2)."""

    rules: ClassVar[Rules] = {"median": median_of_squared_distances, "scale": variance_of_entries}

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return np.exp(-self._scaled_distances(X, Y))


@dataclass(frozen=True)
class InverseMultiquadric(_Radial):
    """(1 + gamma ||x - x'||^2)^(-1/2)."""

    rules: ClassVar[Rules] = {"median": half_at_median}

    @property
    @override
    def function_name(self) -> str:
        return "inverse_multiquadric"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return (1 + self._scaled_distances(X, Y)) ** -0.5


@dataclass(frozen=True)
class Laplace(_Radial):
    """exp(-gamma ||x - x'||_1)."""

    rules: ClassVar[Rules] = {"median": median_of_distances}

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return _scikit_learn().laplacian_kernel(X, Y, gamma=self.number)


@dataclass(frozen=True)
class Polynomial(BaseKernel):
    """(gamma x'x + coef0)^degree."""

    degree: int = 2
    gamma: float = 1.0
    coef0: float = 1.0
    _sums_features = True

    def __post_init__(self) -> None:
        degree = number_or_nan(self.degree)
        if not (degree >= 1 and degree.is_integer()):
            raise argument_error("degree", "polynomial", "a whole number from 1", repr(self.degree))
        check_positive(self.gamma, "gamma", "polynomial")
        if not 0 <= number_or_nan(self.coef0) < np.inf:
            rule = "0 or positive (below 0 the kernel is not positive semidefinite)"
            raise argument_error("coef0", "polynomial", rule, repr(self.coef0))

    @property
    @override
    def is_affine(self) -> bool:
        return self.degree == 1

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return _scikit_learn().polynomial_kernel(
            X, Y, degree=self.degree, gamma=self.gamma, coef0=self.coef0
        )

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return (self.gamma * np.einsum("nd,nd->n", X, X) + self.coef0) ** self.degree

    @override
    def describe(self, space: str | None) -> str:
        settings = [f"{self.degree:g}"]
        settings += [f"gamma={self.gamma:.4g}"] if self.gamma != 1 else []
        settings += [f"coef0={self.coef0:.4g}"] if self.coef0 != 1 else []
        return label("polynomial", space, *settings)


@dataclass(frozen=True)
class Linear(Polynomial):
    """x'x."""

    degree: int = 1
    coef0: float = 0.0

    @override
    def describe(self, space: str | None) -> str:
        return label("linear", space)


@dataclass(frozen=True)
class Cosine(BaseKernel):
    """x'x / (||x|| ||x'||), and 0 if a norm is 0."""

    _sums_features = True

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return _scikit_learn().cosine_similarity(X, Y)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return X.any(axis=1).astype(float)


@dataclass(frozen=True)
class Covariance(BaseKernel):
    """A covariance function of ``pm.gp.cov`` with fixed hyperparameters."""

    function: Any

    @property
    @override
    def is_affine(self) -> bool:
        return is_affine(self.function)

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        if is_stationary(self.function):
            X, Y = near_zero(X, Y)
        return self._evaluate(self.function(X) if Y is None else self.function(X, Y))

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self._evaluate(self.function(X, diag=True))

    @override
    def describe(self, space: str | None) -> str:
        return label(type(self.function).__name__, space)

    def _evaluate(self, graph: Any) -> NDArray:
        random = rvs_in_graph([graph])
        if random:
            listed = ", ".join(sorted(str(variable) for variable in random))
            rule, got = "a covariance with fixed hyperparameters", f"the random variable {listed}"
            raise argument_error("function", "covariance", rule, got)
        # The graph is evaluated once, so optimising it would cost more than it saves.
        return np.asarray(graph.eval(mode="FAST_COMPILE"), dtype=float)


@dataclass(frozen=True)
class Precomputed(BaseKernel):
    """Similarities instead of features; columns are training objects."""

    @override
    def train(self, X: NDArray, name: str) -> NDArray:
        if X.shape[0] != X.shape[1]:
            rule = (
                "a square Gram matrix of the training objects (for new objects: their "
                "similarities first, the training Gram matrix second)"
            )
            raise argument_error("X", name, rule, f"shape {X.shape}")
        return self.pairwise(X, None)

    @override
    def cross(self, X: NDArray, X_train: NDArray, name: str) -> NDArray:
        n_train = self.train(X_train, name).shape[0]
        if X.shape[1] != n_train:
            hint = ", which looks transposed" if X.shape[0] == n_train else ""
            rule = f"of shape (new objects, {n_train} training objects)"
            raise argument_error("X", name, rule, f"shape {X.shape}{hint}")
        return self.pairwise(X, None)

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return X

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.diagonal(X)

    @override
    def new_diagonal(self, X: NDArray) -> NDArray | None:
        return None

    @override
    def describe(self, space: str | None) -> str:
        return "precomputed" if space is None else space


@dataclass(frozen=True)
class BasisExpansion(BaseKernel):
    """Features instead of a kernel."""

    function: Callable[[NDArray], NDArray]
    is_kernel: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            got = repr(self.function)
            raise argument_error("function", "basis_expansion", "a function of objects", got)

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        given = self.function(X)
        check_unmasked(given, "function", "basis_expansion")
        features = np.asarray(given, dtype=float)
        if features.ndim != 2 or len(features) != len(X):
            rule = f"a map of {len(X)} objects to features of shape ({len(X)}, M)"
            raise argument_error("function", "basis_expansion", rule, f"shape {features.shape}")
        check_finite(features, "function", "basis_expansion")
        return features

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        features = self.pairwise(X, None)
        return np.einsum("nm,nm->n", features, features)

    @override
    def describe(self, space: str | None) -> str:
        return label(getattr(self.function, "__name__", "basis"), space)
