"""The concentrations' factor against brute-force summation over two concentrations."""

import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp
from scipy.stats import gamma

from family import assert_ks, assert_mean
from kernelzoo.inference.variational import concentration
from kernelzoo.inference.variational.concentration import concentration_factor


def brute_force(mu, lam, mean_log, n_points=1500):
    """log normaliser and E[rho] on a uniform grid of (log rho_1, log rho_2)."""
    y = np.linspace(-30 / (1 + mu) - 8, 8, n_points)
    rho = np.exp(y)
    one = gamma.logpdf(rho, mu, scale=1 / lam) - gammaln(rho) + y
    first, second = (one + rho * level for level in mean_log)
    log_p = first[:, None] + second + gammaln(rho[:, None] + rho) + 2 * np.log(y[1] - y[0])
    total = logsumexp(log_p)
    p = np.exp(log_p - total)
    return total, np.array([p.sum(axis=1) @ rho, p.sum(axis=0) @ rho])


CASES = [
    (1.0, 1.0, (-0.7, -0.7)),
    (1.0, 1.0, (-0.01, -5.0)),
    (1.0, 1.0, (-1e-3, -40.0)),
    (0.1, 0.1, (-1.0, -2.0)),
    (5.0, 1.0, (-0.1, -3.0)),
    (100.0, 100.0, (-2.0, -3.0)),
]


@pytest.mark.parametrize(("mu", "lam", "mean_log"), CASES)
def test_two_concentrations_agree_with_brute_force(mu, lam, mean_log):
    factor = concentration_factor(mu, lam, np.array(mean_log))
    log_normaliser, mean = brute_force(mu, lam, mean_log)
    np.testing.assert_allclose(factor.log_normaliser, log_normaliser, rtol=0, atol=1e-7)
    np.testing.assert_allclose(factor.mean, mean, rtol=1e-7)


@pytest.mark.parametrize("mu", [1.0, 1.3])
def test_a_factor_nearby_changes_nothing(mu):
    """Nor one of another prior shape, for which its nodes do not fit."""
    level = np.array([-0.7, -1.1, -2.0])
    near = concentration_factor(1.0, 1.0, level + 1e-3)
    found, fresh = concentration_factor(mu, 1.0, level, near), concentration_factor(mu, 1.0, level)
    assert (found._grid is near._grid) == (mu == 1)
    for name in ("mean", "sd", "mean_log", "log_normaliser"):
        np.testing.assert_allclose(getattr(found, name), getattr(fresh, name), rtol=1e-6)


@pytest.mark.parametrize("n_weights", [3, 12])
def test_mean_is_the_gradient_of_the_log_normaliser(n_weights):
    """d log Z / d l_s = E[rho_s]."""
    level = -np.random.default_rng(0).gamma(2.0, size=n_weights) - np.log(n_weights)
    factor = concentration_factor(1.0, 1.0, level)
    step = 1e-3
    for s in range(n_weights):
        e = np.eye(n_weights)[s] * step
        up, down = (concentration_factor(1.0, 1.0, level + h).log_normaliser for h in (e, -e))
        np.testing.assert_allclose((up - down) / (2 * step), factor.mean[s], atol=1e-5)


def test_a_strong_prior_wins():
    factor = concentration_factor(1e4, 1e3, np.array([-2.0, -0.3]))
    np.testing.assert_allclose(factor.mean, 10, rtol=0.01)
    np.testing.assert_allclose(factor.sd, 0.1, rtol=0.02)


@pytest.mark.parametrize("mean_log", [(-0.7, -0.7), (-0.1, -3.0, -4.0)])
def test_draws_follow_the_density(mean_log):
    rng = np.random.default_rng(1)
    mu, lam = 1.6, 0.7
    factor = concentration_factor(mu, lam, np.array(mean_log))
    draws = factor.sample(20_000, rng)
    assert_mean(draws, factor.mean)
    assert_mean((draws - factor.mean) ** 2, factor.sd**2)
    # The same law by rejection from the prior, whose weights also average to one.
    prior = rng.gamma(mu, 1 / lam, size=(400_000, len(mean_log)))
    log_prior = gamma.logpdf(prior, mu, scale=1 / lam).sum(axis=1)
    weight = np.exp(factor.log_density(prior) - log_prior)
    assert_mean(weight, 1.0)
    keep = rng.random(len(prior)) < weight / weight.max()
    for s in range(len(mean_log)):
        assert_ks(draws[:, s], prior[keep, s])


@pytest.mark.parametrize("mu", [1e3, 1e5, 1e6, 1e8])
def test_prior_strong_at_one(mu):
    """Q is the prior, and rho = 1 a uniform Dirichlet, up to O(1 / mu): log normaliser -1.4."""
    factor = concentration_factor(mu, mu, np.array([-0.7, -0.7]))
    assert abs(factor.log_normaliser + 1.4) < 1 / mu + 1e-6
    np.testing.assert_allclose(factor.mean, 1, atol=1 / mu + 1e-9)
    np.testing.assert_allclose(factor.sd, mu**-0.5, rtol=2 / mu + 1e-6)


@pytest.mark.parametrize("lam", [1e4, 1e8])
def test_rate_is_a_scale_when_all_concentrations_vanish(lam):
    """Gamma(r) ~ 1 / r: Q is Gamma(2 S - 1, lam) over the sum, uniform-Dirichlet-like shares."""
    factor = concentration_factor(1.0, lam, np.array([-0.7, -0.7]))
    np.testing.assert_allclose(factor.mean, 1.5 / lam, rtol=2 / lam + 1e-7)
    # E[r^2] = 3 * 4, shares Dirichlet(2, 2): E[share^2] = 0.3.
    np.testing.assert_allclose(factor.sd, np.sqrt(12 * 0.3 - 1.5**2) / lam, rtol=4 / lam + 1e-6)


@pytest.mark.parametrize("seed", range(40))
def test_finer_and_wider_nodes_change_nothing(seed, monkeypatch):
    """Over all priors that are let in, and any E[log beta]."""
    rng = np.random.default_rng(seed)
    mu, lam = 10 ** rng.uniform(-3, 8, 2)
    lam = max(lam, mu / 1e7)
    a = 10 ** rng.uniform(*[(-2, 1), (-4, 2), (-9, 4)][seed % 3], size=rng.integers(2, 7))
    level = digamma(a) - digamma(a.sum())
    factor = concentration_factor(mu, lam, level)
    monkeypatch.setattr(concentration, "NODE_SPACING", 0.04)
    monkeypatch.setattr(concentration, "NEGLECTED_LOG_DENSITY", 36.0)
    monkeypatch.setattr(concentration, "RANGE_IN_SDS", np.sqrt(72))
    finer = concentration_factor(mu, lam, level)
    np.testing.assert_allclose(factor.log_normaliser, finer.log_normaliser, rtol=1e-12, atol=5e-7)
    np.testing.assert_allclose(factor.mean, finer.mean, rtol=1e-7)
    np.testing.assert_allclose(factor.sd, finer.sd, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e3, 1e4, 1e8])
def test_draws_under_strong_priors(scale):
    factor = concentration_factor(scale, scale, np.array([-0.7, -1.2, -1.5]))
    draws = factor.sample(5000, np.random.default_rng(2))
    assert_mean(draws, factor.mean)
    assert_mean((draws - factor.mean) ** 2, factor.sd**2)
