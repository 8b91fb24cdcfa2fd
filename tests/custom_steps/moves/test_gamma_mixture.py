import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from family import assert_ks
from kernelzoo.custom_steps.multinomial_probit.kernel_coordinates import GammaMixture

PRIORS = [(1.0, 1.0), (2.0, 1.5), (0.3, 0.1), (50.0, 3.0), (5.0, 1e-4)]


def prior_draws(mu, lam, n, rng):
    """Concentrations and log g from the prior; small shapes by logarithms."""
    rho = rng.gamma(mu, 1 / lam, n)
    return rho, np.log(rng.standard_gamma(rho + 1)) - rng.exponential(size=n) / rho


@pytest.mark.parametrize(("mu", "lam"), PRIORS)
def test_table_is_the_law_of_log_g(mu, lam):
    mixture = GammaMixture.of(mu, lam)
    _, log_g = prior_draws(mu, lam, 20_000, np.random.default_rng(1))
    z = mixture.coordinate(log_g)
    grid = np.linspace(*mixture.log_density.x[[0, -1]], 400_001)
    values = mixture.log_density(grid)
    cdf = np.exp(values - values.max()).cumsum()
    assert_ks(z, lambda x: np.interp(x, grid, cdf / cdf[-1]))


@pytest.mark.parametrize(("mu", "lam"), PRIORS)
def test_concentrations_given_log_g(mu, lam):
    """A draw of rho | log g from the prior's log g has the prior's law, jointly with log g."""
    rng = np.random.default_rng(2)
    _, log_g = prior_draws(mu, lam, 10_000, rng)
    drawn = GammaMixture.of(mu, lam).draw_concentrations(log_g, rng)
    assert_ks(drawn, stats.gamma(mu, scale=1 / lam).cdf)
    rho, log_g_again = prior_draws(mu, lam, 10_000, rng)
    assert_ks(np.arctan(drawn * log_g), np.arctan(rho * log_g_again))


@pytest.mark.parametrize(("mu", "lam"), [(1e-3, 1e-3), (1.0, 1e-3), (1e3, 10.0)])
@pytest.mark.parametrize("log_g", [-690.0, -1.0, 3.0, 5.0])
def test_concentrations_given_an_extreme_log_g(mu, lam, log_g):
    """Draws at one log g against the density integrated; no value of it costs many rejections."""
    rho = GammaMixture.of(mu, lam).draw_concentrations(
        np.full(4_000, log_g), np.random.default_rng(1)
    )
    r = np.linspace(
        *(np.log(rho.clip(1e-300)).clip(-800).min() - 3, np.log(rho.max()) + 3), 200_001
    )
    kernel = (mu + 1) * r + (log_g - lam) * np.exp(r) - gammaln(np.exp(r) + 1)
    cdf = np.exp(kernel - kernel.max()).cumsum()
    assert_ks(np.log(rho), lambda x: np.interp(x, r, cdf / cdf[-1]))


def test_values_out_of_range_are_drawn_from_its_end():
    mixture = GammaMixture.of(1e3, 10.0)
    rho = mixture.draw_concentrations(np.array([-1e35, 20.0]), np.random.default_rng(1))
    assert rho[0] < 1e-20
    assert 100 < rho[1] < 1e3


def test_wrong_exponent_is_detected():
    rng = np.random.default_rng(2)
    _, log_g = prior_draws(2.0, 1.5, 10_000, rng)
    wrong = GammaMixture.of(1.0, 1.5).draw_concentrations(log_g, rng)
    with pytest.raises(AssertionError):
        assert_ks(wrong, stats.gamma(2.0, scale=1 / 1.5).cdf)


@pytest.mark.parametrize(("mu", "lam"), [(1.0, 1.0), (0.3, 0.1), (50.0, 3.0)])
def test_density_against_adaptive_quadrature(mu, lam):
    mixture = GammaMixture.of(mu, lam)
    log_g = np.array([-40.0, -3.0, -0.5, 0.4, 1.5])

    def exact(at):
        def integrand(r):
            rho = np.exp(r)
            return np.exp((mu + 1) * r + (at - lam) * rho - gammaln(rho + 1) - np.exp(at))

        return np.log(integrate.quad(integrand, -60 / (mu + 1), 6, limit=500, epsabs=0)[0])

    z = mixture.coordinate(log_g)
    ours = mixture.log_density(z) - np.log(np.cosh(z))
    np.testing.assert_allclose(ours, [exact(at) for at in log_g], rtol=0, atol=1e-5)


def test_slope_and_range():
    mixture = GammaMixture.of(1.0, 1.0)
    z = np.array([-3.0, 0.2])
    value, slope = mixture.value_and_slope(z)
    numeric = [
        (mixture.value_and_slope(z + e)[0] - mixture.value_and_slope(z - e)[0]) / 2e-5
        for e in 1e-5 * np.eye(2)
    ]
    np.testing.assert_allclose(slope, numeric, rtol=1e-6)
    assert np.isfinite(value)
    assert mixture.value_and_slope(np.array([0.0, 50.0]))[0] == -np.inf
    log_g, _ = mixture.log_gamma(z)
    np.testing.assert_allclose(mixture.coordinate(log_g), z, rtol=1e-12)
