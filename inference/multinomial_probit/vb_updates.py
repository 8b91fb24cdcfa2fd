"""The factors of the multinomial probit's mean field: their state, updates, and draws.

Equations and notation as in `vb`, which runs these updates to convergence.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import blas, lapack, solve_triangular
from scipy.special import gammaln

from ...models.combinations.normal_coordinates import (
    draw_hyperparameters,
    log_hyperparameter_density,
)
from ...models.combinations.products import FixedProduct, Product
from ...models.combinations.sums import Binary, Combination, FixedWeights, Mean
from ...models.multinomial_probit import MultinomialProbit
from ...numerics.kernel_products import KernelProducts
from ..variational.anderson import Coordinates
from ..variational.binary import BinaryFactor, binary_factor
from ..variational.concentration import ConcentrationFactor, concentration_factor
from ..variational.regressors import precision_factor, printed_bound, regressors_bound
from ..variational.simplex import TINY, SimplexFactor, moments_around, simplex_factor
from .expected_utilities import BatchedUtilities, ExpectedUtilities
from .vb_blocks import KernelsOfBlocks
from .vb_inner_steps import ascend, inner_steps
from .vb_kernel_parameters import ParameterFactor
from .vb_kernels import ExpectedKernels, KernelFamily

__all__ = [
    "COORDINATES",
    "Approximation",
    "Data",
    "State",
    "first_weights",
    "start",
    "update",
    "update_weights",
]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Inputs and settings of the updates.

    Parameters
    ----------
    labels : int array of shape (N,)
    n_classes : int
    tau, upsilon : float
    family : KernelFamily
        The kernels whose weighted sum is the composite kernel.
    known : ExpectedKernels, KernelsOfBlocks or None
        These kernels, if they are known.
    plug_in : bool
        Whether expectations replace variables, as in the printed equations.
    samples : int or None
        Samples of the prior for exponents and kernel parameters; None for a normal factor.
    batches : tuple of slice
        Objects whose utilities are updated together; none where all are.
    """

    labels: npt.NDArray[np.intp]
    n_classes: int
    tau: float
    upsilon: float
    family: KernelFamily
    known: ExpectedKernels | KernelsOfBlocks | None
    plug_in: bool
    samples: int | None = None
    batches: tuple[slice, ...] = ()

    @classmethod
    def of(
        cls,
        model: MultinomialProbit,
        plug_in: bool,
        samples: int | None = None,
        batch: int | None = None,
    ) -> Self:
        """Collect the inputs; the products cost O(S^2 N M^2)."""
        family = KernelFamily.of(model)
        known: ExpectedKernels | KernelsOfBlocks | None = None
        if model.blocks is not None:
            known = KernelsOfBlocks.of(model.blocks, model.label_codes)
        elif not len(family.coordinates):
            known = ExpectedKernels.of(family.stack(np.empty(0)))
        labels, n_classes = model.label_codes, model.n_classes
        starts = () if batch is None else range(0, len(labels), batch)
        return cls(
            *(labels, n_classes, model.tau, model.upsilon, family, known, plug_in, samples),
            tuple(slice(begin, begin + (batch or 0)) for begin in starts),
        )

    @property
    def rule(self) -> Combination:
        """Combination rule."""
        return self.family.composition.rule

    def utilities(
        self,
        kernels: ExpectedKernels | KernelsOfBlocks,
        weights: Array,
        regressors: Array,
        number: int | None = None,
    ) -> ExpectedUtilities:
        """Expect the utilities of all objects, or of one batch, at weights (S,) and W (C, M)."""
        objects = slice(None) if number is None else self.batches[number]
        return kernels.utilities(weights, regressors, self.labels, objects)

    @property
    def learned(self) -> bool:
        """Whether starts from different kernel weights differ."""
        return self.family.composition.learned


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the objective.

    `utilities` are at the scores after the iteration. `W_precision` (C, M), `W_weights` (S, S) and
    `W_products` are E[1/zeta] and the second moment of the composite kernel at the update of q(W).
    They determine its covariances, which are not stored. `gain` is the part of the bound from the
    weights and their hyperparameters.
    """

    utilities: ExpectedUtilities | BatchedUtilities
    W_mean: Array
    W_var: Array
    W_precision: Array
    W_weights: Array
    W_products: KernelProducts
    zeta_rate: Array
    kernels: ExpectedKernels | KernelsOfBlocks
    beta_mean: Array
    beta_second: Array
    rho_mean: Array
    objective: float
    gain: float = 0.0
    beta: SimplexFactor | BinaryFactor | None = None
    rho: ConcentrationFactor | None = None
    psi: ParameterFactor | None = None


def start(
    data: Data,
    weights: Array,
    rng: np.random.Generator | None = None,
    *,
    random: bool = False,
) -> State:
    """State before the first iteration, with zeta = 1 and the kernel weights `weights`.

    E[y] is computed at scores of zero, or at those of random regressors, scaled to variance one.
    """
    rng = rng or np.random.default_rng(0)
    psi = None
    if data.known is not None:
        kernels = data.known
    else:
        psi = data.family.start(weights, data.samples, rng)
        kernels = data.family.expected(psi, data.plug_in)
    n_basis = kernels.shape[2]
    shape = (data.n_classes, n_basis)
    beta = np.ones(1) if data.family.is_product else first_weights(data.rule, weights)
    second_moment = np.outer(beta, beta)
    regressors = np.zeros(shape)
    if random:
        regressors = rng.normal(size=shape)
        regressors /= kernels.spread(beta, regressors) or 1.0
    utilities: ExpectedUtilities | BatchedUtilities
    if data.batches:
        first = data.utilities(kernels, beta, regressors, 0)
        utilities = BatchedUtilities.of(first, len(data.labels))
    else:
        utilities = data.utilities(kernels, beta, regressors)
    return State(
        utilities=utilities,
        W_mean=np.zeros(shape),
        W_var=np.zeros(shape),
        W_precision=np.ones(shape),
        W_weights=second_moment,
        W_products=kernels.products,
        zeta_rate=np.full(shape, data.tau + 0.5),
        kernels=kernels,
        beta_mean=beta,
        beta_second=second_moment,
        rho_mean=np.full(len(beta), _prior_concentration(data.rule)),
        objective=-np.inf,
        psi=psi,
    )


@singledispatch
def _prior_concentration(rule: Combination) -> float:
    """Prior mean of the weights' concentrations; NaN if the weights have none."""
    return np.nan


