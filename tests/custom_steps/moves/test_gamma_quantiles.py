"""Gamma quantiles against SciPy's, finite sums, and each other."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, log_ndtr, logsumexp

from kernelzoo.custom_steps.moves.gamma_quantiles import TAIL, log_quantile, normal_score


@pytest.mark.parametrize("shape", [1e-3, 0.03, 0.5, 1.0, 7.0, 200.0, 1e4])
def test_quantiles_and_scores_are_inverses(shape):
    z = np.linspace(-8, 8, 400)
    np.testing.assert_allclose(normal_score(log_quantile(z, shape), shape), z, rtol=1e-10)


@pytest.mark.parametrize("shape", [0.3, 1.0, 7.0])
def test_quantiles_are_those_of_the_gamma_distribution(shape):
    z = np.linspace(-6, 6, 101)
    expected = stats.gamma(shape).ppf(stats.norm.cdf(z[z < 3]))
    np.testing.assert_allclose(np.exp(log_quantile(z[z < 3], shape)), expected, rtol=1e-9)
    expected = stats.gamma(shape).isf(stats.norm.sf(z[z > 0]))
    np.testing.assert_allclose(np.exp(log_quantile(z[z > 0], shape)), expected, rtol=1e-9)


@pytest.mark.parametrize("shape", [1e-2, 1.0, 10.0])
def test_quantiles_are_smooth_where_the_leading_term_takes_over(shape):
    log_g = np.array([-30.0 - 1e-9, -30.0 + 1e-9])
    before, after = normal_score(log_g, shape)
    np.testing.assert_allclose(before, after, rtol=1e-9)


@pytest.mark.parametrize("shape", [1e-3, 0.03, 0.5, 1.0, 7.0, 60.0, 99.0, 101.0, 1e4, 1e6])
def test_far_quantiles_and_scores_are_inverses(shape):
    """Far beyond the 38 at which one of the tails underflows, and on both sides of that."""
    z = np.concatenate([np.geomspace(8, 1e3, 60), np.linspace(35, 37, 40)])
    z = np.concatenate([-z, z])
    log_g = log_quantile(z, shape)
    assert np.isfinite(log_g).all()
    assert (np.diff(log_g[np.argsort(z)]) >= 0).all()
    np.testing.assert_allclose(normal_score(log_g, shape), z, rtol=1e-11)


@pytest.mark.parametrize("shape", [1, 7, 99, 101, 3000])
def test_far_scores_are_those_of_a_finite_sum(shape):
    """Q(a, g) = e^-g sum_{k < a} g^k / k! for whole a; P is the rest of the series."""
    reach = np.array([1.0, 2.0, 4.0]) * max(50 * np.sqrt(shape), 1000)
    below = np.array([0.1, 0.5, 1.0]) * shape * np.exp(-1 - 700 / shape)
    for g in np.concatenate([shape + reach, below if shape > 90 else []]):
        k = np.arange(shape) if g > shape else np.arange(shape, 4 * shape + 100)
        log_tail = logsumexp(k * np.log(g) - g - gammaln(k + 1))
        assert log_tail < np.log(TAIL)
        z = normal_score(np.log([g]), shape)
        assert np.sign(z) == np.sign(g - shape)
        np.testing.assert_allclose(log_ndtr(-np.abs(z)), log_tail, rtol=1e-11)
