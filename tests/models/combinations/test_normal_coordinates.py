"""Normal coordinates of exponents and parameters against their priors by scipy and by draws."""

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import dblquad

from family import assert_ks, assert_mean
from kernelzoo.models.combinations.normal_coordinates import (
    LEAST_LOG_ARGUMENT,
    NormalCoordinates,
    draw_hyperparameters,
    log_hyperparameter_density,
)

A, B = 1.5, 0.6
# More exponents than parameters: coordinates counted from the wrong end show.
PSI = NormalCoordinates(3, A, B, np.array([2.0, 0.3]), np.array([3.0, 0.1]))


def test_values_of_normal_draws_have_the_prior():
    rng = np.random.default_rng(1)
    values = PSI.values(rng.standard_normal((20_000, 5)))
    pi, chi = rng.exponential(1 / A, 20_000), rng.exponential(1 / B, 20_000)
    beta = np.maximum(rng.gamma(pi) / chi, LEAST_LOG_ARGUMENT)
    for column in values["beta"].T:
        assert_ks(column, beta)
    for column, omega, phi in zip(values["theta"].T, PSI.omega, PSI.phi, strict=True):
        assert_ks(column, stats.gamma(omega, scale=1 / phi).cdf)


@pytest.mark.parametrize("size", [1.0, 2.5, 7.0])
def test_psi_is_the_inverse_of_values(size):
    psi = np.clip(size * np.random.default_rng(2).normal(size=(500, 5)), -9, 9)
    values = PSI.values(psi)
    inside = values["beta"] > LEAST_LOG_ARGUMENT
    found = PSI.psi(values)
    np.testing.assert_allclose(found[:, :3][inside], psi[:, :3][inside], atol=1e-9)
    inside = values["theta"] > LEAST_LOG_ARGUMENT
    np.testing.assert_allclose(found[:, 3:][inside], psi[:, 3:][inside], atol=1e-7)


def test_density_is_the_jacobian_of_psi():
    """p(value) dvalue = phi(psi) dpsi, by central differences."""
    step = 1e-5 * np.eye(5)
    for psi in np.random.default_rng(3).normal(size=(4, 5)):
        log_slopes = []
        for i, direction in enumerate(step):
            up, down = (
                np.concatenate(list(PSI.values(psi + s * direction).values())) for s in (1, -1)
            )
            log_slopes.append(np.log((up - down)[i] / 2e-5))
        expected = stats.norm.logpdf(psi).sum() - np.sum(log_slopes)
        np.testing.assert_allclose(PSI.log_density(PSI.values(psi)), expected, atol=1e-5)


def test_hyperparameters_have_their_conditional():
    """A draw of the prior with the hyperparameters redrawn has the prior's joint law."""
    rng = np.random.default_rng(2)
    pi, chi = rng.exponential(1 / A, 40_000), rng.exponential(1 / B, 40_000)
    log_beta = np.log(rng.gamma(pi + 1)) - rng.exponential(size=pi.size) / pi - np.log(chi)
    beta = np.exp(np.maximum(log_beta, np.log(LEAST_LOG_ARGUMENT)))
    new_pi, new_chi = draw_hyperparameters(beta, A, B, rng)
    bounded = np.stack([np.ones_like(beta), np.arctan(log_beta)], axis=1)
    for old, new in ((pi, new_pi), (chi, new_chi), (pi * chi, new_pi * new_chi)):
        assert_mean((old - new)[:, None] * bounded, 0.0)


@pytest.mark.parametrize("beta", [1e-8, 0.3, 40.0])
def test_density_of_hyperparameters_integrates_to_one(beta):
    kappa = A + np.log1p(B / beta)
    mass, _ = dblquad(
        lambda y, p: np.exp(log_hyperparameter_density(p, np.exp(y), beta, A, B) + y),
        *(0, 40 / kappa, -25, 6),
    )
    np.testing.assert_allclose(mass, 1.0, atol=1e-6)
