"""Draws and integrals of log-concave densities against SciPy's distributions."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from family import assert_ks
from kernelzoo.inference.kernel_completion import log_concave
from kernelzoo.inference.kernel_completion.log_concave import LogConcave


def standard_normal(x):
    return 7.0 - 0.5 * x**2, -x


def log_gamma(shape):
    """Log of a Gamma variable: skewed, its left tail exponential."""

    def log_density(x):
        return shape * x - np.exp(x), shape - np.exp(x)

    return log_density


@pytest.mark.parametrize(
    ("log_density", "law", "log_integral"),
    [
        (standard_normal, stats.norm, 7.0 + 0.5 * np.log(2 * np.pi)),
        (log_gamma(0.5), stats.loggamma(0.5), 0.5 * np.log(np.pi)),
        (log_gamma(400.0), stats.loggamma(400.0), gammaln(400.0)),
        (log_gamma(0.01), stats.loggamma(0.01), gammaln(0.01)),
    ],
    ids=["normal", "skewed", "narrow", "one tail 200 times as long"],
)
@pytest.mark.parametrize("start", [-20.0, 3.0])
def test_draws_and_integral(log_density, law, log_integral, start):
    density = LogConcave(log_density, start)
    draws = density.sample(20_000, np.random.default_rng(0))
    assert_ks(draws, law.cdf)
    assert density.log_integral == pytest.approx(log_integral, abs=1e-9)
    x, p = density.nodes()
    assert p @ x == pytest.approx(law.mean(), rel=1e-10, abs=1e-10)


def test_few_tangents_cost_draws_but_no_accuracy(monkeypatch):
    """Bugs of the envelope hide where it lies close to the density."""
    monkeypatch.setattr(log_concave, "TANGENTS", 5)
    for log_density, law in ((standard_normal, stats.norm), (log_gamma(3.0), stats.loggamma(3.0))):
        draws = LogConcave(log_density, 0.0).sample(20_000, np.random.default_rng(0))
        assert_ks(draws, law.cdf)


def test_a_shifted_law_is_noticed():
    draws = LogConcave(standard_normal, 0.0).sample(20_000, np.random.default_rng(0))
    with pytest.raises(AssertionError):
        assert_ks(draws, stats.norm(0.1).cdf)