@_prior_concentration.register
def _(rule: Mean) -> float:
    return rule.mu / rule.lam


@singledispatch
def first_weights(rule: Combination, weights: Array) -> Array:
    """Kernel weights at the start."""
    return weights


@first_weights.register
def _(rule: Binary, weights: Array) -> Array:
    return weights / weights.max()


def update(data: Data, state: State) -> State:
    """One iteration: W, zeta, weights, exponents and parameters, Y, and the objective.

    This is the loop of damoulas2009, Algorithm 1: eqs 9-10, eq 11, appendix B.4, eqs 7-8, and eq 5
    or its printed form, E.5-E.7.

    If the covariances of W are expensive, all other factors are updated a few times more, which
    raises the bound almost as much as full iterations. This is not done with exponents or kernel
    parameters, because W would adapt too closely to their current values.

    Where batches of objects take turns, all other factors are updated after each of them, given the
    covariances of W (Neal & Hinton 1998, A view of the EM algorithm that justifies incremental,
    sparse, and other variants): each is a step of coordinate ascent in the utilities of one batch,
    so that the bound does not fall.
    """
    shape = data.tau + 0.5
    precision = shape / state.zeta_rate
    kernels = state.kernels
    gram = kernels.products.gram(state.beta_second)

    # Only one triangle of the covariances is computed. Later steps need only inner products of
    # their sum with symmetric matrices, so the sum is folded onto that triangle.
    target = np.tensordot(state.beta_mean, state.utilities.products, axes=1)
    W_mean, W_var = np.empty_like(state.W_mean), np.empty_like(state.W_var)
    covariance = np.zeros_like(gram)
    log_det = 0.0
    inverses = []
    n_kernels, n_obs, n_basis = kernels.shape
    inner = inner_steps(n_kernels, n_obs, n_basis, data.n_classes)
    if data.plug_in or state.psi is not None:
        inner = 0
    turns: Sequence[int | None] = range(len(data.batches)) or [None] * inner
    for c in range(data.n_classes):
        factor, pivots = precision_factor(gram, precision[c])
        log_det -= 2 * np.log(pivots).sum()
        inverse, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        W_var[c] = np.diag(inverse)
        W_mean[c] = blas.dsymv(1.0, inverse, target[c], lower=True)
        covariance += inverse.T
        if turns:
            inverses.append(inverse)
    covariance *= kernels.products.fold
    zeta_rate = data.upsilon + 0.5 * (W_mean**2 + W_var)
    moment = W_mean.T @ W_mean + (0.0 if data.plug_in else covariance)
    new = replace(
        state,
        W_mean=W_mean,
        W_var=W_var,
        W_precision=precision,
        W_weights=state.beta_second,
        W_products=kernels.products,
        zeta_rate=zeta_rate,
    )
    linear, curvature = _linear(state.utilities, W_mean), kernels.products.traces(moment)
    new = update_weights(data.rule, data.plug_in, new, linear, curvature)
    for number in turns:
        new, curvature = _update_again(data, new, inverses, covariance, number)
    inverses.clear()
    W_mean, zeta_rate = new.W_mean, new.zeta_rate
    if new.psi is not None:
        new = _update_parameters(data, new, moment)
        curvature = new.kernels.products.traces(moment)

    utilities = new.utilities
    if not data.batches:
        utilities = data.utilities(new.kernels, new.beta_mean, W_mean)
    if data.plug_in:
        assert isinstance(utilities, ExpectedUtilities)
        spread = np.sum(new.kernels.products.gram(new.beta_second) * covariance)
        log_z = utilities.log_z
        objective = printed_bound(log_z, log_det, shape / zeta_rate, W_mean, W_var, spread)
    else:
        linear_now = float(new.beta_mean @ _linear(utilities, W_mean))
        objective = utilities.bound(linear_now) - 0.5 * np.sum(curvature * new.beta_second)
        objective += regressors_bound(data.tau, data.upsilon, log_det, zeta_rate) + new.gain
        objective += 0.0 if new.psi is None else new.psi.gain
    return replace(new, utilities=utilities, objective=float(objective))


