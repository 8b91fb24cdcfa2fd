"""Gamma quantiles against SciPy's and each other."""

import numpy as np
import pytest
from scipy import stats

from kernelzoo.custom_steps.moves.ellipse import LARGEST_SCORE, log_quantile, normal_score


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


def test_quantiles_beyond_what_a_double_holds_are_not_numbers():
    far = np.array([-LARGEST_SCORE - 0.1, LARGEST_SCORE + 0.1])
    assert np.isnan(log_quantile(far, 1e4)).all()
    assert np.isfinite(log_quantile(np.sign(far) * (LARGEST_SCORE - 0.1), 1e4)).all()
