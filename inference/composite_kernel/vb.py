r"""Variational Bayes on a composite kernel (Girolami & Rogers 2005, section 4).

Mean field Q(alpha) Q(phi) Q(gamma) Q(beta) Q(varphi). With f = K_beta alpha, B = E[beta beta'],
and a likelihood of precisions w_n and linear terms l_n, log p = sum_n l_n f_n - w_n f_n^2 / 2:

| factor | paper | here |
|---|---|---|
| alpha | N(m, Sigma), section 4.1, with E[beta] E[beta]' | with B |
| phi | Gamma(sigma + 1/2, varsigma + E[alpha^2] / 2) | the same |
| gamma | (N + 2 rho) / (E[e'e] + 2 rho) | 2 varrho in the denominator |
| beta | importance sampling from the prior | quadrature, `simplex_factor` |
| selection beta | not in the paper | all 2^K states |
| varphi | importance sampling from the prior | quadrature, `concentration_factor` |
| xi, section 4.4 | f(E[beta]) | xi_n^2 = E[f_n^2] = tr(B K_n' E[alpha alpha'] K_n) |

Regression has w = E[gamma], l = E[gamma] t. In classification Jaakkola's bound replaces the
likelihood, which lowers the bound: w = tanh(xi / 2) / (2 xi), l = t - 1/2.

The bound holds all terms and never falls with exact moments. For more than three kernels it may
fall by the error of the quadrature when new points are placed (see `simplex`).

Mean field neglects dependence: the standard deviations of beta are several times too small, and the
bound has several maxima in beta. It is nearly certain of selections where the posterior is not:
take Gibbs for inclusion probabilities. Hence the fit uses several starts, and the Pareto k-hat of
the result compares Q with the declaration's density.

With several outputs, E[f^2] and l f are summed over them: Q(beta), Q(phi) and Q(alpha) of all
outputs are one fit. Outputs that share nothing have a fit each.

In regression an iteration costs a Cholesky inverse of order M and O(K^2 M^2), for each noise
precision if there are several; the products K_i'K_j take K (K + 1) / 2 M x M matrices of memory. In
classification it costs O(K N M^2 + M^3 + K^2 N M), without a copy of the kernels. Iterations are
accelerated (`variational.ascent`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pymc as pm
import xarray as xr
from scipy.linalg import solve_triangular
from scipy.special import gammaln
from scipy.stats import norm

from ...models.combinations.sums import Binary, DirichletWeights, FixedWeights
from ...models.composite_kernel import CompositeKernelClassification, CompositeKernelRegression
from ...models.kernels.dask_stack import DaskStack
from ...models.learned_scale import LearnedScale
from ...validation import Count, Positive, PositiveOrInf
from ..engine.engine import Run
from ..engine.outputs import VariationalOutput
from ..variational.ascent import (
    FIRST_ROUND,
    Coordinates,
    MultistartResult,
    ascended,
    multistart_ascent,
)
from ..variational.concentration import ConcentrationFactor, check_prior, concentration_factor
from ..variational.factors import BinaryFactor, Gamma, binary_factor, regressors_bound, why_not
from ..variational.simplex import (
    TINY,
    SimplexFactor,
    moments_around,
    simplex_factor,
    warn_of_imprecision,
)
from .vb_likelihoods import Bernoulli, Gaussian, Regressors

__all__ = [
    "COORDINATES",
    "Approximation",
    "Data",
    "State",
    "fit_composite_kernel",
    "path_of_scales",
    "start",
    "update",
]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    """Inputs of the updates.

    `priors` are those of the precisions "phi", and of the concentrations "varphi" if they are
    learned. `rule` is that of the learned weights; None if the weights are known. With `constant`,
    a last matrix of the design always has weight 1, beside a selection.
    """

    likelihood: Gaussian | Bernoulli
    priors: Mapping[str, Gamma]
    rule: DirichletWeights | Binary | None
    constant: bool = False


@dataclass(frozen=True)
class State:
    """All factors after an iteration, and the bound.

    `noise` is a `NoisePrecision`, or `Tangents` in classification. `made_of` holds the inputs of
    Q(alpha): noise, E[phi] and E[beta beta']. Moments of beta are those of the weights of all
    matrices of the design. `gain` is the part of the bound from the weights and their
    concentrations.
    """

    alpha: Regressors
    made_of: tuple[Any, Array, Array]
    phi: Gamma
    beta_mean: Array
    beta_second: Array
    varphi_mean: Array
    noise: Any
    objective: float
    gain: float = 0.0
    beta: SimplexFactor | BinaryFactor | None = None
    varphi: ConcentrationFactor | None = None


def start(data: Data, n_functions: int, weights: Array) -> State:
    """State before the first iteration: phi, gamma or xi 1, beta `weights`, varphi by its prior."""
    rule, varphi = data.rule, np.nan
    if isinstance(rule, Binary):
        weights = np.append(weights / weights.max(), np.ones(int(data.constant)))
    elif isinstance(rule, DirichletWeights):
        varphi = float(data.priors["varphi"].mean) if rule.varphi is None else rule.varphi
    noise, second = data.likelihood.start(), np.outer(weights, weights)
    none, one = np.zeros(n_functions), np.ones(n_functions)
    return State(
        alpha=Regressors(none[None], none[None], 0.0, np.zeros(len(weights)), second),
        made_of=(noise, one, second),
        phi=Gamma(1.0, one),
        beta_mean=weights,
        beta_second=second,
        varphi_mean=np.full(len(weights), varphi),
        noise=noise,
        objective=-np.inf,
    )


def update(data: Data, state: State) -> State:
    """One iteration: all factors of girolami2005, section 4.1, or 4.4, and the bound.

    The factors have the corrections of `vb`.
    """
    state = _update_regressors(data, state)
    state = _update_precisions(data, state)
    match data.rule:
        case DirichletWeights():
            state = _update_concentrations(data, _update_weights(data, state))
        case Binary():
            state = _update_selection(data, data.rule, state)
    noise = data.likelihood.noise(state.alpha, state.beta_mean, state.beta_second)
    state = replace(state, noise=noise)
    return replace(state, objective=_bound(data, state))


def _update_regressors(data: Data, state: State) -> State:
    """Q(alpha), section 4.1."""
    made_of = state.noise, state.phi.mean, state.beta_second
    noise, phi, second = made_of
    alpha = data.likelihood.regressors(noise, phi, state.beta_mean, second)
    return replace(state, alpha=alpha, made_of=made_of)


def _update_precisions(data: Data, state: State) -> State:
    """Q(phi), section 4.1."""
    prior, alpha = data.priors["phi"], state.alpha
    squares = (alpha.mean**2 + alpha.var).sum(axis=0)
    phi = Gamma(prior.shape + 0.5 * len(alpha.mean), prior.rate + 0.5 * squares)
    return replace(state, phi=phi)


def _update_weights(data: Data, state: State) -> State:
    """Q(beta) of weights on the simplex, section 4.1."""
    linear, quadratic = data.likelihood.weights_terms(state.alpha, state.noise)
    near = state.beta if isinstance(state.beta, SimplexFactor) else None
    beta = simplex_factor(state.varphi_mean, linear, quadratic, near)
    return replace(state, beta=beta, beta_mean=beta.mean, beta_second=beta.second_moment)


def _update_concentrations(data: Data, state: State) -> State:
    """Q(varphi), section 4.1, if the concentrations are learned."""
    beta, prior = state.beta, data.priors.get("varphi")
    assert isinstance(beta, SimplexFactor)
    if prior is None:
        known = state.varphi_mean
        log_prior = gammaln(known.sum()) - gammaln(known).sum() + known @ beta.mean_log
        return replace(state, gain=float(beta.entropy + log_prior))
    varphi = concentration_factor(prior.shape, float(prior.rate), beta.mean_log, state.varphi)
    gain = float(beta.entropy + varphi.log_normaliser)
    return replace(state, varphi=varphi, varphi_mean=varphi.mean, gain=gain)


def _update_selection(data: Data, rule: Binary, state: State) -> State:
    """Q(beta) of a selection of kernels."""
    linear, quadratic = data.likelihood.weights_terms(state.alpha, state.noise)
    n = len(linear) - data.constant
    # A matrix of weight 1 makes its products with the others linear in their weights.
    beta = binary_factor(
        rule.probabilities(n),
        linear[:n] - quadratic[:n, n:].sum(axis=1),
        quadratic[:n, :n],
        rule.empty,
    )
    mean = np.append(beta.mean, np.ones(int(data.constant)))
    second = np.outer(mean, mean)
    second[:n, :n] = beta.second_moment
    return replace(state, beta=beta, beta_mean=mean, beta_second=second, gain=beta.gain)


def _bound(data: Data, state: State) -> float:
    """Bound on the log evidence, right after all factors have been updated."""
    prior, alpha = data.priors["phi"], state.alpha
    rates = np.asarray(state.phi.rate)
    of_alpha = regressors_bound(
        prior.shape, float(prior.rate), alpha.log_det, rates, len(alpha.mean)
    )
    of_data = data.likelihood.bound(alpha, state.noise, state.beta_mean)
    return float(of_alpha + state.gain + of_data)


def _coordinates(state: State) -> Array:
    values = [state.noise.coordinates, np.log(state.phi.rate)]
    if isinstance(state.beta, SimplexFactor):
        values.append(np.log(np.maximum(state.beta_mean, TINY)))
    if state.varphi is not None:
        values.append(np.log(state.varphi_mean))
    return np.concatenate(values)


def _at_coordinates(state: State, values: Array) -> State:
    noise, phi, weights = np.split(
        values, np.cumsum([len(state.noise.coordinates), np.size(state.phi.rate)])
    )
    state = replace(state, noise=state.noise.at(noise), phi=replace(state.phi, rate=np.exp(phi)))
    if isinstance(state.beta, SimplexFactor):
        log_beta, weights = np.split(weights, [len(state.beta_mean)])
        mean, second = moments_around(log_beta, state.beta_mean, state.beta_second)
        state = replace(state, beta_mean=mean, beta_second=second)
    if state.varphi is not None:
        state = replace(state, varphi_mean=np.exp(weights))
    return state


# The noise, the rates of phi, and the means of weights and concentrations. The covariance of the
# weights, and selections, follow one iteration later.
COORDINATES = Coordinates(_coordinates, _at_coordinates)


type CompositeKernelModel = CompositeKernelRegression | CompositeKernelClassification
type Sample = Callable[[int, np.random.Generator], tuple[dict[str, Array], Array]]

# Rules of combination whose weights have a factor here.
RULES = FixedWeights, DirichletWeights, Binary


def unsupported(model: CompositeKernelRegression) -> str | None:
    if model.collapsed:
        return "it needs alpha in the declaration; declare it with collapsed=False"
    return other_weights(model)


def other_weights(model: CompositeKernelModel) -> str | None:
    if isinstance(model.varsigma, LearnedScale):
        return "it cannot learn varsigma; give a number, which kz.select can choose"
    return why_not(model, RULES)


def _inputs(model: CompositeKernelModel) -> list[Data]:
    """Collect the inputs of the updates for each independent part of a model."""
    rule: Any = None if isinstance(model.combination, FixedWeights) else model.combination
    assert not isinstance(model.varsigma, LearnedScale)
    priors = {"phi": Gamma(model.sigma, model.varsigma)}
    if isinstance(rule, DirichletWeights) and rule.varphi is None:
        check_prior(rule.tau, rule.nu, rule, ("tau", "nu"), f"VB on {type(model).__name__}")
        priors["varphi"] = Gamma(rule.tau, rule.nu)
    constant = isinstance(rule, Binary) and model.bias_apart
    return [Data(each, priors, rule, constant) for each in _likelihoods(model)]


def _likelihoods(model: CompositeKernelModel) -> Sequence[Gaussian | Bernoulli]:
    source = model.kernel_source
    if isinstance(model, CompositeKernelClassification):
        if isinstance(source, DaskStack):
            return [Bernoulli.of_dask(model, source)]
        return [Bernoulli.of(model.design, model.label_codes)]
    prior, targets = Gamma(model.rho, model.varrho), model.target_values
    shared_noise = model.shared != "weights" or not model.several
    if isinstance(source, DaskStack):
        return [Gaussian.of_dask(model, source, prior, shared_noise)]
    if not model.apart:
        return [Gaussian.of(model.design, targets, prior, shared_noise)]
    first = Gaussian.of(model.design, targets[:, 0], prior)
    return [first, *(first.with_targets(model.design, column) for column in targets.T[1:])]


def fit_composite_kernel(
    model: CompositeKernelModel,
    run: Run,
    *,
    max_iterations: Count = 5000,
    tolerance: Positive = 1e-6,
    remaining: PositiveOrInf = 0.01,
    starts: Count | None = None,
) -> VariationalOutput:
    """Fit Q by coordinate ascent from several starts; `VB` explains the settings.

    Parameters are those of the best start; ``beta_mean_of_start`` (start, kernel) holds the last
    weights of every start. Outputs that share nothing have a best start each, and the bound is the
    sum of theirs. When interrupted: the output so far, unconverged. Raises ValueError for priors
    DirichletWeights(tau, nu) beyond the integrals over the concentrations, FloatingPointError when
    no start has a finite bound, and LinAlgError when the kernels' scale makes a covariance
    numerically singular.
    """
    n_functions, n_kernels = len(model.coords["function"]), len(model.coords["kernel"])
    classes = isinstance(model, CompositeKernelClassification)

    def ascend(data: Data) -> _Ascended:
        result = multistart_ascent(
            [partial(start, data, n_functions)],
            partial(update, data),
            run,
            n_kernels,
            known=None if model.learned else np.ones(1),
            starts=starts,
            max_iterations=max_iterations,
            tolerance=tolerance,
            remaining=remaining,
            first_round=FIRST_ROUND["classification" if classes else "regression"],
            coordinates=COORDINATES,
        )
        if isinstance(result.state.beta, SimplexFactor):
            warn_of_imprecision(result.state.beta)
        approximation = Approximation(data, result.state, model.several and not model.apart)
        parameters = approximation.parameters(model)
        if model.learned:
            ends = np.array([state.beta_mean[:n_kernels] for state in result.states])
            parameters["beta_mean_of_start"] = (("start", "kernel"), ends)
        return _Ascended(result, parameters, approximation.sample)

    fits = [ascend(data) for data in _inputs(model)]
    if model.apart:
        return _joined(fits, model)
    (fit,) = fits
    return VariationalOutput(
        elbo=fit.result.histories,
        best=fit.result.best,
        converged=fit.result.converged,
        parameters=fit.parameters,
        sample=fit.sample,
    )


def path_of_scales(model: CompositeKernelModel, scales: Sequence[float]) -> Iterator[Sample]:
    """Fit Q for one varsigma after another, each from the last solution; yield its `sample`."""
    data, *_ = _inputs(model)
    n_kernels = len(model.coords["kernel"]) if model.learned else 1
    state = start(data, len(model.coords["function"]), np.full(n_kernels, 1 / n_kernels))
    before = None
    for scale in scales:
        data = replace(data, priors={**data.priors, "phi": Gamma(model.sigma, scale)})
        if before is not None:
            rate = np.asarray(state.phi.rate) + (scale - before)
            state = replace(state, phi=replace(state.phi, rate=rate), objective=-np.inf)
        state, before = ascended(state, partial(update, data), COORDINATES), scale
        yield Approximation(data, state, model.several).sample


class _Ascended(NamedTuple):
    """Result of one fit, the parameters of its Q, and draws from it."""

    result: MultistartResult[State]
    parameters: xr.Dataset
    sample: Sample


def _joined(fits: Sequence[_Ascended], model: pm.Model) -> VariationalOutput:
    """One output of independent fits, one per output of the regression."""
    best = [fit.result.histories[fit.result.best] for fit in fits]
    longest = max(map(len, best))
    bound = np.sum([np.pad(each, (0, longest - len(each)), mode="edge") for each in best], axis=0)
    outputs = pd.Index(list(model.coords["output"]), name="output")

    def sample(draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        samples, log_q = zip(*(fit.sample(draws, rng) for fit in fits), strict=True)
        stacked = {name: np.stack([each[name] for each in samples], axis=1) for name in samples[0]}
        return stacked, np.sum(log_q, axis=0)

    return VariationalOutput(
        elbo=[bound],
        best=0,
        converged=all(fit.result.converged for fit in fits),
        parameters=xr.concat([fit.parameters for fit in fits], outputs),
        sample=sample,
    )


@dataclass(frozen=True)
class Approximation:
    """The distribution Q of a state after at least one iteration.

    alpha has a first axis of outputs if there are `several`.
    """

    data: Data
    state: State
    several: bool

    def _by_output(self, values: Array) -> Array:
        """Values (output, ...), or those of the only output."""
        return values if self.several else values[0]

    def parameters(self, model: pm.Model) -> xr.Dataset:
        """Parameters of Q."""
        state = self.state
        function, kernel = ("function",), ("kernel",)
        of_alpha = ("output", "function") if self.several else function
        variables: dict[str, Any] = {
            "alpha_mean": (of_alpha, self._by_output(state.alpha.mean)),
            "alpha_sd": (of_alpha, self._by_output(np.sqrt(state.alpha.var))),
            "phi_shape": ((), state.phi.shape),
            "phi_rate": (function, np.asarray(state.phi.rate)),
            **state.noise.parameters,
        }
        if state.beta is not None:
            beta = state.beta
            variables |= {"beta_mean": (kernel, beta.mean), "beta_sd": (kernel, beta.sd)}
            if not isinstance(beta, BinaryFactor):
                variables |= {
                    "beta_mean_log": (kernel, beta.mean_log),
                    "beta_ess": ((), beta.ess),
                }
        if state.varphi is not None:
            varphi = state.varphi
            variables |= {"varphi_mean": (kernel, varphi.mean), "varphi_sd": (kernel, varphi.sd)}
        dims = {dim for variable in variables.values() for dim in variable[0]}
        coords = {dim: list(model.coords[dim]) for dim in sorted(dims)}
        return xr.Dataset(variables, coords=coords)

    def sample(self, draws: int, rng: np.random.Generator) -> tuple[dict[str, Array], Array]:
        """Independent draws of all variables, and log Q.

        O(G M^3 + P draws M^2) for P outputs with G noise precisions.
        """
        state = self.state
        out: dict[str, Array] = {}
        log_q = np.zeros(draws)
        for name, gamma in {**state.noise.factors, "phi": state.phi}.items():
            out[name], log_density = gamma.sample(draws, rng)
            log_q += log_density
        for name, weights in (("varphi", state.varphi), ("beta", state.beta)):
            if weights is not None:
                out[name] = weights.sample(draws, rng)
                log_q += weights.log_density(out[name])
        alpha: list[Array] = []
        for n_outputs, factor, pivots in self.data.likelihood.precisions(*state.made_of):
            for mean in state.alpha.mean[len(alpha) : len(alpha) + n_outputs]:
                noise = rng.normal(size=(len(mean), draws))
                spread = solve_triangular(factor, noise, lower=True, trans="T")
                alpha.append(mean + spread.T)
                log_q += np.log(pivots).sum() + norm.logpdf(noise).sum(axis=0)
        out["alpha"] = np.stack(alpha, axis=1) if self.several else alpha[0]
        return out, log_q
