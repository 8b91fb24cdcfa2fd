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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from ...validation import argument_error, check_finite, check_flag, check_positive, check_unmasked
from ..distributions.dirichlet import Dirichlet
from ..kernels.labels import in_order, kernel_names
from ..operations.arrays import weighted_sum

__all__ = [
    "RULES",
    "SMALLEST",
    "Binary",
    "Combination",
    "DirichletWeights",
    "FixedWeights",
    "Mean",
    "WeightedSum",
    "weighted_sum",
]

# One number per kernel, by position or by name.
type Numbers = Sequence[float] | Mapping[str, float] | pd.Series | xr.DataArray

# Weights, exponents, parameters and entries of a product's kernels below this count as this in
# logarithms: the smallest double is 1e-308.
SMALLEST = 1e-300


#: Every rule by the name of its class, which saved results hold.
RULES: dict[str, type["Combination"]] = {}


class Combination(Protocol):
    """Interface of a rule that combines kernels.

    The composite kernel is an entrywise function of a weighted sum: `from_terms` of
    ``sum_s beta_s terms(K)_s``. Both methods depend only on the class of the rule, not on its
    settings, because saved results do not hold settings.

    Examples
    --------
    >>> rule: kz.combinations.Combination = kz.combinations.Mean()
    >>> rule.combine(np.ones((2, 3, 3)), np.array([0.5, 0.5])).eval()
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        RULES[cls.__name__] = cls

    def for_kernels(self, names: Iterable[Any]) -> "Combination":
        """Return the rule with its numbers in the order of a model's kernels.

        A convex combination of one kernel becomes the fixed weight 1.

        Parameters
        ----------
        names : iterable of str
            Names of the model's kernels. Numbers without names are assumed to be in this order.

        Raises
        ------
        ValueError
            If the names of the numbers differ from those of the kernels.
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
    """K_beta = sum_s beta_s K_s.

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


def _warn_of_vanishing_weights(probability: float, rule: Combination) -> None:
    """Warn if weights are often too small for double precision."""
    if probability > 0.01:
        warn_user(
            f"{rule!r} makes weights of kernels smaller than {SMALLEST:g}, each with a probability "
            f"of about {probability:.2g}: too small for double precision. Draws, chains and "
            "densities use the prior truncated there."
        )


def _vanishing(shape: float, rate: float) -> float:
    """Probability of a weight below `SMALLEST` under concentrations Gamma(shape, rate).

    Given a small concentration a, a weight is below w with probability w^a, which has a closed
    mean over the prior of a.
    """
    return float((1 - np.log(SMALLEST) / rate) ** -shape)


def _n_kernels() -> int:
    """Length of the dim "kernel"; graphs with known shapes are smaller."""
    return len(pm.modelcontext(None).coords["kernel"])


@dataclass(frozen=True)
class Mean(WeightedSum):
    """Convex combination with learned weights: beta ~ Dirichlet(rho), rho_s ~ Gamma(mu, lam).

    Parameters
    ----------
    mu : float, default=1
        Shape of the concentrations' Gamma prior, whose mean is mu / lam. Large concentrations
        expect equal weights, small ones few kernels of large weight.
    lam : float, default=1
        Rate of the concentrations' Gamma prior.

    Warns
    -----
    UserWarning
        By the model, when mu is so small or lam so large that weights underflow double precision.

    Examples
    --------
    >>> rule = kz.combinations.Mean(mu=1, lam=1)
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    mu: float = 1.0
    lam: float = 1.0

    def __post_init__(self) -> None:
        check_positive(self.mu, "mu", "Mean")
        check_positive(self.lam, "lam", "Mean")

    @override
    def for_kernels(self, names: Iterable[Any]) -> Combination:
        return FixedWeights([1.0]) if len(list(names)) == 1 else self

    @override
    def check(self, stack: xr.DataArray) -> None:
        """Accept any stack, but warn of vanishing weights."""
        if len(stack) > 1:
            _warn_of_vanishing_weights(_vanishing(self.mu, self.lam), self)

    @override
    def declare(self) -> TensorVariable:
        rho = pm.Gamma("rho", alpha=self.mu, beta=self.lam, shape=_n_kernels(), dims="kernel")
        return Dirichlet("beta", a=rho, dims="kernel")


