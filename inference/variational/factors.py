"""Factors that several mean fields share: regression weights, precisions and selections."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pymc as pm
import xarray as xr
from scipy.linalg import solve_triangular
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import norm

from ...models.combinations.sums import Binary
from ...numerics.normal_regression import precision_factor_or_none

type Array = npt.NDArray[np.float64]
#: Dims and values of variables by name.
type Variables = dict[str, tuple[tuple[str, ...], Array | float]]

# Least square of a pivot relative to its diagonal entry, in rounding errors of a number. The Gibbs
# samplers use a larger bound, because they can factorise in another way.
LEAST_PIVOT = 1e3
# Largest number of kernels whose 2^S selections are enumerated.
MOST_KERNELS = 16


def precision_factor(gram: Array, precision: Array) -> tuple[Array, Array]:
    """Lower Cholesky factor of gram (M, M) + diag(precision (M,)), Fortran order; its diagonal.

    Only the upper triangle of `gram` is read, whose precision the factor has. Raises LinAlgError
    when a pivot is lost in rounding, or infinite.
    """
    least = LEAST_PIVOT * float(np.finfo(gram.dtype).eps)
    factor = precision_factor_or_none(gram, precision, least_pivot=least)
    if factor is None or not np.isfinite(factor.diagonal()).all():
        raise np.linalg.LinAlgError(
            "The covariance of the regressors is numerically singular: rescale the kernels (for "
            "example kernels.normalize('trace'), or features to unit variance); they differ from "
            "the prior's scale by too many digits."
        )
    return factor, np.diag(factor).astype(float)


def sample_regressors(
    mean: Array, factor: Array, pivots: Array, draws: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draws (draw, M) of a normal with a precision's factor, and their log densities (draw,)."""
    noise = rng.normal(size=(len(mean), draws))
    values = mean + solve_triangular(factor, noise, lower=True, trans="T").T
    return values, np.log(pivots).sum() + norm.logpdf(noise).sum(axis=0)


def as_dataset(variables: Variables, model: pm.Model) -> xr.Dataset:
    """Parameters of a mean field, with the model's labels of their dims."""
    dims = {dim for variable in variables.values() for dim in variable[0]}
    return xr.Dataset(
        dict(variables), coords={dim: list(model.coords[dim]) for dim in sorted(dims)}
    )


def regressors_bound(
    shape: float, rate: float, log_det: float, posterior_rate: Array, sharing: int = 1
) -> float:
    """E[log p(w | precision) + log p(precision)] plus the entropies of both factors.

    For w ~ N(0, 1 / precision), precision ~ Gamma(shape, rate), when the precisions' factor was
    updated after that of w; each precision is that of `sharing` w.
    """
    posterior_shape = shape + 0.5 * sharing
    constant = 0.5 * sharing + shape * np.log(rate) - gammaln(shape) + gammaln(posterior_shape)
    terms = posterior_rate.size * constant - posterior_shape * np.log(posterior_rate).sum()
    return float(0.5 * log_det + terms)


@dataclass(frozen=True)
class Gamma:
    """Independent Gamma variables with a common shape; `rate` is a number, or has one for each."""

    shape: float
    rate: float | Array

    @property
    def mean(self) -> Array:
        """Expectations."""
        return np.asarray(self.shape / self.rate)

    @property
    def mean_log(self) -> Array:
        """Expectations of the logarithms."""
        return np.asarray(digamma(self.shape) - np.log(self.rate))

    @property
    def log_constant(self) -> float:
        """Sum over the variables of the log constants of their densities."""
        log_rate = np.asarray(np.log(self.rate))
        return float(self.shape * log_rate.sum() - log_rate.size * gammaln(self.shape))

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Draws (draw, ...), and their log densities (draw,)."""
        values = rng.gamma(self.shape, size=(draws, *np.shape(self.rate))) / self.rate
        log_density = (self.shape - 1) * np.log(values) - self.rate * values
        return values, log_density.reshape(draws, -1).sum(axis=1) + self.log_constant


@cache
def _selections(n_kernels: int) -> Array:
    """All selections (2^S, S): row i has the bits of i."""
    codes = np.arange(2**n_kernels)
    return (codes[:, None] >> np.arange(n_kernels) & 1).astype(float)


@dataclass(frozen=True)
class BinaryFactor:
    """Q(beta) of a selection, by its states; `gain` is E[log p(beta)] - E[log Q(beta)]."""

    probability: Array
    states: Array
    gain: float

    @property
    def mean(self) -> Array:
        """E[beta], shape (S,)."""
        return self.probability @ self.states

    @property
    def second_moment(self) -> Array:
        """E[beta beta'], shape (S, S)."""
        return (self.states * self.probability[:, None]).T @ self.states

    @property
    def sd(self) -> Array:
        """Standard deviations."""
        return np.sqrt(self.mean * (1 - self.mean))

    def sample(self, draws: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Independent draws (draw, S), integers."""
        chosen = rng.choice(len(self.probability), size=draws, p=self.probability)
        return self.states[chosen].astype(np.int64)

    def log_density(self, beta: npt.NDArray[Any]) -> Array:
        """Log probabilities of states (n, S)."""
        codes = beta @ (1 << np.arange(beta.shape[1]))
        with np.errstate(divide="ignore"):
            return np.log(self.probability[codes])


def binary_factor(
    prior: Array, linear: Array, quadratic: Array, empty: bool = True
) -> BinaryFactor:
    """Compute Q(beta) exactly by enumeration of its 2^S states, in O(2^S S^2).

    It is proportional to exp(b'beta - beta'A beta / 2) prod_s p_s^beta_s (1 - p_s)^(1 - beta_s) for
    the `prior` p. Without `empty`, the empty selection is not a state.
    """
    states = _selections(len(prior))
    log_prior = states @ np.log(prior) + (1 - states) @ np.log1p(-prior)
    if not empty:
        log_prior[1:] -= np.log(-np.expm1(log_prior[0]))
        log_prior[0] = -np.inf
    log_p = log_prior + states @ linear - 0.5 * np.sum((states @ quadratic) * states, axis=1)
    log_p -= logsumexp(log_p)
    probability = np.exp(log_p)
    # Generator.choice needs probabilities that add up to 1.
    probability /= probability.sum()
    possible = probability > 0
    gain = probability[possible] @ (log_prior[possible] - log_p[possible])
    return BinaryFactor(probability, states, float(gain))


def too_many_selections(model: Any) -> str | None:
    """Why VB cannot enumerate the selections of a model's kernels; None where it can."""
    n_kernels = len(model.coords["kernel"])
    if isinstance(model.combination, Binary) and n_kernels > MOST_KERNELS:
        return f"it enumerates the selections of {MOST_KERNELS} kernels at most, not of {n_kernels}"
    return None
