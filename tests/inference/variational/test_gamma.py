"""Gamma factors and the prior that is most likely under them."""

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from family import assert_mean
from kernelzoo.inference.variational.gamma import LARGEST_SHAPE, Gamma, most_likely


def expected_log_density(log_parameters, factor):
    shape, rate = np.exp(log_parameters)
    prior = Gamma(shape, np.full(np.shape(factor.rate), rate))
    return prior.log_constant + np.sum((shape - 1) * factor.mean_log - rate * factor.mean)


@pytest.mark.parametrize("shape", [0.05, 0.8, 30.0, 1e4])
def test_most_likely_prior_maximises_the_expected_log_density(shape):
    factor = Gamma(shape, np.random.default_rng(0).gamma(2.0, size=7))
    fitted = most_likely(factor.mean, factor.mean_log)
    found = np.log([fitted.shape, float(fitted.rate)])
    best = minimize(
        lambda x: -expected_log_density(x, factor),
        [0.0, 0.0],
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-14, "maxiter": 4000},
    )
    assert expected_log_density(found, factor) >= -best.fun - 1e-9
    for step in 1e-4 * np.array([[1, 0], [-1, 0], [0, 1], [0, -1]]):
        assert expected_log_density(found + step, factor) < expected_log_density(found, factor)


def test_one_factor_is_its_own_most_likely_prior():
    factor = Gamma(37.5, np.asarray(4.0))
    fitted = most_likely(factor.mean, factor.mean_log)
    np.testing.assert_allclose([fitted.shape, fitted.rate], [37.5, 4.0], rtol=1e-9)


def test_a_point_has_a_prior_of_the_largest_shape():
    assert most_likely(np.full(3, 2.0), np.full(3, np.log(2.0))).shape == LARGEST_SHAPE


def test_density_and_draws_are_those_of_scipy():
    factor = Gamma(1.7, np.array([0.3, 5.0]))
    values, log_density = factor.sample(20_000, np.random.default_rng(1))
    exact = stats.gamma.logpdf(values, 1.7, scale=1 / np.asarray(factor.rate)).sum(axis=1)
    np.testing.assert_allclose(log_density, exact)
    assert_mean(values, factor.mean)
    assert_mean(np.log(values), factor.mean_log)
