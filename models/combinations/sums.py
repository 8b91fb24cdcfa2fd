"""Rules that combine a stack of kernels into one, with the prior of their weights.

A rule declares its weights inside a model and combines a stack with them; models and engines
dispatch on its type. This file has the weighted sums; products are in `products`.

Notation (Damoulas & Girolami 2009, sections 2 and 3.1; Girolami & Rogers 2005, section 3):

========== ========= ============================== =====================
2009       2005      meaning                        code
========== ========= ============================== =====================
beta_s     beta_k    weight of a kernel             ``beta``  (kernel)
rho_s      varphi_k  concentration of the weights   ``rho``, ``varphi``
mu         tau       shape of their Gamma prior     ``mu``, ``tau``
lambda     nu        rate of their Gamma prior      ``lam``, ``nu``
========== ========= ============================== =====================
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, override

import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.tensor import TensorVariable
from scipy.special import logit

from ...user_warnings import warn_user
from ...validation import Positive, argument_error, check_arguments, check_real
from ..distributions.dirichlet import Dirichlet
from ..kernels.labels import in_order, kernel_names
from ..operations.arrays import weighted_sum

# One number per kernel, by position or by name.
type Numbers = Sequence[float] | Mapping[str, float] | pd.Series | xr.DataArray

# Weights, exponents, parameters and entries of a product's kernels below this count as this in
# logarithms: the smallest double is 1e-308.
LEAST_LOG_ARGUMENT = 1e-300

#: Every rule by the name of its class, which saved results hold.
COMBINATIONS_BY_NAME: dict[str, type["Combination"]] = {}


class Combination(Protocol):
    """Interface of a rule that combines kernels.

    The composite kernel is an entrywise function of a weighted sum: `from_terms` of
    ``sum_s beta_s terms(K)_s``. Both methods depend only on the class of the rule, not on its
    settings, because predictions from a saved result know the class alone.

    Examples
    --------
    >>> rule: kz.combinations.Combination = kz.combinations.Mean()
    >>> rule.combine(np.ones((2, 3, 3)), np.array([0.5, 0.5])).eval()
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        COMBINATIONS_BY_NAME[cls.__name__] = cls

    def for_kernels(self, names: Iterable[Any]) -> "Combination":
        """Return the rule with its numbers in the order of a model's kernels, or ValueError.

        A convex combination of one kernel becomes the fixed weight 1.
        """
        return self

    def check(self, stack: xr.DataArray) -> None:
        """Raise a ValueError if the rule does not fit a stack (kernel, obs, basis)."""

    def declare(self) -> TensorVariable:
        """Declare the weights, dims ("kernel",), in the current model."""

    def combine(self, stack: TensorVariable, weights: TensorVariable) -> TensorVariable:
        """Composite kernel (obs, basis) of a stack (kernel, obs, basis)."""

    def terms(self, stack: NDArray) -> NDArray:
        """Matrices (kernel, obs, basis) that the weights multiply."""

    def from_terms(self, total: NDArray) -> NDArray:
        """Composite kernels (..., obs, basis) of weighted sums of the terms; may work in place."""


class WeightedSum(Combination):
    r"""Weighted sum of the kernels, :math:`K_\beta = \sum_s \beta_s K_s`.

    Raises
    ------
    TypeError
        When a subclass redefines `combine`, `terms` or `from_terms`: engines compute the sum
        themselves. Rules of another form are subclasses of `Combination`.

    Examples
    --------
    >>> issubclass(kz.combinations.Mean, kz.combinations.WeightedSum)
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if redefined := sorted({"combine", "terms", "from_terms"} & vars(cls).keys()):
            raise TypeError(
                f"{cls.__name__} is a WeightedSum and must not define {', '.join(redefined)}: "
                "make it a subclass of Combination."
            )

    @override
    def combine(self, stack: TensorVariable, weights: TensorVariable) -> TensorVariable:
        return weighted_sum(stack, weights)

    @override
    def terms(self, stack: NDArray) -> NDArray:
        return stack

    @override
    def from_terms(self, total: NDArray) -> NDArray:
        return total


class _Convex(WeightedSum):
    """Convex combination with learned weights, beta ~ Dirichlet(concentrations)."""

    @property
    @abstractmethod
    def vanishing(self) -> float:
        """Prior probability of a weight below `LEAST_LOG_ARGUMENT`."""

    @override
    def for_kernels(self, names: Iterable[Any]) -> Combination:
        return FixedWeights([1.0]) if len(list(names)) == 1 else self

    @override
    def check(self, stack: xr.DataArray) -> None:
        """Accept any stack, but warn of vanishing weights."""
        if len(stack) > 1 and self.vanishing > 0.01:
            warn_user(
                f"{self!r} makes weights of kernels smaller than {LEAST_LOG_ARGUMENT:g}, each with "
                f"a probability of about {self.vanishing:.2g}: too small for double precision. "
                "Draws, chains and densities use the prior truncated there."
            )


def _vanishing(shape: float, rate: float) -> float:
    """Probability of a negligible weight under concentrations Gamma(shape, rate)."""
    # With a small concentration a, that of one below x is x^a: its mean over a is closed.
    return float((1 - np.log(LEAST_LOG_ARGUMENT) / rate) ** -shape)


def _concentrations(name: str, shape: float, rate: float) -> TensorVariable:
    """Declare concentrations (kernel,) with a Gamma prior; graphs with known shapes are smaller."""
    n_kernels = len(pm.modelcontext(None).coords["kernel"])
    return pm.Gamma(name, alpha=shape, beta=rate, shape=n_kernels, dims="kernel")


@dataclass(frozen=True)
class Mean(_Convex):
    r"""Convex combination, learned: :math:`\beta \sim` Dirichlet(rho), rho ~ Gamma(mu, lam).

    Parameters
    ----------
    mu, lam : float, default=1
        Shape and rate of the concentrations' Gamma prior, whose mean is mu / lam. Large
        concentrations expect equal weights, small ones few kernels of large weight.

    Warns
    -----
    UserWarning
        By the model, when concentrations are so small that weights underflow double precision.

    Examples
    --------
    >>> rule = kz.combinations.Mean(mu=1, lam=1)
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    mu: Positive = 1.0
    lam: Positive = 1.0

    def __post_init__(self) -> None:
        check_arguments(Mean, vars(self))

    @property
    @override
    def vanishing(self) -> float:
        return _vanishing(self.mu, self.lam)

    @override
    def declare(self) -> TensorVariable:
        return Dirichlet("beta", a=_concentrations("rho", self.mu, self.lam), dims="kernel")


