"""Variational Bayes with type-II maximum likelihood (Girolami and Rogers 2005, section 4.2).

From some iteration on, each one first makes the priors of precisions and concentrations those of
highest expected log density under their factors. Their shapes have no maximum: they grow without
bound, so the number of iterations is part of the recipe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, zeta

from kernelzoo.inference import Run
from kernelzoo.inference.composite_kernel.vb import Approximation
from kernelzoo.inference.composite_kernel.vb_likelihoods import Bernoulli
from kernelzoo.inference.composite_kernel.vb_updates import Data, State, start, update
from kernelzoo.inference.engine import lean_tree
from kernelzoo.inference.variational import Gamma
from kernelzoo.models import CompositeKernelClassification
from kernelzoo.models.combinations import DirichletWeights

# Largest shape: beyond, log a - digamma(a) has lost its digits.
LARGEST_SHAPE = 1e8
NEWTON_STEPS = 100


@dataclass(frozen=True)
class TypeTwo:
    """Draws of the highest bound; by start, the bound with the fitted priors, and mean weights."""

    result: Any
    bounds: NDArray
    weights: NDArray


def fit_type_two(
    model: CompositeKernelClassification,
    beginnings: Sequence[NDArray],
    *,
    type_two_from: int,
    max_iterations: int,
    draws: int,
    seed: int,
) -> TypeTwo:
    """Iterate the factors of section 4.1 from each start, and from `type_two_from` on the priors.

    `beginnings` are the weights at each start; `draws` are those from the best approximation.
    """
    rule = model.combination
    assert isinstance(model.varsigma, float)
    priors = {"phi": Gamma(model.sigma, model.varsigma)}
    if isinstance(rule, DirichletWeights):
        priors["varphi"] = Gamma(rule.tau, rule.nu)
    likelihood = Bernoulli.of(model.design, model.label_codes)
    declared = Data(likelihood, priors, rule if isinstance(rule, DirichletWeights) else None)
    ends = []
    for weights in beginnings:
        data, state = declared, start(declared, len(model.coords["function"]), weights)
        for iteration in range(max_iterations):
            if iteration >= type_two_from:
                data = replace(data, priors=_fitted(state, priors))
            state = update(data, state)
        ends.append((data, state))
    bounds = np.array([state.objective for _, state in ends])
    run = Run(random_seed=seed, progressbar=False, draws=draws)
    best = Approximation(*ends[int(bounds.argmax())], several=False)
    sample, _ = best.sample(run.draws, run.rng(1))
    weights = np.array([state.beta_mean for _, state in ends])
    return TypeTwo(lean_tree(model, run, sample, {}), bounds, weights)


def _fitted(state: State, priors: Mapping[str, Gamma]) -> dict[str, Gamma]:
    """Priors with the highest expected log density (section 4.2)."""
    return {name: most_likely(factor) for name in priors if (factor := getattr(state, name))}


def most_likely(factor: Any) -> Gamma:
    """Maximise sum_m E[log Gamma(x_m | shape, rate)] (section 4.2) for a factor of the x_m."""
    average = float(np.mean(factor.mean))
    gap = float(np.log(average) - np.mean(factor.mean_log))
    if gap <= 0.5 / LARGEST_SHAPE:
        return Gamma(LARGEST_SHAPE, LARGEST_SHAPE / average)
    # Minka's approximation, between 1 / (2 gap) and 1 / gap.
    shape = (3 - gap + np.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(NEWTON_STEPS):
        misfit = np.log(shape) - digamma(shape) - gap
        slope = shape**2 * (1 / shape - zeta(2, shape))
        new = 1 / (1 / shape + misfit / slope)
        if abs(new - shape) <= 1e-12 * shape:
            break
        shape = new
    return Gamma(float(shape), float(shape / average))
