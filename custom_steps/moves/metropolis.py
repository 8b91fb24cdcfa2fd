r"""Metropolis moves: a random walk in unbounded coordinates, and weights on the simplex.

The pair rho_s ~ Gamma(mu, rate lam), beta | rho ~ Dirichlet(rho) is part of all composite-kernel
models (damoulas2009, section 3.1 and appendix A; girolami2005, section 3). The functions take the
log-likelihood of beta as an argument, so that they serve all these models. An update returns the
position and its acceptance; `adapt_walk`, `adapt_weights` and `adapt_concentrations` replace the
tuning, while the chain tunes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from ...models.combinations.sums import LEAST_LOG_ARGUMENT

# Target acceptance probabilities for joint proposals of several coordinates, and for one
# coordinate.
TARGET_JOINT = 0.3
TARGET_SINGLE = 0.44
_DECAY = 0.6
_HEAD_START = 10


class WalkTuning(NamedTuple):
    """Proposal: a scaled normal with the chain's covariance; no mean before the first position."""

    updates: int
    log_scale: float
    mean: np.ndarray | None
    covariance: np.ndarray
    factor: np.ndarray


def initial_walk_tuning(covariance: np.ndarray, mean: np.ndarray | None = None) -> WalkTuning:
    """Proposal before the first move: steps of total size one half."""
    log_scale = float(np.log(0.5 / np.sqrt(len(covariance))))
    return WalkTuning(0, log_scale, mean, covariance, shape_factor(covariance))


def walk(
    x: np.ndarray,
    log_density: Callable[[np.ndarray], float],
    tuning: WalkTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, float]:
    """Make random-walk Metropolis moves of all coordinates at once; also give the mean acceptance.

    A log density of NaN counts as minus infinity. Cost: `moves` + 1 evaluations.
    """
    if not moves:
        return x, np.nan
    jumps = np.exp(tuning.log_scale) * rng.standard_normal((moves, len(x))) @ tuning.factor.T
    thresholds = -rng.standard_exponential(moves)
    current = log_density(x)
    acceptance = 0.0
    for jump, threshold in zip(jumps, thresholds, strict=True):
        proposal = x + jump
        proposed = log_density(proposal)
        log_ratio = proposed - current
        if np.isnan(log_ratio):
            continue
        acceptance += np.exp(min(log_ratio, 0.0))
        if threshold < log_ratio:
            x = proposal
            current = proposed
    return x, acceptance / moves


def adapt_walk(
    tuning: WalkTuning | None, x: np.ndarray, acceptance: float, target: float
) -> WalkTuning | None:
    """Update the proposal after moves that ended at x; None, or without moves, it stays as it is.

    Scale and shape follow Andrieu & Thoms (2008), A tutorial on adaptive MCMC, algorithm 4.
    """
    if tuning is None or np.isnan(acceptance):
        return tuning
    step = gain(tuning.updates)
    mean = x if tuning.mean is None else tuning.mean
    deviation = x - mean
    covariance = tuning.covariance + step * (np.outer(deviation, deviation) - tuning.covariance)
    return WalkTuning(
        updates=tuning.updates + 1,
        log_scale=tuning.log_scale + step * (acceptance - target),
        mean=mean + step * deviation,
        covariance=covariance,
        factor=shape_factor(covariance),
    )


def gain(updates: int) -> float:
    """Robbins-Monro step size, dampened at the start."""
    return (updates + _HEAD_START) ** -_DECAY


def shape_factor(covariance: np.ndarray) -> np.ndarray:
    """Cholesky factor of the covariance's shape, scaled to determinant one.

    Otherwise a chain that starts slowly would shrink its covariance and its proposals together.
    """
    d = len(covariance)
    factor = np.linalg.cholesky(covariance + 1e-6 * np.trace(covariance) / d * np.eye(d))
    return factor / np.exp(np.log(np.diag(factor)).mean())


class ConcentrationTuning(NamedTuple):
    """Proposal of the concentrations: a log standard deviation for each log rho_s."""

    updates: int
    log_steps: np.ndarray


def initial_weight_tuning(n_kernels: int) -> WalkTuning:
    """Proposal of log-ratios before the first move, symmetric in the `n_kernels` >= 2 weights.

    The covariance is that of log-ratios to the last weight for independent log weights.
    """
    d = n_kernels - 1
    return initial_walk_tuning(np.eye(d) + np.ones((d, d)), mean=np.zeros(d))


def initial_concentration_tuning(n_kernels: int) -> ConcentrationTuning:
    """Proposal before the first move: unit steps in log rho."""
    return ConcentrationTuning(updates=0, log_steps=np.zeros(n_kernels))


def log_weights_density(log_beta: np.ndarray, rho: np.ndarray) -> float:
    """Log density, up to a constant, of Dirichlet(rho) in log-ratio coordinates.

    The Jacobian prod_s beta_s raises the Dirichlet's exponents from rho - 1 to rho.
    """
    return float(rho @ log_beta)


