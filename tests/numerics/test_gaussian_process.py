import numpy as np
import pytest
from scipy.stats import multivariate_normal

from kernelzoo.numerics.gaussian_process import (
    LaplaceFit,
    Logistic,
    NormalRegression,
    NotPositiveDefiniteError,
    Softmax,
    cholesky,
    laplace,
)

N_OBJECTS = 12


def kernels(rng):
    X = rng.normal(size=(N_OBJECTS, 2))
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    return np.stack([np.exp(-squares), X @ X.T]) + 1e-6 * np.eye(N_OBJECTS)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(params=[2, 3])
def likelihood(request, rng):
    codes = rng.permutation(np.arange(N_OBJECTS) % request.param)
    return Logistic(codes) if request.param == 2 else Softmax(codes, request.param)


def stacked(matrix, n_functions):
    """K of all functions together, (C N, C N)."""
    return np.kron(np.eye(n_functions), matrix)


def curvature_of_likelihood(p):
    """W (C N, C N), functions first, from probabilities (N, C)."""
    n, c = p.shape
    by_object = np.zeros((n, c, c))
    for row, probabilities in zip(by_object, p, strict=True):
        if c == 1:
            row[0, 0] = probabilities[0] * (1 - probabilities[0])
        else:
            row[:] = np.diag(probabilities) - np.outer(probabilities, probabilities)
    W = np.zeros((c, n, c, n))
    objects = np.arange(n)
    for i in range(c):
        for j in range(c):
            W[i, objects, j, objects] = by_object[:, i, j]
    return W.reshape(c * n, c * n)


def dense(fit):
    """K, W and the covariance of the scores of all functions together."""
    c = fit.a.shape[1]
    K, W = stacked(fit.K, c), curvature_of_likelihood(fit.curvature.p)
    return K, W, K - K @ W @ np.linalg.solve(np.eye(len(K)) + K @ W, K)


def test_mode_and_evidence_are_those_of_dense_matrices(rng, likelihood):
    fit = laplace(3 * kernels(rng)[0] + 2 * kernels(rng)[1], likelihood)
    K, W, _ = dense(fit)
    residual = likelihood.observed - likelihood.probabilities(fit.mode)
    assert np.allclose(fit.a, residual, atol=1e-5)
    assert np.allclose(fit.mode, fit.K @ fit.a, atol=1e-10)
    f = fit.mode.T.ravel()
    log_joint = likelihood.log_density(fit.mode).sum() - 0.5 * f @ np.linalg.solve(K, f)
    log_det = np.linalg.slogdet(np.eye(len(K)) + K @ W)[1]
    assert fit.log_evidence == pytest.approx(log_joint - 0.5 * log_det, abs=1e-8)


def test_curvature_is_the_dense_matrix(rng, likelihood):
    fit = laplace(5 * kernels(rng)[0], likelihood)
    K, W, covariance = dense(fit)
    n_functions = fit.a.shape[1]
    M = W @ np.linalg.inv(np.eye(len(K)) + K @ W)
    b = rng.normal(size=fit.a.shape)
    assert np.allclose(fit.curvature.apply(b).T.ravel(), M @ b.T.ravel())
    blocks = M.reshape(n_functions, N_OBJECTS, n_functions, N_OBJECTS)
    assert np.allclose(fit.curvature.trace_of_blocks(), np.einsum("cncm->nm", blocks))
    own = covariance.reshape(n_functions, N_OBJECTS, n_functions, N_OBJECTS)
    by_object = fit.curvature.covariances()
    assert np.allclose(by_object, np.einsum("cndn->ncd", own))
    again = fit.curvature.covariances(fit.K, fit.K.diagonal())
    assert np.allclose(by_object, again)


