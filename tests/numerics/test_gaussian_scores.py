from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from kernelzoo.numerics import expectation_propagation as expectation_propagation_module
from kernelzoo.numerics.expectation_propagation import expectation_propagation, linear_terms
from kernelzoo.numerics.gaussian_process import NotPositiveDefiniteError, cholesky, product
from kernelzoo.numerics.gaussian_scores import GaussianScores, Sites, laplace
from kernelzoo.numerics.likelihoods import Logistic, Softmax

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


def propagated(K, likelihood):
    start = laplace(K, likelihood)
    of_sites = partial(GaussianScores.of_sites, K, likelihood)
    return expectation_propagation(of_sites, start.sites.d, linear_terms(start))


def stacked(matrix, n_functions):
    """K of all functions together, (C N, C N)."""
    return np.kron(np.eye(n_functions), matrix)


def curvature_of_likelihood(d):
    """W (C N, C N), functions first, from d (N, C)."""
    n, c = d.shape
    by_object = np.zeros((n, c, c))
    for row, values in zip(by_object, d, strict=True):
        row[:] = np.diag(values)
        if c > 1:
            row -= np.outer(values, values) / values.sum()
    W = np.zeros((c, n, c, n))
    objects = np.arange(n)
    for i in range(c):
        for j in range(c):
            W[i, objects, j, objects] = by_object[:, i, j]
    return W.reshape(c * n, c * n)


def dense(fit):
    """K, W and the covariance of the scores of all functions together."""
    c = fit.a.shape[1]
    K, W = stacked(fit.K, c), curvature_of_likelihood(fit.curvature.sites.d)
    return K, W, K - K @ W @ np.linalg.solve(np.eye(len(K)) + K @ W, K)


def test_mode_and_evidence_are_those_of_dense_matrices(rng, likelihood):
    fit = laplace(3 * kernels(rng)[0] + 2 * kernels(rng)[1], likelihood)
    K, W, _ = dense(fit)
    residual = likelihood.observed - likelihood.probabilities(fit.mean)
    assert np.allclose(fit.a, residual, atol=1e-5)
    assert np.allclose(fit.mean, fit.K @ fit.a, atol=1e-10)
    f = fit.mean.T.ravel()
    log_joint = likelihood.log_density(fit.mean).sum() - 0.5 * f @ np.linalg.solve(K, f)
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
    assert np.allclose(fit.curvature.log_det, np.linalg.slogdet(np.eye(len(K)) + K @ W)[1])
    standard = rng.standard_normal((*fit.a.shape, 50_000))
    noise = fit.curvature.sites.noise(standard)[0]
    assert np.allclose(np.cov(noise), fit.curvature.sites.matrices()[0], atol=0.01)


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
    normal, noise = rng.standard_normal((2, *fit.a.shape, number))
    f = product(root, fit.draw(root, normal, noise))
    flat = f.transpose(2, 1, 0).reshape(number, -1)
    _, _, covariance = dense(fit)
    sd = np.sqrt(covariance.diagonal())
    # Five standard errors of each mean and covariance.
    assert (abs(flat.mean(0) - fit.mean.T.ravel()) < 5 * sd / number**0.5).all()
    spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
    assert (abs(np.cov(flat.T) - covariance) < 5 * spread / number**0.5).all()


def test_left_out_scores_divide_the_normal_approximation_out(rng, likelihood):
    fit = laplace(5 * kernels(rng)[0], likelihood)
    K, W, _ = dense(fit)
    n_functions = fit.a.shape[1]
    means, covariances = fit.left_out()
    shape = n_functions, N_OBJECTS
    linear = W @ fit.mean.T.ravel() + fit.a.T.ravel()
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
    fit = laplace(K, likelihood, first)
    assert fit.log_evidence == pytest.approx(laplace(K, likelihood).log_evidence, abs=1e-4)


def test_two_classes_by_softmax_are_one_function_of_twice_the_variance(rng):
    codes = np.arange(N_OBJECTS) % 2
    K = kernels(rng)[0]
    two = laplace(K, Softmax(codes, 2))
    one = laplace(2 * K, Logistic(codes))
    assert np.allclose(two.mean[:, 1] - two.mean[:, 0], one.mean[:, 0], atol=1e-6)
    assert two.log_evidence == pytest.approx(one.log_evidence, abs=1e-8)


