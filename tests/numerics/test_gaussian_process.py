import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kernelzoo.numerics.gaussian_process import (
    NormalRegression,
    NotPositiveDefiniteError,
    cholesky,
    product,
)

N_OBJECTS = 12


def kernels(rng):
    X = rng.normal(size=(N_OBJECTS, 2))
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.stack([np.exp(-squares), X @ X.T]) + 1e-6 * np.eye(N_OBJECTS)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_normal_regression_is_the_density_of_scipy(rng):
    K = kernels(rng)[0]
    targets, noise = rng.normal(size=(N_OBJECTS, 3)), np.array([0.3, 0.3, 0.1])
    regression = NormalRegression(K, targets, noise)
    laws = [multivariate_normal(np.zeros(N_OBJECTS), K + v * np.eye(N_OBJECTS)) for v in noise]
    expected = sum(law.logpdf(t) for law, t in zip(laws, targets.T, strict=True))
    assert regression.log_evidence == pytest.approx(expected, abs=1e-9)


def test_normal_regression_has_the_gradient_of_differences(rng):
    K, direction = kernels(rng)
    targets, noise, step = rng.normal(size=(N_OBJECTS, 3)), np.array([0.3, 0.3, 0.1]), 1e-6
    of_covariance, of_noise = NormalRegression(K, targets, noise).gradient()

    def slope(dK, dv):
        above = NormalRegression(K + step * dK, targets, noise + step * dv).log_evidence
        below = NormalRegression(K - step * dK, targets, noise - step * dv).log_evidence
        return (above - below) / (2 * step)

    assert (of_covariance * direction).sum() == pytest.approx(slope(direction, 0), rel=1e-6)
    for output in range(3):
        along = np.eye(3)[output]
        assert of_noise[output] == pytest.approx(slope(0 * K, along), rel=1e-5)


def test_left_out_targets_are_predicted_by_the_others(rng):
    K, noise = kernels(rng)[0], 0.2
    targets = rng.normal(size=(N_OBJECTS, 1))
    means, variances = NormalRegression(K, targets, np.array([noise])).left_out()
    for n in range(N_OBJECTS):
        rest = np.arange(N_OBJECTS) != n
        V = K[np.ix_(rest, rest)] + noise * np.eye(N_OBJECTS - 1)
        weights = np.linalg.solve(V, K[rest, n])
        assert means[n, 0] == pytest.approx(weights @ targets[rest, 0])
        assert variances[n, 0] == pytest.approx(K[n, n] + noise - weights @ K[rest, n])


def test_draws_of_normal_regression_have_the_posterior_mean_and_covariance(rng):
    K, noise, number = kernels(rng)[0], np.array([0.3, 0.1]), 20_000
    targets = rng.normal(size=(N_OBJECTS, 2))
    regression, root = NormalRegression(K, targets, noise), cholesky(K)
    normal, more = rng.standard_normal((2, N_OBJECTS, 2, number))
    f = product(root, regression.draw(root, normal, more)).transpose(2, 0, 1)
    for output, variance in enumerate(noise):
        gain = K @ np.linalg.inv(K + variance * np.eye(N_OBJECTS))
        covariance = K - gain @ K
        sd = np.sqrt(covariance.diagonal())
        mean = gain @ targets[:, output]
        assert (abs(f[..., output].mean(0) - mean) < 5 * sd / number**0.5).all()
        spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
        errors = abs(np.cov(f[..., output].T) - covariance)
        assert (errors < 5 * spread / number**0.5).all()


def test_a_matrix_without_a_factor_raises():
    with pytest.raises(NotPositiveDefiniteError, match="minor of order"):
        cholesky(-np.eye(3))
