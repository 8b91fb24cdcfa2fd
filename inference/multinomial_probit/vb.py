r"""Variational Bayes for the multinomial probit with several kernels (Damoulas & Girolami 2009).

Mean field q(Y) q(W) q(zeta) q(beta) q(rho) for the model augmented with utilities y_n ~ N(f_n, I),
t_n = argmax y_n, by coordinate ascent on the bound of eq 5. With G(B) = sum_ij B_ij K_i'K_j and
K_bar = sum_s E[beta_s] K_s, the covariance of w_c is V_c = (G(E[beta beta']) + E[1/zeta_c])^-1.
`docs/equations.md` lists the paper's equations and where the factors differ: G(E[beta beta'])
replaces K_bar'K_bar, E[1/zeta] the printed inverse, and quadrature importance sampling. The paper
derives no factor of a binary selection: here it has the probabilities of all 2^S states. Exponents
of a product and kernel parameters share a normal factor (`vb_kernels`); pi and chi are exact given
beta.

Errors of mean field, measured on 24 objects against Gibbs (`test_agreement.py` has bounds):
contrasts of W shrink towards zero by up to 0.8 posterior standard deviations, the weights' means
are off by 0.6, and the standard deviations are 0.2 to 0.45 (contrasts) and 0.3 (weights) of the
true ones.

The bound includes all factors and never falls, except for more than three weights by the error of
the quadrature when new points are placed: at most 0.001 (S = 4), 0.004 (S = 6), 0.012 (S = 8) on
small problems. The printed Algorithm 1 has E[beta] for beta in V_c and in Q(rho), leaves the
covariance of W out of Q(beta), and monitors E.5-E.7, which may fall: see
`studies.damoulas2009_printed`.

One iteration costs C Cholesky inverses of order M and O(S^2 M^2 + S N M C + N C^1.5); the products
K_i'K_j take S (S + 1) / 4 M x M matrices of memory.

Iterations are accelerated (`variational.ascent`), except those with exponents or kernel parameters,
which would end at lower maxima.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats
from scipy.linalg import blas, lapack
from scipy.special import gammaln

from ...models.combinations.normal_coordinates import (
    draw_hyperparameters,
    log_hyperparameter_density,
)
from ...models.combinations.products import FixedProduct, Product
from ...models.combinations.sums import Binary, Combination, FixedWeights, Mean, WeightedSum
from ...models.learned_scale import LearnedScale
from ...models.multinomial_probit import Composition, MultinomialProbit
from ...validation import Count, Positive, PositiveOrInf
from ..engine.engine import Run, unknown_combination
from ..engine.result import VariationalOutput
from ..variational.ascent import (
    FIRST_ROUND,
    Coordinates,
    MultistartResult,
    ascended,
    multistart_ascent,
)
from ..variational.concentration import check_prior
from ..variational.factors import (
    Gamma,
    Variables,
    as_dataset,
    precision_factor,
    regressors_bound,
    sample_regressors,
    too_many_selections,
)
from ..variational.weights import Weights
from .vb_kernels import ExpectedKernels, ExpectedUtilities, KernelFamily, Normal

type Array = npt.NDArray[np.float64]

#: Rules of combination whose weights have a factor here, or whose factor is that of the parameters.
RULES_WITH_FACTORS = Mean, Binary, FixedWeights, Product, FixedProduct

# Largest remaining increase, in nats, for up to 200 contrasts (objects times classes minus one).
REMAINING = 0.01
CONTRASTS = 200


@dataclass(frozen=True)
class Data:
    """Inputs of the updates.

    The kernels of `family` have the composite kernel as their weighted sum; `known` are these
    kernels if they have no parameters and exponents to learn. `prior` is that of concentrations, if
    there are any.
    """

    codes: npt.NDArray[np.intp]
    n_classes: int
    tau: float
    upsilon: float
    family: KernelFamily
    known: ExpectedKernels | None
    rule: Combination
    prior: Gamma | None

    @classmethod
    def of(cls, model: MultinomialProbit) -> Self:
        """Collect the inputs of a model."""
        assert not isinstance(model.upsilon, LearnedScale)
        numbers = model.n_classes, model.tau, model.upsilon
        return cls.on(model.composition, model.label_codes, *numbers)

    @classmethod
    def on(
        cls,
        composition: Composition,
        codes: npt.NDArray[np.intp],
        n_classes: int,
        tau: float,
        upsilon: float,
    ) -> Self:
        """Prepare the kernels and the class codes (N,); the products cost O(S^2 N M^2)."""
        family = KernelFamily(composition)
        known = None
        if not len(family.coordinates):
            known = ExpectedKernels.of(family.stack(np.empty(0)))
        combination = composition.rule
        prior = None
        if isinstance(combination, Mean):
            prior = Gamma(combination.mu, combination.lam)
        return cls(codes, n_classes, tau, upsilon, family, known, combination, prior)


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the objective.

    `utilities` are at the scores after the iteration. `W_gram` (M, M) and `W_precision` (C, M) are
    G(E[beta beta']) and E[1/zeta] at the update of q(W), which determine its covariances. As a
    function of the weights (S,) the log likelihood is linear'beta - beta'`curvature` beta / 2.
    """

    kernels: ExpectedKernels
    utilities: ExpectedUtilities
    W_mean: Array
    W_var: Array
    W_gram: Array
    W_precision: Array
    zeta_rate: Array
    weights: Weights
    curvature: Array
    objective: float
    psi: Normal | None = None

    @property
    def linear(self) -> Array:
        """Inner products (S,) of E[Y] with the scores by kernel."""
        return np.tensordot(self.utilities.products, self.W_mean, axes=2)


