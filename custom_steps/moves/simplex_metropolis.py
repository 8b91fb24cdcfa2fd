r"""Metropolis moves for weights on the simplex and their concentrations.

The pair rho_s ~ Gamma(mu, rate lam), beta | rho ~ Dirichlet(rho) is part of all composite-kernel
models (damoulas2009, section 3.1 and appendix A; girolami2005, section 3). The functions take the
log-likelihood of beta as an argument, so that they serve all these models.

Position, statistics of a move, and tuning are separate objects: beta and rho are the position, an
update returns the position and its acceptance, and `adapt_weights` and `adapt_concentrations`
replace the tuning, only while the chain tunes.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from ...models.combinations.sums import SMALLEST
from .random_walk import TARGET_JOINT, TARGET_SINGLE, gain, shape_factor


class WeightTuning(NamedTuple):
    """Proposal of the weights: a scaled normal in log-ratio coordinates, S - 1 of them."""

    updates: int
    log_scale: float
    mean: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray


class ConcentrationTuning(NamedTuple):
    """Proposal of the concentrations: a log standard deviation for each log rho_s."""

    updates: int
    log_steps: np.ndarray


def initial_weight_tuning(n_kernels: int) -> WeightTuning:
    """Proposal before the first move, for `n_kernels` >= 2 weights.

    The covariance is symmetric in the weights: that of log-ratios to the last weight for
    independent log weights.
    """
    d = n_kernels - 1
    covariance = np.eye(d) + np.ones((d, d))
    return WeightTuning(
        updates=0,
        log_scale=float(np.log(0.5 / np.sqrt(d))),
        mean=np.zeros(d),
        covariance=covariance,
        factor=shape_factor(covariance),
    )


def initial_concentration_tuning(n_kernels: int) -> ConcentrationTuning:
    """Proposal before the first move: unit steps in log rho."""
    return ConcentrationTuning(updates=0, log_steps=np.zeros(n_kernels))


def log_weights_density(log_beta: np.ndarray, rho: np.ndarray) -> float:
    """Log density, up to a constant, of Dirichlet(rho) in log-ratio coordinates.

    The Jacobian of beta in log(beta_s / beta_S) is prod_s beta_s, which raises the Dirichlet's
    exponents from rho - 1 to rho.
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

    Parameters
    ----------
    partial : ndarray of shape (S, n)
        Functions f_s of each kernel; the model's is sum_s beta_s f_s.
    linear : ndarray of shape (n,)
        Linear terms: responses times their precisions.
    w : ndarray of shape (n,) or float, default=1
        Precisions of the responses.

    Returns
    -------
    callable (beta) -> float
        A function that costs O(S^2) a call; making it costs O(S^2 n).
    """
    quadratic, slope = (w * partial) @ partial.T, partial @ linear
    return lambda beta: float(beta @ slope - 0.5 * (beta @ quadratic @ beta))


def update_weights(
    beta: np.ndarray,
    rho: np.ndarray,
    log_likelihood: Callable[[np.ndarray], float],
    tuning: WeightTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, float]:
    """Move beta given rho by random-walk Metropolis in log-ratio coordinates.

    Parameters
    ----------
    beta, rho : ndarray of shape (S,)
        Current weights and concentrations.
    log_likelihood : callable
        Log-likelihood of the weights, up to a constant.
    tuning : WeightTuning
        Proposal.
    rng : numpy.random.Generator
        Source of randomness.
    moves : int
        Number of Metropolis moves.

    Returns
    -------
    beta : ndarray of shape (S,)
        New weights, a new array.
    acceptance : float
        Mean acceptance probability of the moves.

    Notes
    -----
    Source: damoulas2009, appendix A, ratio A(beta, beta*), with the Jacobian of the log-ratios.
    Weights below 1e-300 are outside the support. Cost: `moves` + 1 evaluations of the likelihood.
    """
    log_beta = np.log(np.maximum(beta, SMALLEST))
    beta = np.exp(log_beta)
    current = log_likelihood(beta) + log_weights_density(log_beta, rho)
    jumps = np.exp(tuning.log_scale) * rng.standard_normal((moves, len(rho) - 1)) @ tuning.factor.T
    thresholds = -rng.standard_exponential(moves)
    acceptance = 0.0
    for jump, threshold in zip(jumps, thresholds, strict=True):
        proposed_log = log_beta.copy()
        proposed_log[:-1] += jump
        proposed_log -= np.logaddexp.reduce(proposed_log)
        if proposed_log.min() < np.log(SMALLEST):
            continue
        proposed_beta = np.exp(proposed_log)
        proposed = log_likelihood(proposed_beta) + log_weights_density(proposed_log, rho)
        log_ratio = proposed - current
        acceptance += np.exp(min(log_ratio, 0.0))
        if threshold < log_ratio:
            beta, log_beta, current = proposed_beta, proposed_log, proposed
    return beta, float(acceptance / moves)


def update_concentrations(
    rho: np.ndarray,
    beta: np.ndarray,
    mu: float,
    lam: float,
    tuning: ConcentrationTuning,
    rng: np.random.Generator,
    moves: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Move log rho given beta by Metropolis, all coordinates at once.

    A Dirichlet vector is g / sum g with independent g_s ~ Gamma(rho_s, 1), and the sum is
    independent of beta. Given a redrawn sum, Gamma(sum rho, 1), the rho_s are independent, so that
    each has its own proposal and acceptance.

    Parameters
    ----------
    rho, beta : ndarray of shape (S,)
        Current concentrations and weights.
    mu, lam : float
        Shape and rate of the concentrations' Gamma prior.
    tuning : ConcentrationTuning
        Proposal.
    rng : numpy.random.Generator
        Source of randomness.
    moves : int
        Number of moves, all with the same redrawn sum.

    Returns
    -------
    rho : ndarray of shape (S,)
        New concentrations, a new array.
    acceptance : ndarray of shape (S,)
        Mean acceptance probabilities.

    Notes
    -----
    Target: damoulas2009, appendix A, ratio A(rho, rho*).  Cost O(S) a move.
    """
    log_rho = np.log(rho)
    log_beta = np.log(np.maximum(beta, SMALLEST))
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


