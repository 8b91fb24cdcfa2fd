"""The kernel functions, each with the function that specifies it."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, override

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import rvs_in_graph
from scipy.spatial.distance import cdist, pdist

from ...user_warnings import warn_user
from ...validation import (
    Positive,
    argument_error,
    check_arguments,
    check_finite,
    check_positive,
    check_real,
    number_or_nan,
)
from .objects import order_of_rows
from .source import Theta
from .specification import Kernel, Kernels
from .warnings import KernelWarning

#: Error of a kernel up to which squared distances may be computed from squares.
LOST = 1e-6
#: Objects whose self-similarities are computed together, with the matrix between them.
ROWS_OF_DIAGONAL = 100
#: Relative difference of k(x, y) and k(y, x) that is rounding.
ASYMMETRY = 1e-8
#: Of more training objects, this many, evenly spaced in their order by features, have the median
#: distance: half a million pairs.
MOST_OBJECTS = 1_000


@dataclass(frozen=True)
class Radial(Kernel):
    """Kernel with a width `gamma`: a number (perhaps `by_median`), "median", or 1 / n_features.

    A gamma that the median distance chooses is multiplied by `times`.
    """

    gamma: Positive | Literal["median"] | None = None
    by_median: bool = False
    times: Positive = 1.0
    #: Gamma times the median squared distance.
    at_median: ClassVar[float]

    def __post_init__(self) -> None:
        check_arguments(Radial, vars(self), self.function_name)
        if self.times != 1.0 and self.gamma != "median" and not self.by_median:
            rule = "left out unless gamma is 'median'"
            raise argument_error("times", self.function_name, rule, repr(self.times))

    @abstractmethod
    def of_distances(self, scaled: NDArray) -> NDArray:
        """Values of the kernel at squared distances that are multiplied by gamma."""

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return self.of_distances(self.scaled_distances(X, Y))

    @override
    def on_training(self, X: Any, argument: str = "X") -> Self:
        if self.gamma != "median":
            return self
        median = median_of_squared_distances(X, f"{self.function_name}('median')", argument)
        return replace(self, gamma=self.times * self.at_median / median, by_median=True)

    def scaled_distances(self, X: NDArray, Y: NDArray | None) -> NDArray:
        """Squared distances times gamma, with the digits of the differences of objects."""
        from sklearn.metrics.pairwise import euclidean_distances

        X, Y = _near_zero(X, Y)
        gamma = 1 / X.shape[1] if self.gamma is None else float(self.gamma)
        largest = max(
            np.einsum("nd,nd->n", each, each).max() for each in (X, Y) if each is not None
        )
        if not LOST <= 4 * np.finfo(float).eps * gamma * largest < np.inf:
            return gamma * euclidean_distances(X, Y, squared=True)
        # Slower, and exact within groups of objects that are far apart.
        return gamma * cdist(X, X if Y is None else Y, "sqeuclidean")

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.ones(len(X))

    @property
    @override
    def sums_features(self) -> bool:
        return True

    @property
    @override
    def title(self) -> str:
        if self.gamma is None:
            return self.function_name
        setting = self.gamma if isinstance(self.gamma, str) else f"{self.gamma:.4g}"
        return f"{self.function_name}({'median=' if self.by_median else ''}{setting})"


@dataclass(frozen=True)
class Gaussian(Radial):
    """exp(-gamma ||x - x'||^2)."""

    function_name = "gaussian"
    at_median = 0.5

    @override
    def of_distances(self, scaled: NDArray) -> NDArray:
        return np.exp(-scaled)


@dataclass(frozen=True)
class LearnedGaussian(Kernel):
    """exp(-sum_d gamma_d (x_d - x'_d)^2), at the prior mean of gamma, where samplers start."""

    gamma: Theta

    function_name = "gaussian"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return Gaussian(self.gamma.omega / self.gamma.phi).pairwise(X, Y)

    @property
    @override
    def learned(self) -> Theta:
        return self.gamma

    @property
    @override
    def sums_features(self) -> bool:
        return not self.gamma.ard


def gaussian(
    gamma: float | Literal["median"] | Theta | None = None, *, times: float = 1.0
) -> Kernels:
    r"""Gaussian kernel :math:`\exp(-\gamma {|x - x'|}^2)`.

    z-score the features on the training part first, as ``split`` in ``kz.datasets`` does. Otherwise
    features of large scale dominate, and one data set's good width gives the identity for another.

    Parameters
    ----------
    gamma : float, "median" or Theta, optional
        - a number; 1 / n_features by default;
        - "median": 1 / (2 m), with m the median of :math:`{|x_i - x_j|}^2` over pairs of training
          objects, in each block; of more than 1,000 objects, of 1,000 that are evenly spaced in
          their order by features. See D. Garreau, W. Jitkrittum and M. Kanagawa (2017), Large
          sample analysis of the median heuristic, arXiv:1707.07269;
        - a `Theta`: gamma is learned; ``Theta(ard=True)`` learns one for each feature,
          :math:`\exp(-\sum_d \gamma_d (x_d - x'_d)^2)`.
    times : float, default=1
        Factor of the gamma that "median" chooses: above 1, the kernel is narrower.

    Examples
    --------
    >>> kernels = (kz.gaussian("median") | kz.linear()).normalize("trace")
    >>> kernels(X_train)["kernel"].values
    array(['gaussian(median=0.01911)', 'linear'], dtype='<U24')
    """
    if isinstance(gamma, Theta):
        if times != 1.0:
            raise argument_error("times", "gaussian", "left out for a Theta", repr(times))
        return Kernels((LearnedGaussian(gamma),))
    return Kernels((Gaussian(gamma, times=times),))


@dataclass(frozen=True)
class InverseMultiquadric(Radial):
    """(1 + gamma ||x - x'||^2)^(-1/2), which is 1/2 at the median squared distance."""

    function_name = "inverse_multiquadric"
    at_median = 3.0

    @override
    def of_distances(self, scaled: NDArray) -> NDArray:
        # NumPy's power, and new arrays for each step, would take several times as long.
        values = np.add(1.0, scaled)
        return np.divide(1.0, np.sqrt(values, out=values), out=values)


def inverse_multiquadric(
    gamma: float | Literal["median"] | None = None, *, times: float = 1.0
) -> Kernels:
    r"""Inverse multiquadric kernel :math:`(1 + \gamma {|x - x'|}^2)^{-1/2}`.

    It is the mean of Gaussian kernels :math:`\exp(-s {|x - x'|}^2)`, s ~ Gamma(1/2, 1 / gamma), so
    that objects near by and far away both count. `gamma` is 1 / n_features by default; "median" is
    3 / m, with which the kernel is 1/2 at the median squared distance m of pairs of training
    objects. `times` is a factor of it. See `gaussian`.

    Examples
    --------
    >>> stack = kz.kernels.inverse_multiquadric("median")(X_train)
    """
    return Kernels((InverseMultiquadric(gamma, times=times),))


@dataclass(frozen=True)
class Polynomial(Kernel):
    """(gamma x'x + coef0)^degree."""

    degree: int = 2
    gamma: float = 1.0
    coef0: float = 1.0

    function_name = "polynomial"

    def __post_init__(self) -> None:
        degree = number_or_nan(self.degree)
        if not (degree >= 1 and degree.is_integer()):
            raise argument_error("degree", "polynomial", "a whole number from 1", repr(self.degree))
        check_positive(self.gamma, "gamma", "polynomial")
        if not 0 <= number_or_nan(self.coef0) < np.inf:
            rule = "0 or positive (below 0 the kernel is not positive semidefinite)"
            raise argument_error("coef0", "polynomial", rule, repr(self.coef0))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        products = X @ (X if Y is None else Y).T
        return (self.gamma * products + self.coef0) ** self.degree

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return (self.gamma * np.einsum("nd,nd->n", X, X) + self.coef0) ** self.degree

    @property
    @override
    def sums_features(self) -> bool:
        return True

    @property
    @override
    def title(self) -> str:
        settings = [f"{self.degree:g}"]
        settings += [f"gamma={self.gamma:.4g}"] if self.gamma != 1 else []
        settings += [f"coef0={self.coef0:.4g}"] if self.coef0 != 1 else []
        return f"polynomial({', '.join(settings)})"


def polynomial(degree: int = 2, gamma: float = 1.0, coef0: float = 1.0) -> Kernels:
    r"""Polynomial kernel :math:`(\gamma\, x^\top x' + c_0)^d`, :math:`c_0` = coef0, d = degree.

    `degree` must be a whole number from 1, `gamma` > 0 and `coef0` >= 0, so that the kernel is
    positive semidefinite.  `gamma` is 1 by default, as in the papers; scikit-learn's default is
    1 / n_features.

    Examples
    --------
    >>> stack = kz.polynomial(2, gamma=0.1)(X_train)
    """
    return Kernels((Polynomial(degree, gamma, coef0),))


@dataclass(frozen=True)
class Linear(Kernel):
    """x'x."""

    function_name = "linear"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return X @ (X if Y is None else Y).T

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.einsum("nd,nd->n", X, X)

    @property
    @override
    def sums_features(self) -> bool:
        return True


def linear() -> Kernels:
    r"""Linear kernel :math:`x^\top x'` without a bias; ``normalize("unit")`` makes it the cosine.

    Examples
    --------
    >>> stack = kz.linear()(X_train)
    """
    return Kernels((Linear(),))


@dataclass(frozen=True)
class Same(Kernel):
    """1 for equal labels, else 0."""

    compares_labels = True
    takes_unscaled = True
    function_name = "same"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        both = X if Y is None else np.vstack([X, Y])
        codes = np.unique(both, axis=0, return_inverse=True)[1]
        others = codes if Y is None else codes[len(X) :]
        return (codes[: len(X), None] == others).astype(float)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.ones(len(X))


def same() -> Kernels:
    """Kernel of equal labels: 1 for two objects of one group, else 0.

    In a Gaussian process it is an intercept for each group, as of the person whose samples objects
    are. That of a group without training objects has its prior. A block of labels has one or
    several columns, whose labels must all be equal: as text, so that 1, 1.0 and "1" are one label.
    Estimators do not scale it, and take text in a dict of tables or in the columns of `blocks`.

    Examples
    --------
    >>> persons = np.array(["Ada", "Ada", "Bob"])
    >>> kz.kernels.same()(persons).values[0]
    array([[1., 1., 0.],
           [1., 1., 0.],
           [0., 0., 1.]])
    """
    return Kernels((Same(),))


@dataclass(frozen=True)
class Tanimoto(Kernel):
    """x'y / (|x|^2 + |y|^2 - x'y), and 1 for two objects without any feature."""

    takes_unscaled = True
    function_name = "tanimoto"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        Y = X if Y is None else Y
        for features in (X, Y):
            if (features < 0).any():
                rule = "counts or bits: numbers that are not negative"
                raise argument_error("X", "tanimoto", rule, f"{features.min():.4g}")
        products = X @ Y.T
        squares = [np.einsum("nd,nd->n", each, each) for each in (X, Y)]
        union = np.add.outer(*squares) - products
        return np.divide(products, union, out=np.ones_like(products), where=union > 0)

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return np.ones(len(X))


def tanimoto() -> Kernels:
    r"""Tanimoto kernel :math:`x^\top y / (|x|^2 + |y|^2 - x^\top y)` of fingerprints.

    Of bits it is the number of common ones, divided by the number of those that either object has
    (the Jaccard index); of counts its usual extension. Features must not be negative, and
    estimators do not scale them. See L. Ralaivola, S. J. Swamidass, H. Saigo and P. Baldi (2005),
    Graph kernels for chemical informatics, Neural Networks 18.

    Examples
    --------
    >>> bits = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> kz.kernels.tanimoto()(bits).values[0]
    array([[1. , 0.5, 0. ],
           [0.5, 1. , 0. ],
           [0. , 0. , 1. ]])
    """
    return Kernels((Tanimoto(),))


@dataclass(frozen=True)
class Function(Kernel):
    """A function of two arrays of objects."""

    function: Callable[[NDArray, NDArray], NDArray]

    function_name = "function"

    def __post_init__(self) -> None:
        if not callable(self.function):
            rule = "a function of two arrays of objects"
            raise argument_error("function", "function", rule, repr(self.function))

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        values = self._values(X, X if Y is None else Y)
        if Y is None and not np.allclose(values, values.T, atol=ASYMMETRY * np.abs(values).max()):
            largest = np.abs(values - values.T).max()
            rule = "symmetric, k(x, y) = k(y, x)"
            raise argument_error("function", "function", rule, f"a difference of {largest:.3g}")
        return values

    def _values(self, X: NDArray, Y: NDArray) -> NDArray:
        values = check_real(self.function(X, Y), "function", "function", booleans=True)
        shape = (len(X), len(Y))
        if values.shape != shape:
            rule = f"a function whose values have shape {shape} for so many objects"
            raise argument_error("function", "function", rule, f"shape {values.shape}")
        check_finite(values, "function", "function")
        return values

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        # The `diag` of scikit-learn's kernels has the noise that their values for two arrays lack.
        parts = np.split(X, range(ROWS_OF_DIAGONAL, len(X), ROWS_OF_DIAGONAL))
        return np.concatenate([np.diagonal(self._values(part, part)) for part in parts])

    @property
    @override
    def title(self) -> str:
        # Of partial functions, the name of the whole one.
        named = getattr(self.function, "func", self.function)
        return getattr(named, "__name__", None) or str(self.function)


def function(function: Callable[[NDArray, NDArray], NDArray]) -> Kernels:
    """Kernel that a function computes: of objects (n, D) and (m, D), values (n, m).

    Such as those of ``sklearn.metrics.pairwise`` and ``sklearn.gaussian_process.kernels``. What
    these add for one array alone, as ``WhiteKernel`` does, is left out. The function must be
    symmetric and positive semidefinite. Estimators take it in place of a specification.

    Raises
    ------
    ValueError
        When called: for values of another shape, that are not finite, or not symmetric.

    Examples
    --------
    >>> from sklearn.metrics.pairwise import laplacian_kernel
    >>> kz.kernels.function(laplacian_kernel)(X_train)["kernel"].item()
    'laplacian_kernel'
    """
    return Kernels((Function(function),))


@dataclass(frozen=True)
class Precomputed(Kernel):
    """Similarities instead of features; columns are training objects."""

    is_precomputed = True
    function_name = "precomputed"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        return X

    @override
    def describe(self, block: str | None) -> str:
        return "precomputed" if block is None else block


def precomputed() -> Kernels:
    """Precomputed similarities instead of features.

    Apply it to the Gram matrix of the training objects, shape (N, N), and to the similarities of
    new objects to the training objects, shape (n, N), together with that Gram matrix.  To combine
    it with kernels of features, use a dict: ``gaussian().on("x") |
    precomputed().on("sequence")``.

    Examples
    --------
    >>> gram = np.exp(-squared_distances)
    >>> stack = kz.kernels.precomputed().normalize("trace")(gram)
    """
    return Kernels((Precomputed(),))


@dataclass(frozen=True)
class Covariance(Kernel):
    """A covariance function of ``pm.gp.cov`` with fixed hyperparameters."""

    function: Any

    function_name = "covariance"

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        if is_stationary(self.function):
            X, Y = _near_zero(X, Y)
        return self._evaluate(self.function(X) if Y is None else self.function(X, Y))

    @override
    def diagonal(self, X: NDArray) -> NDArray:
        return self._evaluate(self.function(X, diag=True))

    @property
    @override
    def title(self) -> str:
        return type(self.function).__name__

    def _evaluate(self, graph: Any) -> NDArray:
        random = rvs_in_graph([graph])
        if random:
            listed = ", ".join(sorted(str(variable) for variable in random))
            rule = "a covariance with fixed hyperparameters"
            got = f"the random variable {listed}"
            raise argument_error("function", "covariance", rule, got)
        # The graph is evaluated once, so optimising it would cost more than it saves.
        return np.asarray(graph.eval(mode="FAST_COMPILE"), dtype=float)


def covariance(function: Any) -> Kernels:
    """Any covariance function of ``pm.gp.cov`` with fixed hyperparameters.

    Random variables among them raise a ValueError; what is not a covariance function, a TypeError.

    Examples
    --------
    >>> kz.kernels.covariance(pm.gp.cov.Matern52(3, ls=1.5))
    """
    if not isinstance(function, pm.gp.cov.BaseCovariance):
        rule = "The 'function' argument of covariance must be a covariance function of pm.gp.cov."
        raise TypeError(f"{rule} Got {function!r}.")
    return Kernels((Covariance(function),))


@dataclass(frozen=True)
class BasisExpansion(Kernel):
    """Features instead of a kernel."""

    function: Callable[[NDArray], NDArray]

    is_kernel = False
    function_name = "basis_expansion"

    def __post_init__(self) -> None:
        if not callable(self.function):
            got = repr(self.function)
            raise argument_error("function", "basis_expansion", "a function of objects", got)

    @override
    def pairwise(self, X: NDArray, Y: NDArray | None) -> NDArray:
        features = check_real(self.function(X), "function", "basis_expansion", booleans=True)
        if features.ndim != 2 or len(features) != len(X):
            rule = f"a map of {len(X)} objects to features of shape ({len(X)}, M)"
            raise argument_error("function", "basis_expansion", rule, f"shape {features.shape}")
        check_finite(features, "function", "basis_expansion")
        return features

    @property
    @override
    def title(self) -> str:
        return getattr(self.function, "__name__", "basis")


def basis_expansion(function: Callable[[NDArray], NDArray]) -> Kernels:
    """Features instead of a kernel: the stack has one column per basis function.

    `function` maps objects of shape (n, D) to features of shape (n, M), row by row; fit its
    parameters beforehand, as those of scikit-learn's `Nystroem`.

    Examples
    --------
    >>> squares = kz.kernels.basis_expansion(np.square).named("squares")
    >>> squares(X_train).shape
    """
    return Kernels((BasisExpansion(function),))


def _near_zero(X: NDArray, Y: NDArray | None) -> tuple[NDArray, NDArray | None]:
    """Shift both sets of objects to around zero: squares lose as many digits as they are larger."""
    centre = np.median(X if Y is None else Y, axis=0)
    return X - centre, None if Y is None else Y - centre


def is_stationary(function: Any) -> bool:
    """Whether a covariance function of ``pm.gp.cov`` depends on differences of objects only."""
    if isinstance(function, pm.gp.cov.Combination):
        return all(map(is_stationary, function._factor_list))
    invariant = (pm.gp.cov.Stationary, pm.gp.cov.Constant, pm.gp.cov.WhiteNoise)
    return isinstance(function, invariant) or not isinstance(function, pm.gp.cov.BaseCovariance)


def median_of_squared_distances(X: Any, owner: str, argument: str = "X") -> float:
    """Median of ||x_i - x_j||^2 over pairs of training objects; O(min(N, 1000)^2 D)."""
    if len(X) > MOST_OBJECTS:
        spaced = np.linspace(0, len(X) - 1, MOST_OBJECTS).round().astype(int)
        X = X[np.sort(order_of_rows([X])[spaced])]
    X = np.asarray(X)
    squares = pdist(X, "sqeuclidean")
    if squares.max(initial=0.0) < np.finfo(float).tiny and np.ptp(X, axis=0).any():
        got = f"entries that differ by at most {np.ptp(X, axis=0).max():.3g}"
        rule = "large enough that squares do not underflow: standardise the features"
        raise argument_error(argument, owner, rule, got)
    if not squares.any():
        rule = "of training objects that differ (or give the width as a number)"
        raise argument_error(argument, owner, rule, f"{len(X)} objects without a difference")
    median = float(np.median(squares))
    # Most pairs are equal, as in a column of zeros with a few counts.
    if median == 0:
        warn_user(
            f"Most pairs of training objects are equal: the width of {owner} is the median "
            "distance of the other pairs.",
            KernelWarning,
        )
        median = float(np.median(squares[squares > 0]))
    if not np.isfinite(median):
        got = f"entries up to {float(np.abs(X).max()):.3g} in size"
        rule = "small enough that squares do not overflow: standardise the features"
        raise argument_error(argument, owner, rule, got)
    return median
