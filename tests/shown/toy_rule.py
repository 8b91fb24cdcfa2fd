"""Combination rules added from outside the package."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

from kernelzoo.custom_steps.multinomial_probit.albert_chib import (
    MOVES,
    Info,
    RuleMoves,
)
from kernelzoo.models.combinations import Combination, WeightedSum


@dataclass(frozen=True)
class RootOfSquares(Combination):
    """K = sqrt(sum_s beta_s K_s^2), entry by entry.

    The prior is beta_s ~ Exponential(rate).
    """

    rate: float = 1.0

    def declare(self):
        return pm.Exponential("beta", self.rate, dims="kernel")

    def combine(self, stack, weights):
        return pt.sqrt(pt.tensordot(weights, stack**2, axes=1))

    def terms(self, stack):
        return stack**2

    def from_terms(self, total):
        return np.sqrt(total, out=total)


class RootMoves(RuleMoves):
    """Metropolis moves of all weights at once, on the log scale."""

    def given_regressors(self, task):
        new, rng = task.new, task.rng

        def log_density(beta):
            K = task.composition.composite(new | {"beta": beta})
            log_likelihood = -0.5 * np.sum(
                (task.y - K @ new["W"].T) ** 2
            )
            log_prior = np.sum(np.log(beta) - self.rule.rate * beta)
            return log_likelihood + log_prior

        accepted = []
        for _ in range(task.moves.given_regressors):
            old = new["beta"]
            beta = old * np.exp(0.7 * rng.normal(size=len(old)))
            log_ratio = log_density(beta) - log_density(old)
            accepted.append(-rng.exponential() < log_ratio)
            new["beta"] = beta if accepted[-1] else old
        return Info(weights=float(np.mean(accepted)))


MOVES[RootOfSquares] = RootMoves


@dataclass(frozen=True)
class NormalWeights(WeightedSum):
    """K = sum_s beta_s K_s with beta_s ~ N(1, sd^2).

    The prior is conjugate given the utilities and W.
    """

    sd: float = 0.5

    def declare(self):
        return pm.Normal("beta", 1.0, self.sd, dims="kernel")

    def posterior(self, linear, curvature):
        """Distribution of beta for a quadratic log likelihood.

        It is linear'beta - beta'curvature beta / 2.
        """
        precision = curvature + np.eye(len(linear)) / self.sd**2
        covariance = np.linalg.inv(precision)
        mean = covariance @ (linear + 1 / self.sd**2)
        return Normal(mean, covariance, self.sd)

    def variational_factor(self, linear, curvature):
        """What `VB` asks of a rule."""
        return self.posterior(linear, curvature)


@dataclass(frozen=True)
class Normal:
    """A normal distribution of the weights, as VB needs it."""

    mean: np.ndarray
    covariance: np.ndarray
    prior_sd: float

    @property
    def law(self):
        return stats.multivariate_normal(self.mean, self.covariance)

    @property
    def sd(self):
        return np.sqrt(np.diagonal(self.covariance))

    @property
    def second_moment(self):
        return self.covariance + np.outer(self.mean, self.mean)

    @property
    def gain(self):
        """E[log prior of beta] plus the entropy."""
        log_prior = stats.norm.logpdf(self.mean, 1.0, self.prior_sd)
        log_prior -= 0.5 * (self.sd / self.prior_sd) ** 2
        return log_prior.sum() + self.law.entropy()

    def sample(self, draws, rng):
        return rng.multivariate_normal(
            self.mean, self.covariance, size=draws
        )

    def log_density(self, beta):
        return self.law.logpdf(beta)


class NormalMoves(RuleMoves):
    """Exact draws of the weights given the utilities and W."""

    def given_regressors(self, task):
        functions = task.composition.kernels(task.new) @ task.new["W"].T
        functions = functions.reshape(len(functions), -1)
        posterior = self.rule.posterior(
            functions @ task.y.ravel(), functions @ functions.T
        )
        task.new["beta"] = posterior.sample(None, task.rng)
        return Info()


MOVES[NormalWeights] = NormalMoves