@dataclass(frozen=True)
class DirichletWeights(WeightedSum):
    """Convex combination of Girolami & Rogers (2005): beta ~ Dirichlet(varphi).

    Parameters
    ----------
    tau : float, default=1
        Shape of the concentrations' Gamma prior, varphi_k ~ Gamma(tau, nu), whose mean is tau / nu.
        Large concentrations expect equal weights, small ones few kernels of large weight.
    nu : float, default=1
        Rate of the concentrations' Gamma prior.
    varphi : float, optional
        A known concentration for all kernels; `tau` and `nu` are then ignored. The prior is uniform
        on the simplex for 1, which the paper's maximum a posteriori estimate needs.

    Warns
    -----
    UserWarning
        By the model, when concentrations are so small that weights underflow double precision.

    Examples
    --------
    >>> uniform = kz.combinations.DirichletWeights(varphi=1)
    >>> model = kz.CompositeKernelRegression(kernels(X_train), response, combination=uniform)
    """

    tau: float = 1.0
    nu: float = 1.0
    varphi: float | None = None

    def __post_init__(self) -> None:
        check_positive(self.tau, "tau", "DirichletWeights")
        check_positive(self.nu, "nu", "DirichletWeights")
        if self.varphi is not None:
            check_positive(self.varphi, "varphi", "DirichletWeights")

    @override
    def for_kernels(self, names: Iterable[Any]) -> Combination:
        return FixedWeights([1.0]) if len(list(names)) == 1 else self

    @override
    def check(self, stack: xr.DataArray) -> None:
        """Accept any stack, but warn of vanishing weights."""
        if len(stack) > 1:
            if self.varphi is None:
                probability = _vanishing(self.tau, self.nu)
            else:
                probability = SMALLEST**self.varphi
            _warn_of_vanishing_weights(probability, self)

    @override
    def declare(self, along: str | None = None) -> TensorVariable:
        """Declare the weights; with a dim `along`, one set for each of its entries."""
        dims: Any = (along, "kernel") if along else "kernel"
        shape: Any = _n_kernels()
        if along:
            shape = (len(pm.modelcontext(None).coords[along]), shape)
        if self.varphi is not None:
            varphi = np.full(shape, self.varphi)
        else:
            varphi = pm.Gamma("varphi", alpha=self.tau, beta=self.nu, shape=shape, dims=dims)
        return Dirichlet("beta", a=varphi, dims=dims)