def test_gradient_of_the_evidence_is_that_of_differences(rng, likelihood):
    stack = kernels(rng)
    weights, step = np.array([3.0, 2.0]), 1e-4
    gradient = laplace(np.tensordot(weights, stack, 1), likelihood).gradient()
    assert np.allclose(gradient, gradient.T)
    for k, kernel in enumerate(stack):
        shift = step * np.eye(2)[k]
        above = laplace(np.tensordot(weights + shift, stack, 1), likelihood).log_evidence
        below = laplace(np.tensordot(weights - shift, stack, 1), likelihood).log_evidence
        slope = (above - below) / (2 * step)
        assert (gradient * kernel).sum() == pytest.approx(slope, abs=1e-5)


def test_draws_have_the_mean_and_covariance_of_the_approximation(rng, likelihood):
    fit = laplace(5 * kernels(rng)[0], likelihood)
    root = cholesky(fit.K)
    number = 20_000
    f = np.stack([root @ fit.draw(root, rng) for _ in range(number)])
    flat = f.transpose(0, 2, 1).reshape(number, -1)
    _, _, covariance = dense(fit)
    sd = np.sqrt(covariance.diagonal())
    # Five standard errors of each mean and covariance.
    assert (abs(flat.mean(0) - fit.mode.T.ravel()) < 5 * sd / number**0.5).all()
    spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
    assert (abs(np.cov(flat.T) - covariance) < 5 * spread / number**0.5).all()


def test_left_out_scores_divide_the_normal_approximation_out(rng, likelihood):
    fit = laplace(5 * kernels(rng)[0], likelihood)
    K, W, _ = dense(fit)
    n_functions = fit.a.shape[1]
    means, covariances = fit.left_out()
    shape = n_functions, N_OBJECTS
    linear = W @ fit.mode.T.ravel() + fit.a.T.ravel()
    for n in range(N_OBJECTS):
        others = np.ones(shape, dtype=bool)
        others[:, n] = False
        rest = others.ravel()
        W_rest = W * np.outer(rest, rest)
        precision = np.linalg.inv(K) + W_rest
        covariance = np.linalg.inv(precision)
        mean = covariance @ (linear * rest)
        own = ~rest
        assert np.allclose(means[n], mean[own], atol=1e-5)
        assert np.allclose(covariances[n], covariance[np.ix_(own, own)], atol=1e-5)


@pytest.mark.parametrize("start", [None, "other", "huge"])
def test_the_start_does_not_matter(rng, likelihood, start):
    K = 30 * kernels(rng)[0]
    first = None
    if start is not None:
        first = laplace(0.1 * K, likelihood).a * (1000 if start == "huge" else 1)
    fit: LaplaceFit = laplace(K, likelihood, first)
    assert fit.log_evidence == pytest.approx(laplace(K, likelihood).log_evidence, abs=1e-7)


def test_two_classes_by_softmax_are_one_function_of_twice_the_variance(rng):
    codes = np.arange(N_OBJECTS) % 2
    K = kernels(rng)[0]
    two = laplace(K, Softmax(codes, 2))
    one = laplace(2 * K, Logistic(codes))
    assert np.allclose(two.mode[:, 1] - two.mode[:, 0], one.mode[:, 0], atol=1e-6)
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


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
    f = np.stack([root @ regression.draw(root, rng) for _ in range(number)])
    for output, variance in enumerate(noise):
        gain = K @ np.linalg.inv(K + variance * np.eye(N_OBJECTS))
        covariance = K - gain @ K
        sd = np.sqrt(covariance.diagonal())
        mean = gain @ targets[:, output]
        assert (abs(f[..., output].mean(0) - mean) < 5 * sd / number**0.5).all()
        spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
        errors = abs(np.cov(f[..., output].T) - covariance)
        assert (errors < 5 * spread / number**0.5).all()


def test_a_matrix_without_a_factor_raises(rng, likelihood):
    with pytest.raises(NotPositiveDefiniteError, match="minor of order"):
        cholesky(-np.eye(3))
    with pytest.raises(NotPositiveDefiniteError):
        laplace(-5 * np.eye(N_OBJECTS), likelihood)