def start(data: Data, beta: Array) -> State:
    """State before the first iteration: zeta = 1, kernel weights `beta`, scores of zero."""
    psi = None
    if data.known is not None:
        kernels = data.known
    else:
        psi = data.family.start(beta)
        kernels = data.family.expected(psi)
    beta = beta if isinstance(data.rule, WeightedSum) else np.ones(1)
    weights = Weights.start(data.rule, beta, data.prior)
    gram = kernels.products.gram(weights.second)
    none = np.zeros((data.n_classes, len(gram)))
    return State(
        kernels=kernels,
        utilities=kernels.utilities(weights.mean, none, data.codes),
        W_mean=none,
        W_var=none,
        W_gram=gram,
        W_precision=np.ones_like(none),
        zeta_rate=np.full_like(none, data.tau + 0.5),
        weights=weights,
        curvature=np.zeros_like(weights.second),
        objective=-np.inf,
        psi=psi,
    )


class Covariances(NamedTuple):
    """Covariances of q(W) in one iteration.

    `total` (M, M) is their sum over the classes; `log_det` the sum of their log determinants.
    """

    total: Array
    log_det: float


def update(data: Data, state: State) -> State:
    """One iteration of Algorithm 1, and the bound (eq 5)."""
    state, covariances = _update_regressors(data, state)
    state = _update_scales(data, state)
    state = _update_weights(data, state, covariances)
    if state.psi is not None:
        state = _update_parameters(data, state, covariances)
    state = _update_utilities(data, state)
    return replace(state, objective=_bound(data, state, covariances.log_det))


def _update_utilities(data: Data, state: State) -> State:
    """Q(Y), eqs 6-8, B.1."""
    utilities = state.kernels.utilities(state.weights.mean, state.W_mean, data.codes)
    return replace(state, utilities=utilities)


def _update_regressors(data: Data, state: State) -> tuple[State, Covariances]:
    """Q(W), eqs 9-10, B.2-B.3."""
    products = state.kernels.products
    precision = (data.tau + 0.5) / state.zeta_rate
    gram = products.gram(state.weights.second)
    target = np.tensordot(state.weights.mean, state.utilities.products, axes=1)
    mean = np.empty_like(state.W_mean)
    var = np.empty_like(state.W_var)
    total = np.zeros_like(gram)
    log_det = 0.0
    for c in range(data.n_classes):
        factor, pivots = precision_factor(gram, precision[c])
        log_det -= 2 * np.log(pivots).sum()
        # Only one triangle of the covariance is computed.
        covariance, _ = lapack.dpotri(factor, lower=True, overwrite_c=True)
        var[c] = np.diag(covariance)
        mean[c] = blas.dsymv(1.0, covariance, target[c], lower=True)
        total += covariance.T
    total = np.triu(total) + np.triu(total, 1).T
    state = replace(state, W_mean=mean, W_var=var, W_gram=gram, W_precision=precision)
    return state, Covariances(total, log_det)


def _update_scales(data: Data, state: State) -> State:
    """Q(zeta): its rates, eq 11, which has their E[1/zeta]."""
    return replace(state, zeta_rate=data.upsilon + 0.5 * (state.W_mean**2 + state.W_var))