def adapt_weights(tuning: WeightTuning, beta: np.ndarray, acceptance: float) -> WeightTuning:
    """Update the proposal after a sweep that ended at beta; only while the chain tunes.

    The scale moves towards its acceptance target, and the shape follows the chain's covariance in
    log-ratio coordinates (Andrieu & Thoms 2008, A tutorial on adaptive MCMC, algorithm 4).
    """
    step = gain(tuning.updates)
    log_beta = np.log(np.maximum(beta, SMALLEST))
    deviation = log_beta[:-1] - log_beta[-1] - tuning.mean
    covariance = tuning.covariance + step * (np.outer(deviation, deviation) - tuning.covariance)
    return WeightTuning(
        updates=tuning.updates + 1,
        log_scale=tuning.log_scale + step * (acceptance - TARGET_JOINT),
        mean=tuning.mean + step * deviation,
        covariance=covariance,
        factor=shape_factor(covariance),
    )


def adapt_concentrations(
    tuning: ConcentrationTuning, acceptance: np.ndarray
) -> ConcentrationTuning:
    """Update the proposal after a sweep with these acceptances; only while the chain tunes."""
    excess = acceptance - TARGET_SINGLE
    return ConcentrationTuning(
        updates=tuning.updates + 1, log_steps=tuning.log_steps + gain(tuning.updates) * excess
    )


def log_gamma_draw(shape: float, rng: np.random.Generator) -> float:
    """Logarithm of a Gamma(shape, 1) draw, also for small shapes, whose draws underflow."""
    return float(np.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape)