@dataclass(frozen=True)
class DirichletWeights(_Convex):
    r"""Convex combination of Girolami & Rogers (2005): :math:`\beta \sim` Dirichlet(varphi).

    Parameters
    ----------
    tau, nu : float, default=1
        Shape and rate of the concentrations' Gamma prior, varphi_k ~ Gamma(tau, nu), as `Mean`.
    varphi : float, optional
        A known concentration for all kernels; `tau` and `nu` are then ignored. The prior is uniform
        on the simplex for 1, which the paper's maximum a posteriori estimate needs.

    Warns
    -----
    UserWarning
        As `Mean`.

    Notes
    -----
    Of many kernels, a uniform prior expects weights of about 1 / K each, whatever the data say.
    That few of them count is said by a small concentration, ``varphi`` of 2 / K to 5 / K. Values
    between these and 1, such as 10 / K, are not between the two: with 100 kernels of 200 objects,
    many small weights together fit the noise, and predictions are too sure of themselves.

    Examples
    --------
    >>> uniform = kz.combinations.DirichletWeights(varphi=1)
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response, combination=uniform)
    """

    tau: Positive = 1.0
    nu: Positive = 1.0
    varphi: Positive | None = None

    def __post_init__(self) -> None:
        check_arguments(DirichletWeights, vars(self))

    @property
    @override
    def vanishing(self) -> float:
        return (
            _vanishing(self.tau, self.nu)
            if self.varphi is None
            else LEAST_LOG_ARGUMENT**self.varphi
        )

    @override
    def declare(self) -> TensorVariable:
        if self.varphi is None:
            varphi: Any = _concentrations("varphi", self.tau, self.nu)
        else:
            varphi = np.full(len(pm.modelcontext(None).coords["kernel"]), self.varphi)
        return Dirichlet("beta", a=varphi, dims="kernel")


@dataclass(frozen=True)
class GivenNumbers:
    """Rule with given numbers, one per kernel: by position, or by the kernels' names in a dict."""

    #: Field with the numbers, None for ones, and what they must be.
    numbers: ClassVar[str]
    requirement: ClassVar[str] = "a vector of non-negative numbers, not all zero"

    def __post_init__(self) -> None:
        check_arguments(type(self), vars(self))
        given = getattr(self, self.numbers)
        owner = type(self).__name__
        if given is None:
            return
        names = kernel_names(given, self.numbers, owner)
        unnamed = list(given.values()) if isinstance(given, Mapping) else given
        values = check_real(unnamed, self.numbers, owner)
        if not self.holds(values):
            raise argument_error(self.numbers, owner, self.requirement, repr(given))
        plain: Any = values.tolist()
        if values.ndim:
            plain = tuple(plain) if names is None else dict(zip(names, plain, strict=True))
        object.__setattr__(self, self.numbers, plain)

    def holds(self, values: NDArray[np.float64]) -> bool:
        """Whether numbers meet the requirement."""
        return values.ndim == 1 and bool(0 < values.sum() < np.inf and (values >= 0).all())

    def each(self, n_kernels: int) -> NDArray[np.float64]:
        """Numbers (kernel,) of a rule `for_kernels`."""
        given = getattr(self, self.numbers)
        return np.broadcast_to(np.asarray(1.0 if given is None else given, float), n_kernels)

    def for_kernels(self, names: Iterable[Any]) -> Any:
        """Return the rule with its numbers in the order of a model's kernels."""
        given = getattr(self, self.numbers)
        names = list(map(str, names))
        requirement = f"labelled by the names of the kernels, {names}, or without labels"
        ordered = in_order(given, names, self.numbers, type(self).__name__, requirement)
        return self if ordered is given else replace(self, **{self.numbers: ordered})

    def check(self, stack: xr.DataArray) -> None:
        """Raise a ValueError unless there is one number per kernel of a stack, or one for all."""
        given = getattr(self, self.numbers)
        n_kernels = stack.sizes["kernel"]
        if not (given is None or isinstance(given, float) or len(given) == n_kernels):
            rule = f"a vector of {n_kernels} numbers, one per kernel"
            got = f"{len(given)} numbers"
            raise argument_error(self.numbers, type(self).__name__, rule, got)

    def declare(self) -> TensorVariable:
        """Declare the weights (kernel,) as data."""
        names = pm.modelcontext(None).coords["kernel"]
        return pm.Data("beta", self.for_kernels(names).each(len(names)), dims="kernel")


