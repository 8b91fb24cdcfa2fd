"""The updates of the composite-kernel mean field, without a declaration."""

import tracemalloc
from functools import partial

import numpy as np
import pytest

from kernelzoo.inference.composite_kernel.vb import Data, start, update
from kernelzoo.inference.composite_kernel.vb_likelihoods import (
    Bernoulli,
    Gaussian,
    jaakkola_precision,
    products_with_targets,
)
from kernelzoo.inference.variational.ascent import Ascent, beginnings
from kernelzoo.inference.variational.factors import Gamma
from kernelzoo.models.combinations.sums import DirichletWeights
from kernelzoo.numerics import threads
from kernelzoo.numerics.kernel_products import KernelProducts


def regression_of(design, targets, prior):
    columns = products_with_targets(design, targets[None])
    return Gaussian.of(KernelProducts.of(design), columns, targets, prior)


def random_problem(seed, regression):
    """Data and the number of kernels: Gram matrices or basis functions, priors of any strength."""
    rng = np.random.default_rng(seed)
    n_kernels = (1, 2, 3, 5)[seed % 4]
    n_obs, n_functions = rng.integers(8, 30, 2)
    x = rng.normal(size=(n_obs, 2))
    if seed % 8 < 4:
        distances = ((x[:, None] - x[None]) ** 2).sum(-1)
        design = np.stack([np.exp(-distances / 4.0**k) for k in range(n_kernels)])
    else:
        design = np.tanh(x @ rng.normal(size=(n_kernels, 2, n_functions)))
    ones = np.ones((n_kernels, n_obs, 1))
    design = np.concatenate([ones, design], axis=2)
    response = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=n_obs)
    sigma, varsigma, tau, nu, rho, varrho = np.exp(rng.uniform(np.log(0.1), np.log(5), 6))
    priors = {"phi": Gamma(sigma, varsigma)}
    if n_kernels > 1 and seed % 3:
        priors["varphi"] = Gamma(tau, nu)
    if regression:
        likelihood = regression_of(design, response, Gamma(rho, varrho))
    else:
        likelihood = Bernoulli.of(design, (response > 0).astype(int))
    rule = DirichletWeights(tau, nu, None if "varphi" in priors else 0.8)
    return Data(likelihood, priors, rule if n_kernels > 1 else None), design.shape


@pytest.mark.parametrize("regression", [True, False])
@pytest.mark.parametrize(
    "seed", [*range(7), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(7, 20))]
)
def test_bound_never_falls(seed, regression):
    """Beyond three weights: but for the quadrature's error where its points are placed anew."""
    data, (n_kernels, _, n_functions) = random_problem(seed, regression)
    begin, advance = partial(start, data, n_functions), partial(update, data)
    for ascent in beginnings(
        lambda weights: Ascent(begin(weights), advance),
        np.full(n_kernels, 1 / n_kernels),
        2,
        1e-6,
        np.random.default_rng(seed),
        lambda: None,
    ):
        state = ascent.state
        for _ in range(150):
            before, state = state.objective, advance(state)
            allowed = 1e-8 * max(abs(state.objective), 1)
            if n_kernels > 3 and state.weights.beta._origin is None:
                allowed += 6e-3
            assert state.objective >= before - allowed


def test_both_likelihoods_do_the_same_normal_regression():
    """With equal precisions of all objects Q(alpha) and its moments are those of regression."""
    rng = np.random.default_rng(0)
    design, labels = rng.normal(size=(3, 9, 6)), np.arange(9) % 2
    xi = np.full(9, 1.7)
    weight = np.tanh(xi[0] / 2) / (2 * xi[0])
    classifier = Bernoulli.of(design, labels)
    regression = regression_of(design, (labels - 0.5) / weight, Gamma(1.0, 1.0))
    draws = rng.dirichlet(np.ones(3), 5)
    moments = rng.gamma(2.0, size=6), draws.mean(axis=0), draws.T @ draws / 5
    noise = regression.start() / weight
    one, other = (
        classifier.regressors(xi, *moments),
        regression.regressors(noise, *moments),
    )
    np.testing.assert_allclose(one.mean, other.mean)
    np.testing.assert_allclose(one.var, other.var)
    np.testing.assert_allclose(one.log_det, other.log_det)
    for term, same in zip(
        classifier.weights_terms(one, xi),
        regression.weights_terms(other, noise),
        strict=True,
    ):
        np.testing.assert_allclose(term, same)


@pytest.mark.parametrize("block", [1, 4, 9, 100])
@pytest.mark.parametrize("processors", [1, 3])
def test_blocks_and_threads_do_not_matter(block, processors, monkeypatch):
    rng = np.random.default_rng(1)
    design, labels = rng.normal(size=(3, 9, 6)), np.arange(9) % 2
    kept = design.copy()
    noise = rng.gamma(2.0, size=9)
    draws = rng.dirichlet(np.ones(3), 5)
    moments = rng.gamma(2.0, size=6), draws.mean(axis=0), draws.T @ draws / 5
    whole = Bernoulli.of(design, labels).regressors(noise, *moments)
    monkeypatch.setattr(threads, "BLOCK_OBJECTS", block)
    monkeypatch.setattr(threads, "_processors", lambda: processors)
    in_parts = Bernoulli.of(design, labels).regressors(noise, *moments)
    for one, other in zip(whole, in_parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    np.testing.assert_array_equal(design, kept)


def test_many_objects_are_not_copied(monkeypatch):
    monkeypatch.setattr(threads, "_processors", lambda: 2)
    rng = np.random.default_rng(1)
    design, labels = rng.normal(size=(2, 20_000, 40)), np.arange(20_000) % 2
    tracemalloc.start()
    try:
        likelihood = Bernoulli.of(design, labels)
        likelihood.regressors(
            likelihood.start(), np.ones(40), np.full(2, 0.5), np.full((2, 2), 0.25)
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * design.nbytes


def test_tangents_near_zero_keep_their_weight():
    np.testing.assert_allclose(jaakkola_precision(np.array([0.0, 1e-12, 1e-3])), 0.25, rtol=1e-6)
