"""The factors of the composite-kernel models' mean field: their state and updates.

Equations and notation as in `vb`, which runs these updates to convergence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from ...models.combinations.sums import Binary
from ..variational.anderson import Coordinates
from ..variational.binary import BinaryFactor, binary_factor
from ..variational.gamma import Gamma, most_likely
from ..variational.kernel_weights import Concentrations, Integration, Weights
from ..variational.regressors import regressors_bound
from ..variational.simplex import TINY, SimplexFactor, moments_around
from .vb_likelihoods import Likelihood, Noise, Regressors

__all__ = ["COORDINATES", "Data", "Selections", "State", "start", "update", "update_in_turns"]

type Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Selections:
    """Computes the factor of a 0/1 selection of the kernels by enumeration.

    Attributes
    ----------
    rule : Binary
    constant : bool
        Whether a last matrix of the design always has weight 1.
    """

    rule: Binary
    constant: bool


@dataclass(frozen=True)
class Data[N: Noise]:
    """Inputs and settings of the updates.

    Attributes
    ----------
    likelihood : Likelihood
    priors : mapping of str to Gamma
        Priors of the precisions "phi", of the concentrations "varphi" if they are learned, and of
        the noise precision "gamma" in regression.
    concentration : float or None
        The concentration if it is known.
    integration : Integration, Selections or None
        Computes the factors of the weights; None if the weights are known.
    type_two_from : float
        Number of iterations after which the priors are fitted; infinite for never.
    """

    likelihood: Likelihood[N]
    priors: Mapping[str, Gamma]
    concentration: float | None
    integration: Integration[Any, Any] | Selections | None
    type_two_from: float


@dataclass(frozen=True)
class State[N: Noise]:
    """All factors after an iteration, and the bound.

    `made_of` holds the inputs of Q(alpha): noise, E[phi] and E[beta beta']. Moments of beta are
    those of the weights of all matrices of the design.
    """

    iterations: int
    priors: Mapping[str, Gamma]
    alpha: Regressors
    made_of: tuple[N, Array, Array]
    phi: Gamma
    beta_mean: Array
    beta_second: Array
    beta: Weights | BinaryFactor | None
    varphi_mean: Array
    varphi: Concentrations | None
    noise: N
    objective: float


def start[N: Noise](data: Data[N], n_functions: int, weights: Array) -> State[N]:
    """State before the first iteration: phi, gamma or xi 1, beta `weights`, varphi by its prior."""
    weights = _first_weights(data.integration, weights)
    noise, second = data.likelihood.start(), np.outer(weights, weights)
    none, one = np.zeros(n_functions), np.ones(n_functions)
    prior = data.priors.get("varphi")
    return State(
        iterations=0,
        priors=data.priors,
        alpha=Regressors(none[None], none[None], 0.0, np.zeros(len(weights)), second),
        made_of=(noise, one, second),
        phi=Gamma(1.0, one),
        beta_mean=weights,
        beta_second=second,
        beta=None,
        varphi_mean=np.full(len(weights), data.concentration if prior is None else prior.mean),
        varphi=None,
        noise=noise,
        objective=-np.inf,
    )


@singledispatch
def _first_weights(integration: Any, weights: Array) -> Array:
    """Weights of the design's matrices at the start, for weights of the kernels that sum to 1."""
    return weights


@_first_weights.register
def _(integration: Selections, weights: Array) -> Array:
    return np.append(weights / weights.max(), np.ones(int(integration.constant)))


def update[N: Noise](data: Data[N], state: State[N]) -> State[N]:
    """One iteration: hyperparameters if fitted, all factors, and the bound.

    The factors are those of girolami2005, section 4.1, with the corrections of `vb`.
    """
    priors = state.priors if state.iterations < data.type_two_from else _fitted(state)
    noise, phi_mean, second = made_of = state.noise, state.phi.mean, state.beta_second
    alpha = data.likelihood.regressors(noise, phi_mean, state.beta_mean, second)
    prior, n_outputs = priors["phi"], len(alpha.mean)
    squares = (alpha.mean**2 + alpha.var).sum(axis=0)
    phi = Gamma(prior.shape + 0.5 * n_outputs, prior.rate + 0.5 * squares)
    state = replace(
        state,
        iterations=state.iterations + 1,
        priors=priors,
        alpha=alpha,
        made_of=made_of,
        phi=phi,
    )
    bound = regressors_bound(
        prior.shape, float(prior.rate), alpha.log_det, np.asarray(phi.rate), n_outputs
    )
    if data.integration is not None:
        terms = data.likelihood.weights_terms(alpha, noise)
        state, gain = _update_weights(data.integration, state, *terms)
        bound += gain
    noise = data.likelihood.noise(noise, alpha, state.beta_mean, state.beta_second, priors)
    bound += data.likelihood.bound(alpha, noise, state.beta_mean, priors)
    return replace(state, noise=noise, objective=float(bound))


def update_in_turns[N: Noise](n_turns: int, data: Data[N], state: State[N]) -> State[N]:
    """One iteration in which as many batches of objects take turns."""
    done = state.iterations
    for _ in range(n_turns):
        state = replace(update(data, state), iterations=done)
    return replace(state, iterations=done + 1)


def _fitted(state: State[Any]) -> dict[str, Gamma]:
    """Priors with the highest expected log density (girolami2005, section 4.2)."""
    factors = {"phi": state.phi, "varphi": state.varphi, **state.noise.factors}
    return {name: most_likely(factors[name].mean, factors[name].mean_log) for name in state.priors}


@singledispatch
def _update_weights(
    integration: Any, state: State[Any], linear: Array, quadratic: Array
) -> tuple[State[Any], float]:
    """Update Q(beta), then Q(varphi), and return their part of the bound."""
    beta = integration.weights(state.varphi_mean, linear, quadratic, state.beta)
    state = replace(state, beta=beta, beta_mean=beta.mean, beta_second=beta.second_moment)
    prior = state.priors.get("varphi")
    if prior is None:
        known = state.varphi_mean
        log_prior = gammaln(known.sum()) - gammaln(known).sum() + known @ beta.mean_log
        return state, float(beta.entropy + log_prior)
    varphi = integration.concentrations(prior, beta.mean_log, state.varphi)
    state = replace(state, varphi=varphi, varphi_mean=varphi.mean)
    return state, float(beta.entropy + varphi.log_normaliser)


@_update_weights.register
def _(
    integration: Selections, state: State[Any], linear: Array, quadratic: Array
) -> tuple[State[Any], float]:
    n = len(linear) - integration.constant
    rule = integration.rule
    # A matrix of weight 1 makes its products with the others linear in their weights.
    beta = binary_factor(
        rule.probabilities(n),
        linear[:n] - quadratic[:n, n:].sum(axis=1),
        quadratic[:n, :n],
        rule.empty,
    )
    mean = np.append(beta.mean, np.ones(int(integration.constant)))
    second = np.outer(mean, mean)
    second[:n, :n] = beta.second_moment
    return replace(state, beta=beta, beta_mean=mean, beta_second=second), beta.gain


def _coordinates(state: State[Any]) -> Array:
    values = [state.noise.coordinates, np.log(state.phi.rate)]
    if isinstance(state.beta, SimplexFactor):
        values.append(np.log(np.maximum(state.beta_mean, TINY)))
    if state.varphi is not None:
        values.append(np.log(state.varphi_mean))
    return np.concatenate(values)


def _at_coordinates(state: State[Any], values: Array) -> State[Any]:
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
COORDINATES: Coordinates[Any] = Coordinates(_coordinates, _at_coordinates)