def test_log_ratios_are_those_of_dense_densities(rng, likelihood):
    fit = propagated(5 * kernels(rng)[0], likelihood)
    root, n_functions = cholesky(fit.K), fit.a.shape[1]
    normal, noise = rng.standard_normal((2, *fit.a.shape, 4))
    v = fit.draw(root, normal, noise)
    _, _, covariance = dense(fit)
    approximation = multivariate_normal(fit.mean.T.ravel(), covariance, allow_singular=True)
    prior = multivariate_normal(np.zeros(len(covariance)), stacked(fit.K, n_functions))
    for draw, ratio in enumerate(fit.log_ratios(root, v)):
        f = root @ v[..., draw]
        flat = f.T.ravel()
        expected = likelihood.log_density(f).sum() + prior.logpdf(flat)
        assert ratio == pytest.approx(expected - approximation.logpdf(flat), abs=1e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_the_evidence_is_nearly_exact_and_ratios_estimate_it(rng, likelihood, scale):
    K = scale * kernels(rng)[0]
    best = propagated(K, likelihood)
    root, number = cholesky(K), 20_000
    # Evidence is the mean of the likelihood over the prior.
    f = product(root, rng.standard_normal((*likelihood.shape, 400_000)))
    likelihoods = np.exp(likelihood.log_density(f.transpose(2, 0, 1)).sum(axis=1))
    evidence = likelihoods.mean()
    error = likelihoods.std() / len(likelihoods) ** 0.5 / evidence
    normal, noise = rng.standard_normal((2, *likelihood.shape, number))
    ratios = best.log_ratios(root, best.draw(root, normal, noise))
    estimate = logsumexp(ratios) - np.log(number)
    own = np.exp(ratios - estimate).std() / number**0.5
    assert abs(estimate - np.log(evidence)) < 4 * np.hypot(error, own)
    allowed = 0.02 if likelihood.shape[1] == 1 else 0.1
    assert abs(best.log_evidence - np.log(evidence)) < allowed + 4 * error
    # Laplace's is off by more.
    at_mode = laplace(K, likelihood).log_evidence
    assert scale < 10 or abs(at_mode - np.log(evidence)) > 0.2


def test_many_classes_have_nearly_the_exact_evidence(rng):
    likelihood = Softmax(np.array([0, 1, 2, 2, 5]), 6)
    K = 5 * kernels(rng)[0][:5, :5]
    f = product(cholesky(K), rng.standard_normal((*likelihood.shape, 100_000)))
    evidence = np.exp(likelihood.log_density(f.transpose(2, 0, 1)).sum(axis=1)).mean()
    assert propagated(K, likelihood).log_evidence == pytest.approx(np.log(evidence), abs=0.2)


def test_sites_give_the_moments_of_the_true_likelihood(rng):
    likelihood = Logistic(np.arange(N_OBJECTS) % 2)
    fit = propagated(8 * kernels(rng)[0], likelihood)
    variance = fit.covariances()[:, 0, 0]
    # The object's site is divided out, and its likelihood put in.
    d, b = fit.sites.d[:, 0], linear_terms(fit)[:, 0]
    cavity = 1 / (1 / variance - d)
    centre = cavity * (fit.mean[:, 0] / variance - b)
    grid = np.linspace(-12, 12, 4001)[:, None] * cavity**0.5 + centre
    density = likelihood.log_density(grid[..., None]) - (grid - centre) ** 2 / cavity / 2
    mass = np.exp(density - logsumexp(density, axis=0))
    mean = (mass * grid).sum(0)
    assert np.allclose(mean, fit.mean[:, 0], atol=0.03)
    assert np.allclose((mass * (grid - mean) ** 2).sum(0), variance, rtol=0.03)


def test_the_evidence_does_not_depend_on_where_the_search_begins(rng, likelihood):
    K = 20 * kernels(rng)[0]
    other = laplace(kernels(rng)[1], likelihood)
    of_sites = partial(GaussianScores.of_sites, K, likelihood)
    found = expectation_propagation(of_sites, other.sites.d, linear_terms(other))
    assert found.log_evidence == pytest.approx(propagated(K, likelihood).log_evidence, abs=0.1)


def test_many_objects_are_computed_in_blocks(monkeypatch, rng, likelihood):
    K = 5 * kernels(rng)[0]
    whole = propagated(K, likelihood)
    monkeypatch.setattr(expectation_propagation_module, "BLOCK_NUMBERS", 2000)
    parts = propagated(K, likelihood)
    assert parts.log_evidence == pytest.approx(whole.log_evidence, abs=1e-8)


def test_scores_without_bounds_have_no_evidence(rng):
    assert propagated(1e18 * kernels(rng)[0], Logistic(np.arange(N_OBJECTS) % 2)) is None


def test_an_approximation_is_made_again_without_its_matrices(rng, likelihood):
    best = propagated(5 * kernels(rng)[0], likelihood)
    again = GaussianScores.with_matrices(best.K, likelihood, *best.without_matrices())
    assert np.allclose(again.mean, best.mean)
    assert again.curvature.log_det == pytest.approx(best.curvature.log_det)


def test_sites_have_the_diagonal_that_they_are_made_of():
    diagonal = np.array([[0.2, 0.1, 0.15], [0.0, 0.0, 0.0]])
    sites = Sites.of_diagonal(diagonal)
    assert np.allclose(np.einsum("ncc->nc", sites.matrices()), diagonal, atol=1e-6)
    assert Sites.of_diagonal(diagonal[:, :1]).d == pytest.approx(diagonal[:, :1], abs=1e-6)


def test_a_covariance_without_a_factor_raises(likelihood):
    with pytest.raises(NotPositiveDefiniteError):
        laplace(-5 * np.eye(N_OBJECTS), likelihood)