@dataclass(frozen=True)
class FixedWeights(GivenNumbers, WeightedSum):
    """Weighted sum with given, non-negative weights.

    Parameters
    ----------
    weights : sequence of float, Series or mapping, optional
        One weight per kernel, not rescaled, aligned by names. Default: the plain average, 1/S each.

    Examples
    --------
    >>> rule = kz.combinations.FixedWeights([0.2, 0.3, 0.5])
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    numbers = "weights"
    weights: Numbers | None = None

    @override
    def each(self, n_kernels: int) -> NDArray[np.float64]:
        plain = np.full(n_kernels, 1 / n_kernels)
        return plain if self.weights is None else super().each(n_kernels)


@dataclass(frozen=True)
class Binary(GivenNumbers, WeightedSum):
    r"""Sum of the selected kernels: :math:`\beta_s \sim` Bernoulli(probability), independently.

    Parameters
    ----------
    probability : float, sequence of float, Series or mapping, default=0.5
        Prior probability that a kernel is selected, between 0 and 1; one for all, or one per
        kernel, aligned by names.
    empty : bool, default=False
        Whether to allow the empty selection, as in the paper's :math:`2^S` states. By default it is
        excluded: samplers that start at zero regressors, and mean field with many regressors,
        prefer it to all others.

    Examples
    --------
    >>> rule = kz.combinations.Binary(probability=0.5)
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    numbers = "probability"
    requirement = "between 0 and 1, exclusive"
    probability: float | Numbers = 0.5
    empty: bool = False

    @override
    def holds(self, values: NDArray[np.float64]) -> bool:
        return values.ndim < 2 and bool(((values > 0) & (values < 1)).all())

    def log_odds(self, n_kernels: int) -> NDArray[np.float64]:
        """Prior log odds of each kernel (kernel,), before excluding the empty selection."""
        return logit(self.each(n_kernels))

    @override
    def declare(self) -> TensorVariable:
        names = pm.modelcontext(None).coords["kernel"]
        p = self.for_kernels(names).each(len(names))
        if self.empty:
            return pm.Bernoulli("beta", p=p, dims="kernel")
        return pm.CustomDist(
            "beta",
            p,
            logp=_selection_logp,
            random=_draw_selection,
            support_point=lambda rv, size, p: pt.ones_like(p, dtype="int64"),
            signature="(k)->(k)",
            dtype="int64",
            dims="kernel",
        )


def _selection_logp(beta: TensorVariable, p: TensorVariable) -> TensorVariable:
    """Log probability of independent Bernoulli variables that are not all zero."""
    log_p = pt.switch(beta, pt.log(p), pt.log1p(-p)).sum(-1)
    possible = pt.and_(pt.all((beta >= 0) & (beta <= 1), axis=-1), pt.any(beta > 0, axis=-1))
    return pt.switch(possible, log_p - pt.log1mexp(pt.log1p(-p).sum(-1)), -np.inf)


def _draw_selection(p: NDArray, rng: np.random.Generator, size: Any = None) -> NDArray:
    """Draw independent Bernoulli variables that are not all zero."""
    # The first selected kernel is drawn, then each later kernel: rejecting empty selections would
    # be slow for small probabilities.
    p = np.broadcast_to(p, (*(size or ()), p.shape[-1]))
    none_so_far = np.cumsum(np.log1p(-p), axis=-1) - np.log1p(-p)
    cumulative = np.cumsum(p * np.exp(none_so_far), axis=-1)
    uniform = rng.random((*p.shape[:-1], 1)) * cumulative[..., -1:]
    first = np.minimum((uniform >= cumulative).sum(axis=-1, keepdims=True), p.shape[-1] - 1)
    kernel = np.arange(p.shape[-1])
    later = (kernel > first) & (rng.random(p.shape) < p)
    return ((kernel == first) | later).astype(np.int64)
