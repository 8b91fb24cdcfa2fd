"""Gamma factors."""

import numpy as np
from scipy import stats

from family import assert_mean
from kernelzoo.inference.variational.factors import Gamma


def test_density_and_draws_are_those_of_scipy():
    factor = Gamma(1.7, np.array([0.3, 5.0]))
    values, log_density = factor.sample(20_000, np.random.default_rng(1))
    exact = stats.gamma.logpdf(values, 1.7, scale=1 / np.asarray(factor.rate)).sum(axis=1)
    np.testing.assert_allclose(log_density, exact)
    assert_mean(values, factor.mean)
    assert_mean(np.log(values), factor.mean_log)
