"""Combination rules added from outside the package."""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from kernelzoo.custom_steps.multinomial_probit.sweep import (
    Info,
    redraw_collapsed,
    redraw_given_regressors,
    redraw_hyperparameters,
)
from kernelzoo.models.combinations import Combination, WeightedSum


@dataclass(frozen=True)
class RootOfSquares(Combination):
    """K = sqrt(sum_s beta_s K_s^2), entry by entry, with beta_s ~ Exponential(rate)."""

    rate: float = 1.0

    def declare(self):
        return pm.Exponential("beta", self.rate, dims="kernel")

    def combine(self, stack, weights):
        return pt.sqrt(pt.tensordot(weights, stack**2, axes=1))

    def terms(self, stack):
        return stack**2

    def from_terms(self, total):
        return np.sqrt(total, out=total)


@redraw_given_regressors.register
def _(rule: RootOfSquares, task):
    """Propose weights on the log scale, all at once."""
    new, rng = task.new, task.rng

    def log_density(beta):
        f = task.composition.composite(new | {"beta": beta}) @ new["W"].T
        return -0.5 * np.sum((task.y - f) ** 2) + np.sum(np.log(beta) - rule.rate * beta)

    accepted = []
    for _ in range(task.moves.given_regressors):
        beta = new["beta"] * np.exp(0.7 * rng.normal(size=len(new["beta"])))
        accepted.append(-rng.exponential() < log_density(beta) - log_density(new["beta"]))
        new["beta"] = beta if accepted[-1] else new["beta"]
    return Info(weights=float(np.mean(accepted)))


redraw_collapsed.register(RootOfSquares, lambda rule, task: None)
redraw_hyperparameters.register(RootOfSquares, lambda rule, task: None)


@dataclass(frozen=True)
class SquaredWeights(WeightedSum):
    """K = sum_s v_s^2 K_s / sum_s v_s^2 with v_s ~ HalfNormal(1): no weight is a variable."""

    def declare(self):
        squares = pm.HalfNormal("v", dims="kernel") ** 2
        return pm.Deterministic("beta", squares / squares.sum(), dims="kernel")
