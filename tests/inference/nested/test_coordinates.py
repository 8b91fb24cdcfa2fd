"""Coordinates of precisions and weights are standard normal under the prior."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

from family import assert_ks, assert_z
from kernelzoo.inference.nested.coordinates import LogGamma, WeightCoordinates


@pytest.mark.parametrize("shape", [0.05, 1.0, 3.7, 200.0])
def test_quantiles_of_a_gamma_variable(shape):
    v = np.array([-8.0, -3.33, -0.41, 0.0, 0.777, 4.2, 8.0])
    quantiles = np.where(
        v < 0,
        stats.gamma.ppf(stats.norm.cdf(v), shape),
        stats.gamma.isf(stats.norm.sf(v), shape),
    )
    # Below the range of doubles the lower tail is x^a / Gamma(a + 1).
    power = (stats.norm.logcdf(v) + gammaln(shape + 1)) / shape
    exact = np.where(power < -40, power, np.log(np.maximum(quantiles, 1e-300)))
    np.testing.assert_allclose(LogGamma.of(shape)(v), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", [0.05, 1.0, 3.7, 200.0])
def test_coordinates_of_a_gamma_variable_are_inverted_and_differentiated(shape):
    coordinate, v = LogGamma.of(shape), np.linspace(-7.3, 7.1, 23)
    np.testing.assert_allclose(coordinate.inverse(coordinate(v)), v, atol=2e-5)
    value, first, second = coordinate.derivatives(v)
    h = 1e-4
    ahead, behind = coordinate.derivatives(v + h), coordinate.derivatives(v - h)
    np.testing.assert_allclose(value, coordinate(v))
    np.testing.assert_allclose(first, (ahead[0] - behind[0]) / (2 * h), rtol=1e-3)
    np.testing.assert_allclose(second, (ahead[1] - behind[1]) / (2 * h), rtol=2e-3, atol=1e-5)


def prior_weights(shape, rate, n, rng):
    """Draws (n, 3) from the prior, by way of the concentrations, without underflow."""
    concentrations = np.maximum(rng.gamma(shape, 1 / rate, size=(n, 3)), 1e-12)
    log_g = np.log(rng.gamma(concentrations + 1))
    log_g -= rng.exponential(size=(n, 3)) / concentrations
    g = np.exp(log_g - log_g.max(axis=1, keepdims=True))
    return g / g.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("shape", "rate"), [(1.0, 1.0), (4.0, 2.0), (0.5, 3.0)])
def test_weights_have_the_law_of_the_declaration(shape, rate):
    rng = np.random.default_rng(1)
    weights = WeightCoordinates.learned(shape, rate).weights(rng.normal(size=(3000, 3)))
    np.testing.assert_allclose(weights.sum(axis=1), 1)

    def spread(beta):
        """Draw weights that are 0 or 1 in double precision anew: the test takes no ties."""
        beta = np.where(beta < 1e-290, 1e-290 * rng.random(len(beta)), beta)
        return np.where(beta > 1 - 1e-12, 1 - 1e-12 * rng.random(len(beta)), beta)

    reference = np.sort(spread(prior_weights(shape, rate, 200_000, rng)[:, 0]))
    assert_ks(spread(weights[:, 0]), lambda x: np.searchsorted(reference, x) / len(reference))


def test_weights_of_a_known_concentration_are_dirichlet():
    weights = WeightCoordinates.known(0.7).weights(np.random.default_rng(2).normal(size=(3000, 3)))
    assert_ks(weights[:, 1], stats.beta(0.7, 1.4).cdf)


def test_concentrations_and_weights_have_their_joint_prior():
    """E[rho_1 log beta_1] tells a concentration drawn given its weight from one drawn freely."""
    rng = np.random.default_rng(3)
    coordinates = WeightCoordinates.learned(4.0, 2.0)
    v = rng.normal(size=(4000, 2))
    rho = coordinates.concentrations(v, rng)
    product = rho[:, 0] * np.log(coordinates.weights(v)[:, 0])
    known = rng.gamma(4.0, 0.5, size=(200_000, 2))
    beta = stats.beta.rvs(known[:, 0], known[:, 1], random_state=rng)
    reference = known[:, 0] * np.log(np.maximum(beta, 1e-300))
    assert_z((product.mean() - reference.mean()) / (product.std() / np.sqrt(len(product))))
