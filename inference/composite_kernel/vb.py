r"""Variational Bayes on a composite kernel (Girolami & Rogers 2005, section 4).

Mean field Q(alpha) Q(phi) Q(gamma) Q(beta) Q(varphi) for f = K_beta alpha and a likelihood of
precisions w_n and linear terms l_n, log p = sum_n l_n f_n - w_n f_n^2 / 2. Regression has w =
E[gamma], l = E[gamma] t. In classification Jaakkola's bound replaces the likelihood, which lowers
the bound: w = tanh(xi / 2) / (2 xi), l = t - 1/2. `docs/equations.md` lists the paper's equations
and where the factors differ: E[beta beta'] replaces E[beta] E[beta]', quadrature replaces
importance sampling from the prior, and a selection has the probabilities of all 2^K states.

The bound holds all terms and never falls with exact moments. For more than three kernels it may
fall by the error of the quadrature when new points are placed (see `simplex`).

Mean field neglects dependence: the standard deviations of beta are several times too small, and the
bound has several maxima in beta. It is nearly certain of selections where the posterior is not:
take Gibbs for inclusion probabilities. Hence the fit uses several starts, and the Pareto k-hat of
the result compares Q with the declaration's density.

With several outputs, E[f^2] and l f are summed over them: Q(beta), Q(phi) and Q(alpha) of all
outputs are one fit.

The likelihoods say what an iteration costs. Iterations are accelerated (`variational.ascent`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pymc as pm
import xarray as xr

from ...custom_steps.composite_kernel.steps import RULES_OF_SWEEP
from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import (
    Basis,
    CompositeKernelClassification,
    CompositeKernelRegression,
)
from ...models.learned_scale import LearnedScale
from ...numerics.kernel_products import KernelProducts
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
    as_dataset,
    regressors_bound,
    sample_regressors,
    too_many_selections,
)
from ..variational.weights import Weights
from .vb_likelihoods import Bernoulli, Gaussian, Regressors, products_with_targets

type Array = npt.NDArray[np.float64]
type CompositeKernelModel = CompositeKernelRegression | CompositeKernelClassification


@dataclass(frozen=True)
class Data:
    """Inputs of the updates.

    `priors` are those of the precisions "phi", and of the concentrations "varphi" if they are
    learned. `rule` is that of the learned weights; None if the weights are known. With `constant`,
    a last matrix of the design always has weight 1, beside a selection. The declared alpha has a
    first axis of outputs if there are `several`.
    """

    likelihood: Gaussian | Bernoulli
    priors: Mapping[str, Gamma]
    rule: DirichletWeights | Binary | None
    constant: bool = False
    several: bool = False

    @property
    def n_functions(self) -> int:
        """Number of functions M."""
        return self.likelihood.projections.shape[-1]

    def scaled(self, varsigma: float) -> Self:
        """Replace the rate of the precisions' prior."""
        phi = replace(self.priors["phi"], rate=varsigma)
        return replace(self, priors={**self.priors, "phi": phi})


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the bound.

    `phi` is Q(phi), with rates (M,), one per function. `noise` are the rates of Q(gamma), or points
    xi in classification. `made_of` holds the inputs of Q(alpha): noise, E[phi] and E[beta beta'].
    """

    alpha: Regressors
    made_of: tuple[Array, Array, Array]
    phi: Gamma
    weights: Weights
    noise: Array
    objective: float


def start(data: Data, n_functions: int, beta: Array) -> State:
    """State before the first iteration: phi, gamma or xi 1, varphi by its prior."""
    weights = Weights.start(data.rule, beta, data.priors.get("varphi"), data.constant)
    noise = data.likelihood.start()
    none = np.zeros(n_functions)
    one = np.ones(n_functions)
    linear = np.zeros(len(weights.mean))
    return State(
        alpha=Regressors(none[None], none[None], 0.0, linear, weights.second),
        made_of=(noise, one, weights.second),
        phi=Gamma(1.0, one),
        weights=weights,
        noise=noise,
        objective=-np.inf,
    )


def update(data: Data, state: State) -> State:
    """One iteration: all factors of girolami2005, section 4.1, or 4.4, and the bound."""
    state = _update_regressors(data, state)
    state = _update_precisions(data, state)
    state = _update_weights(data, state)
    noise = data.likelihood.noise(state.alpha, state.weights.mean, state.weights.second)
    state = replace(state, noise=noise)
    return replace(state, objective=_bound(data, state))


def _update_regressors(data: Data, state: State) -> State:
    """Q(alpha), section 4.1."""
    made_of = noise, phi, second = state.noise, state.phi.mean, state.weights.second
    alpha = data.likelihood.regressors(noise, phi, state.weights.mean, second)
    return replace(state, alpha=alpha, made_of=made_of)


def _update_precisions(data: Data, state: State) -> State:
    """Q(phi), rates (M,), section 4.1: outputs share the precision of a function."""
    prior = data.priors["phi"]
    alpha = state.alpha
    squares = (alpha.mean**2 + alpha.var).sum(axis=0)
    phi = Gamma(prior.shape + 0.5 * len(alpha.mean), prior.rate + 0.5 * squares)
    return replace(state, phi=phi)


def _update_weights(data: Data, state: State) -> State:
    """Q(beta) and Q(varphi), section 4.1."""
    if data.rule is None:
        return state
    terms = data.likelihood.weights_terms(state.alpha, state.noise)
    weights = state.weights.updated(data.rule, data.priors.get("varphi"), *terms)
    return replace(state, weights=weights)


def _bound(data: Data, state: State) -> float:
    """Bound on the log evidence, right after all factors have been updated."""
    prior = data.priors["phi"]
    alpha = state.alpha
    rates = np.asarray(state.phi.rate)
    of_alpha = regressors_bound(
        prior.shape, float(prior.rate), alpha.log_det, rates, len(alpha.mean)
    )
    of_data = data.likelihood.bound(alpha, state.noise, state.weights.mean)
    return float(of_alpha + state.weights.gain + of_data)


def _coordinates(state: State) -> Array:
    logs = np.log(state.noise), np.log(state.phi.rate)
    return np.concatenate([*logs, state.weights.coordinates])


def _at_coordinates(state: State, values: Array) -> State:
    sizes = [len(state.noise), len(np.asarray(state.phi.rate))]
    noise, phi, weights = np.split(values, np.cumsum(sizes))
    return replace(
        state,
        noise=np.exp(noise),
        phi=replace(state.phi, rate=np.exp(phi)),
        weights=state.weights.at(weights),
    )


# The noise, the rates of phi, and the means of weights and concentrations.
COORDINATES = Coordinates(_coordinates, _at_coordinates)


def unsupported(model: CompositeKernelModel) -> str | None:
    """Why VB does not apply to a model; None where it does."""
    if isinstance(model, CompositeKernelRegression) and model.collapsed:
        return "it needs alpha in the declaration; declare it with collapsed=False"
    if isinstance(model.varsigma, LearnedScale):
        return "it cannot learn varsigma; give a number, which kz.select can choose"
    return unknown_combination(model, RULES_OF_SWEEP) or too_many_selections(model)


def _inputs(model: CompositeKernelModel) -> Data:
    """Collect the inputs of the updates."""
    classes = isinstance(model, CompositeKernelClassification)
    responses = model.label_codes if classes else model.target_values
    assert not isinstance(model.varsigma, LearnedScale)
    given = (model.combination, model.functions, model.kernel_values().copy(), responses)
    return inputs_on(model, *given, varsigma=model.varsigma)


def inputs_on(
    model: CompositeKernelModel,
    rule: Any,
    functions: Basis,
    kernels: Array,
    responses: npt.NDArray,
    *,
    varsigma: float,
) -> Data:
    """Collect the inputs on any kernels (kernel, obs, basis) and responses (obs, ...).

    Of the model they have the other prior numbers, and what several outputs share.
    """
    priors = {"phi": Gamma(model.sigma, varsigma)}
    if isinstance(rule, DirichletWeights) and rule.varphi is None:
        check_prior(rule.tau, rule.nu, rule, ("tau", "nu"), f"VB on {type(model).__name__}")
        priors["varphi"] = Gamma(rule.tau, rule.nu)
    likelihood = _likelihood(model, functions(kernels), responses)
    learned = None if isinstance(rule, FixedWeights) else rule
    return Data(likelihood, priors, learned, functions.bias_apart, model.several)


def _likelihood(
    model: CompositeKernelModel, design: Array, responses: npt.NDArray
) -> Gaussian | Bernoulli:
    if isinstance(model, CompositeKernelClassification):
        return Bernoulli.of(design, responses)
    prior = Gamma(model.rho, model.varrho)
    products = KernelProducts.of(design)
    projections = products_with_targets(design, np.atleast_2d(responses.T))
    shared_noise = not model.several or model.shared == "all"
    return Gaussian.of(products, projections, responses, prior, shared_noise)


def fit_composite_kernel(
    model: CompositeKernelModel,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf = 0.01,
    starts: Count | None = None,
) -> VariationalOutput:
    """Fit Q by coordinate ascent from several starts.

    ``beta_mean_of_start`` (start, kernel) holds the last weights of every start.

    Parameters
    ----------
    max_iterations : int, default=5000
        Largest number of iterations of a start.
    tolerance : float, default=1e-6
        Relative change of the bound below which a start may end, if `remaining` allows it.
    remaining : float, default=0.01
        A start does not end before the estimated remaining increase of its bound, in nats, is at
        most this, if increases keep shrinking at the present rate. With inf only `tolerance`
        counts.
    starts : int, optional
        Number of starts, which differ in the initial kernel weights: uniform, each kernel alone,
        random. The start with the highest bound wins; known weights need one. By default
        uniform and each kernel alone, at most 8, of which the highest continues alone after a first
        round; uniform only for more than 16 kernels.

    Raises
    ------
    LinAlgError
        When the kernels' scale makes a covariance numerically singular.
    """
    n_kernels = len(model.coords["kernel"])
    data = _inputs(model)
    result = best_of_starts(
        data,
        n_kernels,
        run,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        starts=starts,
    )
    result.state.weights.warn_of_imprecision()
    parameters = _parameters(data, result.state, model)
    if model.learned:
        ends = np.array([state.weights.mean[:n_kernels] for state in result.states])
        parameters["beta_mean_of_start"] = (("start", "kernel"), ends)
    return VariationalOutput(
        elbo=result.histories,
        best=result.best,
        converged=result.converged,
        parameters=parameters,
        sample=partial(sample, data, result.state),
    )


def best_of_starts(
    data: Data,
    n_kernels: int,
    run: Run,
    *,
    max_iterations: int = 5000,
    tolerance: float = 1e-6,
    remaining: float = 0.01,
    starts: int | None = None,
) -> MultistartResult[State]:
    """Ascend from several starts, which differ in the weights of so many kernels."""
    classes = isinstance(data.likelihood, Bernoulli)
    return multistart_ascent(
        [partial(start, data, data.n_functions)],
        partial(update, data),
        run,
        n_kernels,
        known=np.ones(1) if data.rule is None else None,
        starts=starts,
        max_iterations=max_iterations,
        tolerance=tolerance,
        remaining=remaining,
        first_round=FIRST_ROUND["classification" if classes else "regression"],
        coordinates=COORDINATES,
    )


def path_of_scales(data: Data, n_kernels: int, scales: Sequence[float]) -> Iterator[State]:
    """Ascend for one varsigma after another, each from the last solution."""
    state = start(data, data.n_functions, np.full(n_kernels, 1 / n_kernels))
    # The start does not depend on varsigma: the first shift is zero.
    before = scales[0]
    for scale in scales:
        data = data.scaled(scale)
        phi = replace(state.phi, rate=state.phi.rate + (scale - before))
        state = replace(state, phi=phi, objective=-np.inf)
        state = ascended(state, partial(update, data), COORDINATES)
        before = scale
        yield state


def _parameters(data: Data, state: State, model: pm.Model) -> xr.Dataset:
    """Parameters of Q."""
    mean = state.alpha.mean
    sd = np.sqrt(state.alpha.var)
    of_alpha = ("output", "function") if data.several else ("function",)
    variables: dict[str, Any] = {
        "alpha_mean": (of_alpha, mean if data.several else mean[0]),
        "alpha_sd": (of_alpha, sd if data.several else sd[0]),
        "phi_shape": ((), state.phi.shape),
        "phi_rate": (("function",), state.phi.rate),
    }
    for name, gamma in data.likelihood.factors(state.noise).items():
        variables[f"{name}_shape"] = (), gamma.shape
        variables[f"{name}_rate"] = ("output",) * np.ndim(gamma.rate), gamma.rate
    if isinstance(data.likelihood, Bernoulli):
        variables["xi"] = ("obs",), state.noise
    return as_dataset(variables | state.weights.parameters("varphi"), model)


def sample(
    data: Data, state: State, draws: int, rng: np.random.Generator
) -> tuple[dict[str, Array], Array]:
    """Independent draws of all variables, and log Q.

    O(G M^3 + P draws M^2) for P outputs with G noise precisions.
    """
    out: dict[str, Array] = {}
    log_q = np.zeros(draws)
    for name, gamma in (data.likelihood.factors(state.noise) | {"phi": state.phi}).items():
        out[name], log_density = gamma.sample(draws, rng)
        log_q += log_density
    of_weights, log_density = state.weights.sample("varphi", draws, rng)
    out |= of_weights
    log_q += log_density
    alpha: list[Array] = []
    means = state.alpha.mean.reshape(-1, data.likelihood.sharing, state.alpha.mean.shape[1])
    factors = data.likelihood.precisions(*state.made_of)
    for of_group, factor in zip(means, factors, strict=True):
        for mean in of_group:
            values, log_density = sample_regressors(mean, *factor, draws, rng)
            alpha.append(values)
            log_q += log_density
    out["alpha"] = np.stack(alpha, axis=1) if data.several else alpha[0]
    return out, log_q