def _update_weights(data: Data, state: State, covariances: Covariances) -> State:
    """Q(beta) and Q(rho), appendix B.4."""
    state = replace(state, curvature=_curvature(state, covariances))
    if isinstance(data.rule, FixedWeights | FixedProduct | Product):
        return state
    weights = state.weights.updated(data.rule, data.prior, state.linear, state.curvature)
    return replace(state, weights=weights)


def _curvature(state: State, covariances: Covariances) -> Array:
    return state.kernels.products.traces(state.W_mean.T @ state.W_mean + covariances.total)


def _update_parameters(data: Data, state: State, covariances: Covariances) -> State:
    """Q(psi) of exponents and kernel parameters (appendix B.4), and what follows of the kernels."""
    assert state.psi is not None
    log_likelihood = data.family.log_likelihood(
        state.utilities.mean @ state.W_mean,
        state.weights.mean,
        state.weights.second,
        state.W_mean.T @ state.W_mean + covariances.total,
    )
    psi = state.psi.updated(log_likelihood)
    state = replace(state, psi=psi, kernels=data.family.expected(psi))
    return replace(state, curvature=_curvature(state, covariances))


def _bound(data: Data, state: State, log_det: float) -> float:
    """Bound on the log evidence, eq 5, right after all factors have been updated."""
    bound = state.utilities.log_z + 0.5 * state.utilities.square
    bound -= 0.5 * np.sum(state.curvature * state.weights.second)
    bound += regressors_bound(data.tau, data.upsilon, log_det, state.zeta_rate) + state.weights.gain
    return float(bound + (0.0 if state.psi is None else state.psi.gain))


def _coordinates(state: State) -> Array:
    products = state.utilities.products.ravel()
    rates = np.log(state.zeta_rate).ravel()
    return np.concatenate([products, rates, state.weights.coordinates])


def _at_coordinates(state: State, values: Array) -> State:
    products = state.utilities.products
    y, zeta, weights = np.split(values, np.cumsum([products.size, state.zeta_rate.size]))
    return replace(
        state,
        utilities=state.utilities._replace(products=y.reshape(products.shape)),
        zeta_rate=np.exp(zeta).reshape(state.zeta_rate.shape),
        weights=state.weights.at(weights),
    )


# E[Y]'K_s, the rates of zeta, and the weights. Kernel parameters follow one iteration later.
COORDINATES = Coordinates(_coordinates, _at_coordinates)


def unsupported(model: MultinomialProbit) -> str | None:
    """Why VB does not apply to a model; None when it does."""
    rule = model.combination
    rules = list[type](RULES_WITH_FACTORS)
    if isinstance(rule, WeightedSum) and hasattr(rule, "variational_factor"):
        rules.append(type(rule))
    others = " and weighted sums with a method variational_factor"
    return unknown_combination(model, rules, others) or too_many_selections(model)


def fit_multinomial_probit(
    model: MultinomialProbit,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf | None = None,
    starts: Count | None = None,
) -> VariationalOutput:
    """Fit q by coordinate ascent from several starts; `variational_probit` explains the settings.

    LinAlgError when the kernels' scale makes a covariance numerically singular.
    """
    model.check_stand_ins()
    data = Data.of(model)
    result = best_of_starts(
        data,
        len(model.coords["basis"]),
        run,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        starts=starts,
    )
    result.state.weights.warn_of_imprecision()
    return VariationalOutput(
        elbo=result.histories,
        best=result.best,
        converged=result.converged,
        parameters=_parameters(data, result.state, model),
        sample=partial(sample, data, result.state),
    )


def best_of_starts(
    data: Data,
    n_basis: int,
    run: Run,
    *,
    max_iterations: int = 5000,
    tolerance: float = 1e-6,
    remaining: float | None = None,
    starts: int | None = None,
) -> MultistartResult[State]:
    """Ascend from several starts on kernels of so many basis functions."""
    rule = data.rule
    if isinstance(rule, Mean):
        check_prior(rule.mu, rule.lam, rule, ("mu", "lam"), "VB on MultinomialProbit")
    contrasts = len(data.codes) * max(data.n_classes - 1, 2)
    remaining = REMAINING * max(1.0, contrasts / CONTRASTS) if remaining is None else remaining
    composition = data.family.composition
    return multistart_ascent(
        [partial(start, data)],
        partial(update, data),
        run,
        len(composition.known),
        known=None if composition.learned else composition.known,
        starts=starts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        first_round=FIRST_ROUND["probit"],
        # With exponents or kernel parameters, an accelerated ascent ends at lower maxima.
        coordinates=None if data.known is None else COORDINATES,
    )


