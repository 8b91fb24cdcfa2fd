"""Importance samples of the kernel weights and their concentrations against quadrature."""

import numpy as np
import pytest
from scipy.special import gammaln

from family import assert_z
from kernelzoo.inference.composite_kernel import vb as vb
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.variational.gamma import Gamma
from kernelzoo.inference.variational.kernel_weights import Importance, Quadrature
from kernelzoo.models.composite_kernel import (
    CompositeKernelClassification,
    CompositeKernelRegression,
)

RUN = Run(progressbar=False, random_seed=1)
MODELS = (CompositeKernelRegression, CompositeKernelClassification)
SAMPLES = 100_000


def generator(stream):
    return np.random.default_rng([5, stream])


def assert_agree(sampled, exact, log_normaliser):
    """Moments within the errors that the effective number of samples implies."""
    draws = exact.sample(4000, np.random.default_rng(0))
    root = np.sqrt(sampled.ess)
    assert_z((sampled.mean - exact.mean) / exact.sd * root)
    assert_z((sampled.mean_log - exact.mean_log) / np.log(draws).std(axis=0) * root)
    # The relative variance of the mean weight is 1 / ess - 1 / n.
    error = np.sqrt(1 / sampled.ess - 1 / SAMPLES)
    assert_z((log_normaliser - exact.log_normaliser) / error)
    np.testing.assert_allclose(sampled.log_density(draws), exact.log_density(draws), rtol=1e-6)


@pytest.mark.parametrize("concentration", [[0.02, 0.3], [1.0, 2.5, 0.7]])
def test_samples_of_the_weights_agree_with_quadrature(concentration):
    a = np.array(concentration)
    root = np.random.default_rng(0).normal(size=(len(a), len(a)))
    terms = a, np.arange(len(a), dtype=float), 3 * root @ root.T
    sampled = Importance(SAMPLES, generator).weights(*terms, None)
    exact = Quadrature().weights(*terms, None)
    assert_agree(sampled, exact, sampled.log_normaliser + gammaln(a).sum() - gammaln(a.sum()))
    draws = exact.sample(4000, np.random.default_rng(1))
    surprise = (exact.log_density(draws) + np.log(draws).sum(axis=1)).std()
    assert_z((sampled.entropy - exact.entropy) / (1 + surprise) * np.sqrt(sampled.ess))
    spread = (draws[:, :, None] * draws[:, None]).std(axis=0)
    error = (sampled.second_moment - exact.second_moment) / spread
    assert_z(error * np.sqrt(sampled.ess))


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (0.05, 2.0), (6.0, 0.5)])
def test_samples_of_the_concentrations_agree_with_quadrature(shape, rate):
    prior, mean_log = Gamma(shape, rate), np.array([-0.3, -1.9, -4.0])
    sampled = Importance(SAMPLES, generator).concentrations(prior, mean_log, None)
    exact = Quadrature().concentrations(prior, mean_log, None)
    assert_agree(sampled, exact, sampled.log_normaliser)
    assert np.isinf(exact.ess)


def test_every_iteration_has_the_same_random_numbers():
    integration = Importance(50, generator)
    terms = np.ones(3), np.zeros(3), np.eye(3)
    one, again = (integration.weights(*terms, None) for _ in range(2))
    np.testing.assert_array_equal(one.mean, again.mean)


def test_importance_samples_follow_the_seed():
    model = CompositeKernelRegression.example()
    settings = {"weights": "importance", "samples": 300, "starts": 1, "tolerance": 1e-4}
    one, again, other = (
        vb.fit_composite_kernel(model, Run(progressbar=False, random_seed=seed), **settings)
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one.elbo[0], again.elbo[0])
    assert not np.array_equal(one.elbo[0][:5], other.elbo[0][:5])
    assert 1 <= one.parameters["beta_ess"] <= 300
    assert 1 <= one.parameters["varphi_ess"] <= 300


@pytest.mark.parametrize("cls", MODELS)
def test_importance_samples_have_a_fixed_point_near_that_of_the_factor(cls):
    model = cls.example()
    answer = vb.fit_composite_kernel(
        model, RUN, weights="importance", samples=1000, starts=1, tolerance=1e-11
    )
    assert answer.converged
    draws, _ = answer.sample(20_000, np.random.default_rng(0))
    for name in ("beta", "varphi"):
        mean, ess = (
            answer.parameters[f"{name}_mean"].values,
            float(answer.parameters[f"{name}_ess"]),
        )
        error = draws[name].std(axis=0) * np.sqrt(1 / ess + 1 / 20_000)
        assert_z((draws[name].mean(axis=0) - mean) / error)