@dataclass(frozen=True)
class GivenNumbers:
    """Rule whose weights are given: one number per kernel, by position or by the kernels' names."""

    #: Field with the numbers.
    numbers: ClassVar[str]
    kernels: tuple[str, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        given, owner = getattr(self, self.numbers), type(self).__name__
        if given is not None:
            object.__setattr__(self, "kernels", kernel_names(given, self.numbers, owner))
            object.__setattr__(self, self.numbers, _as_weights(given, self.numbers, owner))

    def for_kernels(self, names: Iterable[Any]) -> Any:
        """Return the rule with its numbers in the order of a model's kernels."""
        return _numbers_in_order(self, self.numbers, names)

    def check(self, stack: xr.DataArray) -> None:
        """Raise a ValueError unless there is one number per kernel of a stack."""
        check_length(getattr(self, self.numbers), self.numbers, type(self).__name__, stack)

    def default(self, n_kernels: int) -> NDArray[np.float64]:
        """Numbers (kernel,) where none are given."""
        return np.ones(n_kernels)

    def declare(self, along: str | None = None) -> TensorVariable:
        """Declare the weights (kernel,) as data, the same `along` any dim."""
        names = pm.modelcontext(None).coords["kernel"]
        given = getattr(self.for_kernels(names), self.numbers)
        weights = self.default(len(names)) if given is None else np.asarray(given, dtype=float)
        return pm.Data("beta", weights, dims="kernel")


@dataclass(frozen=True)
class FixedWeights(GivenNumbers, WeightedSum):
    """Weighted sum with given, non-negative weights.

    Parameters
    ----------
    weights : sequence of float, Series or mapping, optional
        One weight per kernel, not rescaled. Default: the plain average, 1/S each. A Series, a
        mapping or a DataArray is aligned by the names of the kernels.

    Examples
    --------
    >>> rule = kz.combinations.FixedWeights([0.2, 0.3, 0.5])
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    numbers = "weights"
    weights: Numbers | None = None

    @override
    def default(self, n_kernels: int) -> NDArray[np.float64]:
        return np.full(n_kernels, 1 / n_kernels)


@dataclass(frozen=True)
class Binary(WeightedSum):
    """Sum of the selected kernels: beta_s ~ Bernoulli(probability), independently.

    Parameters
    ----------
    probability : float, sequence of float, Series or mapping, default=0.5
        Prior probability that a kernel is selected, between 0 and 1; one per kernel or one for all.
        A Series, a mapping or a DataArray is aligned by the names of the kernels.
    empty : bool, default=False
        Whether to allow the empty selection, as in the paper's 2^S states. Its composite kernel is
        zero, and all classes have equal probability. By default it is excluded, and the others keep
        their relative probabilities: samplers that start at zero regressors, and mean field with
        many regressors, prefer the empty selection to all others.

    Examples
    --------
    >>> rule = kz.combinations.Binary(probability=0.5)
    >>> model = kz.MultinomialProbit(kernels(X_train), y_train, combination=rule)
    """

    probability: float | Numbers = 0.5
    empty: bool = False
    kernels: tuple[str, ...] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_flag(self.empty, "empty", "Binary")
        names = kernel_names(self.probability, "probability", "Binary")
        object.__setattr__(self, "kernels", names)
        check_unmasked(self.probability, "probability", "Binary")
        values = np.asarray(_without_names(self.probability), dtype=float)
        if values.ndim > 1 or not ((values > 0) & (values < 1)).all():
            raise argument_error(
                "probability", "Binary", "between 0 and 1, exclusive", repr(self.probability)
            )
        plain = values.tolist()
        object.__setattr__(self, "probability", tuple(plain) if values.ndim else plain)

    @override
    def for_kernels(self, names: Iterable[Any]) -> "Binary":
        return _numbers_in_order(self, "probability", names)

    @override
    def check(self, stack: xr.DataArray) -> None:
        if not isinstance(self.probability, float):
            check_length(self.probability, "probability", "Binary", stack)

    def probabilities(self, n_kernels: int) -> NDArray[np.float64]:
        """Prior probability of each kernel (kernel,), before excluding the empty selection."""
        return np.broadcast_to(np.asarray(self.probability, dtype=float), n_kernels)

    def log_odds(self, n_kernels: int) -> NDArray[np.float64]:
        """Prior log odds of each kernel (kernel,)."""
        return logit(self.probabilities(n_kernels))

    @override
    def declare(self, along: str | None = None) -> TensorVariable:
        """Declare the selection; with a dim `along`, one for each of its entries."""
        names = pm.modelcontext(None).coords["kernel"]
        p = self.for_kernels(names).probabilities(len(names))
        dims: Any = (along, "kernel") if along else "kernel"
        if along:
            p = np.broadcast_to(p, (len(pm.modelcontext(None).coords[along]), len(names)))
        if self.empty:
            return pm.Bernoulli("beta", p=p, dims=dims)
        return pm.CustomDist(
            "beta",
            p,
            logp=_selection_logp,
            random=_draw_selection,
            support_point=lambda rv, size, p: pt.ones_like(p, dtype="int64"),
            signature="(k)->(k)",
            dtype="int64",
            dims=dims,
        )


def _selection_logp(beta: TensorVariable, p: TensorVariable) -> TensorVariable:
    """Log probability of independent Bernoulli variables that are not all zero."""
    log_p = pt.switch(beta, pt.log(p), pt.log1p(-p)).sum(-1)
    possible = pt.and_(pt.all((beta >= 0) & (beta <= 1), axis=-1), pt.any(beta > 0, axis=-1))
    return pt.switch(possible, log_p - pt.log1mexp(pt.log1p(-p).sum(-1)), -np.inf)


def _draw_selection(p: NDArray, rng: np.random.Generator, size: Any = None) -> NDArray:
    """Draw independent Bernoulli variables that are not all zero.

    The first selected kernel is drawn, then each later kernel: rejecting empty selections would be
    slow for small probabilities.
    """
    p = np.broadcast_to(p, (*(size or ()), p.shape[-1]))
    none_so_far = np.cumsum(np.log1p(-p), axis=-1) - np.log1p(-p)
    cumulative = np.cumsum(p * np.exp(none_so_far), axis=-1)
    uniform = rng.random((*p.shape[:-1], 1)) * cumulative[..., -1:]
    first = np.minimum((uniform >= cumulative).sum(axis=-1, keepdims=True), p.shape[-1] - 1)
    kernel = np.arange(p.shape[-1])
    later = (kernel > first) & (rng.random(p.shape) < p)
    return ((kernel == first) | later).astype(np.int64)


def _numbers_in_order[R: Any](rule: R, argument: str, names: Iterable[Any]) -> R:
    """Return a rule with the numbers in its attribute `argument` in the order of the names."""
    if rule.kernels is None:
        return rule
    owner, names = type(rule).__name__, list(map(str, names))
    given = dict(zip(rule.kernels, getattr(rule, argument), strict=True))
    requirement = f"labelled by the names of the kernels, {names}, or without labels"
    ordered = in_order(given, names, argument, owner, requirement)
    return replace(rule, **{argument: ordered})


def _without_names(values: Any) -> Any:
    return list(values.values()) if isinstance(values, Mapping) else values


def _as_weights(weights: Numbers, argument: str, owner: str) -> tuple[float, ...]:
    """Return weights as a tuple, or raise unless they are non-negative and not all zero."""
    check_unmasked(weights, argument, owner)
    values = np.atleast_1d(np.asarray(_without_names(weights), dtype=float))
    check_finite(values, argument, owner)
    if values.ndim != 1 or (values < 0).any() or not values.any():
        raise argument_error(
            argument, owner, "a vector of non-negative numbers, not all zero", repr(weights)
        )
    return tuple(values.tolist())


def check_length(values: Any, argument: str, owner: str, stack: xr.DataArray) -> None:
    """Raise unless there is one number per kernel; None passes."""
    n_kernels = stack.sizes["kernel"]
    if values is not None and len(values) != n_kernels:
        raise argument_error(
            argument,
            owner,
            f"a vector of {n_kernels} numbers, one per kernel",
            f"{len(values)} numbers",
        )