def _update_again(
    data: Data,
    state: State,
    inverses: Sequence[Array],
    covariance: Array,
    number: int | None,
) -> tuple[State, Array]:
    """Update Y, or a batch of it, the means of W, zeta and the weights, given W's covariances.

    Returns the state, and the curvature that `update_weights` used.
    """
    kernels = state.kernels
    found = data.utilities(kernels, state.beta_mean, state.W_mean, number)
    utilities: ExpectedUtilities | BatchedUtilities = found
    if number is not None:
        assert isinstance(state.utilities, BatchedUtilities)
        utilities = state.utilities.renewed(number, found)
    W_mean = ascend(
        state.W_mean,
        inverses,
        gram=kernels.products.gram(state.beta_second),
        precision=(data.tau + 0.5) / state.zeta_rate,
        target=np.tensordot(state.beta_mean, utilities.products, axes=1),
    )
    zeta_rate = data.upsilon + 0.5 * (W_mean**2 + state.W_var)
    curvature = kernels.products.traces(W_mean.T @ W_mean + covariance)
    new = replace(state, utilities=utilities, W_mean=W_mean, zeta_rate=zeta_rate)
    linear = _linear(utilities, W_mean)
    return update_weights(data.rule, False, new, linear, curvature), curvature


def _linear(utilities: ExpectedUtilities | BatchedUtilities, W_mean: Array) -> Array:
    """Inner products (S,) of E[Y] with the scores by kernel."""
    return np.tensordot(utilities.products, W_mean, axes=2)


