"""Expected probit log likelihoods: against quadrature, differences and many points."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from kernelzoo.numerics import expected_probit
from kernelzoo.numerics.expected_probit import expected_contrast, expected_scores
from kernelzoo.numerics.probit import hessian, log_probability_and_gradient


def problem(n_classes, n_objects=6):
    rng = np.random.default_rng(n_classes)
    codes = np.arange(n_objects) % n_classes
    root = 0.7 * rng.normal(size=(n_objects, n_classes, n_classes))
    covariance = root @ root.transpose(0, 2, 1) + 0.3 * np.eye(n_classes)
    return codes, rng.normal(size=(n_objects, n_classes)), covariance


def test_contrasts_agree_with_adaptive_quadrature():
    mean, sd = np.array([-3.0, 0.2, 4.0]), np.array([0.1, 1.0, 3.0])
    codes = np.array([1, 0, 1])
    expected = expected_contrast(codes, mean, sd**2)
    for n, sign in enumerate(2 * codes - 1):

        def integrand(z, n=n, sign=sign):
            gap = sign * (mean[n] + sd[n] * z) * np.sqrt(0.5)
            return norm.pdf(z) * norm.logcdf(gap)

        exact = quad(integrand, -9, 9, epsabs=1e-11)[0]
        np.testing.assert_allclose(expected.log_p[n], exact, rtol=1e-5)


def test_a_contrast_is_that_of_two_scores():
    codes, mean, covariance = problem(2)
    scores = expected_scores(codes, mean, covariance)
    gap = np.array([-1.0, 1.0])
    variance = np.einsum("c,ncd,d->n", gap, covariance, gap)
    contrast = expected_contrast(codes, mean @ gap, variance)
    np.testing.assert_allclose(scores.log_p, contrast.log_p, atol=1e-7)
    np.testing.assert_allclose(scores.gradient, contrast.gradient * gap, atol=1e-7)
    np.testing.assert_allclose(scores.curvature, contrast.curvature * np.outer(gap, gap), atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_gradient_is_that_of_the_expectation(n_classes):
    codes, mean, covariance = problem(n_classes)
    expected = expected_scores(codes, mean, covariance)
    for c, e in enumerate(1e-5 * np.eye(n_classes)):
        rise = expected_scores(codes, mean + e, covariance).log_p
        fall = expected_scores(codes, mean - e, covariance).log_p
        np.testing.assert_allclose((rise - fall) / 2e-5, expected.gradient[:, c], atol=1e-6)


@pytest.mark.parametrize(("n_classes", "log_p", "curvature"), [(3, 0.01, 0.02), (5, 0.02, 0.06)])
def test_few_points_agree_with_many(n_classes, log_p, curvature):
    codes, mean, covariance = problem(n_classes)
    expected = expected_scores(codes, mean, covariance)
    z = np.random.default_rng(0).standard_normal((100_000, n_classes))
    z = np.vstack([z, -z])
    for n, code in enumerate(codes):
        f = mean[n] + z @ np.linalg.cholesky(covariance[n]).T
        each, gradient = log_probability_and_gradient(f, np.full(len(f), code))
        error = 5 * each.std() / np.sqrt(len(f))
        np.testing.assert_allclose(expected.log_p[n], each.mean(), atol=log_p + error)
        np.testing.assert_allclose(expected.gradient[n], gradient.mean(0), atol=0.02)
        exact = -hessian(f[::20], np.full(len(f[::20]), code)).mean(0)
        np.testing.assert_allclose(expected.curvature[n], exact, atol=curvature)


@pytest.mark.parametrize("n_classes", [3, 10])
def test_points_are_those_of_a_standard_normal(n_classes):
    z = expected_probit._points(n_classes)
    np.testing.assert_allclose(z.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(z.T @ z / len(z), np.eye(n_classes), atol=1e-12)
