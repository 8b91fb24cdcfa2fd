"""The multivariate normal distribution: PyMC's law by another graph."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models.distributions.normal import MultivariateNormal

MODE = python_mode()
rng = np.random.default_rng(0)


def _problem(n):
    a = rng.normal(size=(n, n + 2))
    return rng.normal(size=n), a @ a.T, rng.normal(size=n)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_density_is_scipys(n):
    mu, cov, x = _problem(n)
    expected = stats.multivariate_normal.logpdf(x, mu, cov)
    for given in ({"cov": cov}, {"chol": np.linalg.cholesky(cov)}):
        got = pm.logp(MultivariateNormal.dist(mu, **given), x).eval(mode=MODE)
        np.testing.assert_allclose(got, expected, rtol=1e-10)


def test_batches_go_by_rows():
    problems = [_problem(3) for _ in range(4)]
    mu, cov, x = (np.stack(parts) for parts in zip(*problems, strict=True))
    got = pm.logp(MultivariateNormal.dist(mu, cov), x).eval(mode=MODE)
    each = [stats.multivariate_normal.logpdf(x, mu, cov) for mu, cov, x in problems]
    np.testing.assert_allclose(got, each, rtol=1e-10)


def test_no_covariance_has_no_density():
    cov = np.array([[1.0, 2.0], [2.0, 1.0]])
    got = pm.logp(MultivariateNormal.dist(np.zeros(2), cov), np.zeros(2)).eval(mode=MODE)
    assert got == -np.inf


def test_draws_have_the_covariance():
    mu, cov, _ = _problem(3)
    draws = pm.draw(MultivariateNormal.dist(mu, cov), draws=4000, random_seed=1, mode=MODE)
    spread = np.sqrt(np.diag(cov))
    assert np.all(np.abs(draws.mean(0) - mu) < 4 * spread / np.sqrt(4000))
    error = np.outer(spread, spread) * np.sqrt(2 / 4000)
    assert np.all(np.abs(np.cov(draws.T) - cov) < 4 * error)
