"""The factors of the composite-kernel models' mean field: their state and updates.

Equations and notation as in `vb`, which runs these updates to convergence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...models.combinations.sums import Binary, DirichletWeights
from ..variational.ascent import Coordinates
from ..variational.concentration import ConcentrationFactor, concentration_factor
from ..variational.factors import BinaryFactor, Gamma, binary_factor, regressors_bound
from ..variational.simplex import TINY, SimplexFactor, moments_around, simplex_factor
from .vb_likelihoods import Bernoulli, Gaussian, Regressors

__all__ = ["COORDINATES", "Data", "State", "start", "update"]

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