@singledispatch
def update_weights(
    rule: Combination, plug_in: bool, state: State, linear: Array, curvature: Array
) -> State:
    """Update q(beta), if the composite kernel is linear in beta, and its hyperparameters.

    Register a rule of your own with a function of these arguments.

    Parameters
    ----------
    rule : Combination
    plug_in : bool
        Whether to iterate the paper's printed equations instead of the mean field.
    state : State
        Factors before the update.
    linear, curvature : array of shape (S,), array of shape (S, S)
        The expected log likelihood as a function of the weights is linear'beta -
        beta'curvature beta / 2.

    Returns
    -------
    State
        `state` with new ``beta`` (a factor with ``mean``, ``sd``, ``sample`` and ``log_density``,
        such as `simplex_factor` returns), ``beta_mean`` (S,), ``beta_second`` = E[beta beta']
        (S, S), and ``gain``: E[log prior of beta] plus the factor's entropy.
    """
    raise NotImplementedError(
        f"VB has no factor for the weights of {type(rule).__name__}: register it with "
        f"update_weights of {__name__}."
    )


@update_weights.register
def _(
    rule: FixedProduct | FixedWeights | Product,
    plug_in: bool,
    state: State,
    linear: Array,
    curvature: Array,
) -> State:
    return state


@update_weights.register
def _(rule: Mean, plug_in: bool, state: State, linear: Array, curvature: Array) -> State:
    near = state.beta if isinstance(state.beta, SimplexFactor) else None
    beta = simplex_factor(state.rho_mean, linear, curvature, near=near)
    mean_log = np.log(beta.mean) if plug_in else beta.mean_log
    rho = concentration_factor(rule.mu, rule.lam, mean_log, near=state.rho)
    second_moment = np.outer(beta.mean, beta.mean) if plug_in else beta.second_moment
    return replace(
        state,
        beta=beta,
        rho=rho,
        beta_mean=beta.mean,
        beta_second=second_moment,
        rho_mean=rho.mean,
        gain=beta.entropy + rho.log_normaliser,
    )


@update_weights.register
def _(rule: Binary, plug_in: bool, state: State, linear: Array, curvature: Array) -> State:
    beta = binary_factor(rule.probabilities(len(linear)), linear, curvature, rule.empty)
    second_moment = np.outer(beta.mean, beta.mean) if plug_in else beta.second_moment
    return replace(state, beta=beta, beta_mean=beta.mean, beta_second=second_moment, gain=beta.gain)


def _update_parameters(data: Data, state: State, moment: Array) -> State:
    """Update q(psi), and the expectations of kernels and products."""
    assert state.psi is not None
    # The folded moment gives the same quadratic forms as the symmetric one.
    log_likelihood = data.family.log_likelihood(
        state.utilities.mean @ state.W_mean, state.beta_mean, state.beta_second, moment
    )
    psi = state.psi.updated(log_likelihood)
    return replace(state, psi=psi, kernels=data.family.expected(psi, data.plug_in))


def _coordinates(state: State) -> Array:
    assert isinstance(state.utilities, ExpectedUtilities)
    values = [state.utilities.products.ravel(), np.log(state.zeta_rate).ravel()]
    if isinstance(state.beta, SimplexFactor):
        values += [np.log(np.maximum(state.beta_mean, TINY)), np.log(state.rho_mean)]
    return np.concatenate(values)


def _at_coordinates(state: State, values: Array) -> State:
    assert isinstance(state.utilities, ExpectedUtilities)
    products = state.utilities.products
    y, zeta, weights = np.split(values, np.cumsum([products.size, state.zeta_rate.size]))
    state = replace(
        state,
        utilities=state.utilities._replace(products=y.reshape(products.shape)),
        zeta_rate=np.exp(zeta).reshape(state.zeta_rate.shape),
    )
    if not len(weights):
        return state
    log_beta, log_rho = weights.reshape(2, -1)
    mean, second_moment = moments_around(log_beta, state.beta_mean, state.beta_second)
    return replace(state, beta_mean=mean, beta_second=second_moment, rho_mean=np.exp(log_rho))


# E[Y]'K_s, the rates of zeta, and the means of weights on the simplex and of their concentrations.
# The weights' covariance, selections and kernel parameters follow one iteration later.
COORDINATES = Coordinates(_coordinates, _at_coordinates)