def path_of_scales(data: Data, scales: Sequence[float]) -> Iterator[State]:
    """Ascend for one upsilon after another, each from the last solution."""
    n_kernels = len(data.family.composition.known)
    # The start does not depend on upsilon: the first shift is zero.
    state = start(data, np.full(n_kernels, 1 / n_kernels))
    before = scales[0]
    for upsilon in scales:
        data = replace(data, upsilon=upsilon)
        rate = state.zeta_rate + (upsilon - before)
        state = replace(state, zeta_rate=rate, objective=-np.inf)
        state = ascended(state, partial(update, data), COORDINATES)
        before = upsilon
        yield state


def _parameters(data: Data, state: State, model: MultinomialProbit) -> xr.Dataset:
    """Parameters of q."""
    given = (state.W_mean, state.W_var, data.tau, state.zeta_rate, state.weights)
    variables = parameters_of_factors(*given, state.psi, data.family)
    variables["y_mean"] = ("obs", "class"), state.utilities.mean
    return as_dataset(variables, model)


def parameters_of_factors(
    W_mean: Array,
    W_var: Array,
    tau: float,
    zeta_rate: Array,
    weights: Weights,
    psi: Normal | None,
    family: KernelFamily,
) -> Variables:
    """Parameters of the factors that both schemes have."""
    regressor = "class", "basis"
    variables: Variables = {
        "W_mean": (regressor, W_mean),
        "W_sd": (regressor, np.sqrt(W_var)),
        "zeta_shape": ((), tau + 0.5),
        "zeta_rate": (regressor, zeta_rate),
    }
    if psi is not None:
        points, shares = psi.expectation
        for name, values in family.coordinates.values(points).items():
            mean = shares @ values
            of = ("kernel" if name == "beta" else "parameter",)
            variables[f"{name}_mean"] = of, mean
            variables[f"{name}_sd"] = of, np.sqrt(shares @ (values - mean) ** 2)
    return variables | weights.parameters("rho")


def sample(
    data: Data, state: State, draws: int, rng: np.random.Generator
) -> tuple[dict[str, Array], Array]:
    """Independent draws of rho, beta, zeta, W and log q. O(C M^3 + draws C M^2)."""
    given = (state.weights, state.psi, data.family, data.tau, state.zeta_rate)
    out, log_q = sample_factors(*given, draws, rng)
    out["W"] = np.empty((draws, *state.W_mean.shape))
    for c, mean in enumerate(state.W_mean):
        factor = precision_factor(state.W_gram, state.W_precision[c])
        out["W"][:, c], log_density = sample_regressors(mean, *factor, draws, rng)
        log_q += log_density
    return out, log_q


def sample_factors(
    weights: Weights,
    psi: Normal | None,
    family: KernelFamily,
    tau: float,
    zeta_rate: Array,
    draws: int,
    rng: np.random.Generator,
) -> tuple[dict[str, Array], Array]:
    """Independent draws of rho, beta, kernel parameters and zeta, by name, and log q (draw,)."""
    out, log_q = weights.sample("rho", draws, rng)
    if psi is not None:
        points, log_density = psi.sample(draws, rng)
        coordinates = family.coordinates
        values = coordinates.values(points)
        out |= values
        # The Jacobian of psi is the ratio of the prior densities; the prior of psi is N(0, I).
        jacobian = coordinates.log_density(values)
        log_q += log_density + jacobian - stats.norm.logpdf(points).sum(axis=1)
        if coordinates.n_exponents:
            # The exponents' hyperparameters are exact given the exponents.
            rates = coordinates.a, coordinates.b
            out["pi"], out["chi"] = draw_hyperparameters(out["beta"], *rates, rng)
            densities = log_hyperparameter_density(out["pi"], out["chi"], out["beta"], *rates)
            log_q += densities.sum(axis=1)
    shape = tau + 0.5
    inverse = rng.gamma(shape, size=(draws, *zeta_rate.shape))
    out["zeta"] = zeta_rate / inverse
    # An inverse gamma density, from the Gamma variable that was drawn.
    of_zeta = (shape + 1) * np.log(inverse) - inverse - np.log(zeta_rate)
    log_q += of_zeta.sum(axis=(1, 2)) - zeta_rate.size * gammaln(shape)
    return out, log_q