def log_concentration_density(
    log_rho: np.ndarray, log_gamma: np.ndarray, mu: float, lam: float
) -> np.ndarray:
    """Log densities, up to constants, of log rho_s given g_s ~ Gamma(rho_s, 1), shape (S,).

    The Jacobian of rho_s in log rho_s raises the prior's exponent from mu - 1 to mu.
    """
    rho = np.exp(log_rho)
    return mu * log_rho - lam * rho + rho * log_gamma - gammaln(rho)


def weights_likelihood(
    partial: np.ndarray, linear: np.ndarray, w: np.ndarray | float = 1.0
) -> Callable[[np.ndarray], float]:
    """Log likelihood of weights given the regressors, up to a constant: a quadratic form.

    `partial` (S, n) are the functions f_s of each kernel, and `linear` (n,) responses times their
    precisions w. O(S^2 n), and O(S^2) per call of the result.
    """
    quadratic = (w * partial) @ partial.T
    slope = partial @ linear
    return lambda beta: float(beta @ slope - 0.5 * (beta @ quadratic @ beta))


def update_weights(
    beta: np.ndarray,
    rho: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    tuning: WalkTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, float]:
    """Move beta (S,) given rho by Metropolis in log-ratio coordinates; return the acceptance, too.

    Source: damoulas2009, appendix A, ratio A(beta, beta*), with the Jacobian of the log-ratios.
    Weights below 1e-300 are outside the support.
    """

    def log_density(ratios: np.ndarray) -> float:
        log_beta = _log_weights(ratios)
        if log_beta.min() < np.log(LEAST_LOG_ARGUMENT):
            return -np.inf
        return log_likelihood(np.exp(log_beta)) + log_weights_density(log_beta, rho)

    ratios, acceptance = walk(_log_ratios(beta), log_density, tuning, rng, moves)
    return np.exp(_log_weights(ratios)), acceptance


def _log_ratios(beta: np.ndarray) -> np.ndarray:
    """Logarithms (S - 1,) of the ratios of weights to the last one."""
    log_beta = np.log(np.maximum(beta, LEAST_LOG_ARGUMENT))
    return log_beta[:-1] - log_beta[-1]


def _log_weights(ratios: np.ndarray) -> np.ndarray:
    """Logarithms (S,) of the weights with these log-ratios."""
    ratios = np.append(ratios, 0.0)
    return ratios - np.logaddexp.reduce(ratios)


def update_concentrations(
    rho: np.ndarray,
    beta: np.ndarray,
    mu: float,
    lam: float,
    tuning: ConcentrationTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Move log rho (S,) given beta by Metropolis; return the acceptances, too. O(S) per move.

    The prior is Gamma(mu, rate lam). Given the sum of g, redrawn from Gamma(sum rho, 1), the rho_s
    are independent: each has its own proposal and acceptance. Target: damoulas2009, appendix A,
    ratio A(rho, rho*).
    """
    log_rho = np.log(rho)
    log_beta = np.log(np.maximum(beta, LEAST_LOG_ARGUMENT))
    log_gamma = log_beta + log_gamma_draw(rho.sum(), rng)
    current = log_concentration_density(log_rho, log_gamma, mu, lam)
    jumps = np.exp(tuning.log_steps) * rng.standard_normal((moves, len(rho)))
    thresholds = -rng.standard_exponential((moves, len(rho)))
    acceptance = np.zeros_like(rho)
    for jump, threshold in zip(jumps, thresholds, strict=True):
        proposal = log_rho + jump
        proposed = log_concentration_density(proposal, log_gamma, mu, lam)
        log_ratio = proposed - current
        accepted = threshold < log_ratio
        log_rho = np.where(accepted, proposal, log_rho)
        current = np.where(accepted, proposed, current)
        acceptance += np.exp(np.minimum(log_ratio, 0.0))
    return np.exp(log_rho), acceptance / moves


def adapt_weights(
    tuning: WalkTuning | None, beta: np.ndarray, acceptance: float
) -> WalkTuning | None:
    """Update the proposal, if there is one, after a sweep that ended at beta."""
    return adapt_walk(tuning, _log_ratios(beta), acceptance, TARGET_JOINT)


def adapt_concentrations(
    tuning: ConcentrationTuning | None, acceptance: np.ndarray
) -> ConcentrationTuning | None:
    """Update the proposal, if there is one, after a sweep with these acceptances."""
    if tuning is None:
        return None
    excess = acceptance - TARGET_SINGLE
    return ConcentrationTuning(
        updates=tuning.updates + 1, log_steps=tuning.log_steps + gain(tuning.updates) * excess
    )


def log_gamma_draw(shape: float, rng: np.random.Generator) -> float:
    """Logarithm of a Gamma(shape, 1) draw, also for small shapes, whose draws underflow."""
    return float(np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape)