@dataclass(frozen=True)
class Approximation:
    """The distribution q of a state."""

    data: Data
    state: State

    def parameters(self, model: MultinomialProbit) -> xr.Dataset:
        """Parameters of q as a Dataset."""
        state = self.state
        shape = self.data.tau + 0.5
        regressor, kernel = ("class", "basis"), ("kernel",)
        variables = {
            "W_mean": (regressor, state.W_mean),
            "W_sd": (regressor, np.sqrt(state.W_var)),
            "zeta_shape": ((), shape),
            "zeta_rate": (regressor, state.zeta_rate),
        }
        if len(state.utilities.mean):
            variables["y_mean"] = ("obs", "class"), state.utilities.mean
        if state.beta is not None:
            variables |= {
                "beta_mean": (kernel, state.beta.mean),
                "beta_sd": (kernel, state.beta.sd),
            }
        if isinstance(state.beta, SimplexFactor) and state.rho is not None:
            variables |= {
                "beta_mean_log": (kernel, state.beta.mean_log),
                "beta_ess": ((), state.beta.ess),
                "rho_mean": (kernel, state.rho.mean),
                "rho_sd": (kernel, state.rho.sd),
            }
        if state.psi is not None:
            variables |= self._moments_of_parameters(state.psi)
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of rho, beta, zeta, W and log q. O(C M^3 + draws C M^2)."""
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        if state.rho is not None:
            out["rho"] = state.rho.sample(draws, rng)
            log_q += state.rho.log_density(out["rho"])
        if state.beta is not None:
            out["beta"] = state.beta.sample(draws, rng)
            log_q += state.beta.log_density(out["beta"])
        if state.psi is not None:
            psi, log_density = state.psi.sample(draws, rng)
            values = self.data.family.coordinates.values(psi)
            out |= values
            # The Jacobian of psi is the ratio of the prior densities; the prior of psi is
            # N(0, I).
            jacobian = self.data.family.coordinates.log_density(values)
            log_q += log_density + jacobian - stats.norm.logpdf(psi).sum(axis=1)
            log_q += self._sample_hyperparameters(out, rng)
        shape = self.data.tau + 0.5
        inverse = rng.gamma(shape, size=(draws, *state.zeta_rate.shape))
        out["zeta"] = state.zeta_rate / inverse
        # An inverse gamma density, from the Gamma variable that was drawn.
        of_zeta = (shape + 1) * np.log(inverse) - inverse - np.log(state.zeta_rate)
        log_q += of_zeta.sum(axis=(1, 2)) - state.zeta_rate.size * gammaln(shape)
        out["W"] = np.empty((draws, *state.W_mean.shape))
        gram = state.W_products.gram(state.W_weights)
        for c, mean in enumerate(state.W_mean):
            factor, pivots = precision_factor(gram, state.W_precision[c])
            noise = rng.normal(size=(len(mean), draws))
            out["W"][:, c] = mean + solve_triangular(factor, noise, lower=True, trans="T").T
            log_q += np.log(pivots).sum() - 0.5 * np.einsum("md,md->d", noise, noise)
        log_q -= 0.5 * state.W_mean.size * np.log(2 * np.pi)
        return out, log_q

    def _moments_of_parameters(self, psi: ParameterFactor) -> dict[str, Any]:
        """Means and standard deviations of exponents and parameters under their factor."""
        points, weights = psi.expectation
        variables: dict[str, Any] = {"parameters_ess": ((), psi.ess)}
        dims = {"beta": ("kernel",), "theta": ("parameter",)}
        for name, values in self.data.family.coordinates.values(points).items():
            mean = weights @ values
            variables[f"{name}_mean"] = (dims[name], mean)
            variables[f"{name}_sd"] = (dims[name], np.sqrt(weights @ (values - mean) ** 2))
        return variables

    def _sample_hyperparameters(
        self, out: dict[str, Array], rng: np.random.Generator
    ) -> Array | float:
        """Add draws of the exponents' hyperparameters, exact given the exponents; return log q."""
        coordinates = self.data.family.coordinates
        if not coordinates.n_exponents:
            return 0.0
        rates = coordinates.a, coordinates.b
        out["pi"], out["chi"] = draw_hyperparameters(out["beta"], *rates, rng)
        densities = log_hyperparameter_density(out["pi"], out["chi"], out["beta"], *rates)
        return densities.sum(axis=1)
