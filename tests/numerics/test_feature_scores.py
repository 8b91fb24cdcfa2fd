from functools import partial

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from kernelzoo.numerics import feature_precision, feature_scores, gaussian_scores
from kernelzoo.numerics import features as features_module
from kernelzoo.numerics.expectation_propagation import expectation_propagation, linear_terms
from kernelzoo.numerics.feature_scores import FeatureScores, laplace
from kernelzoo.numerics.feature_targets import NormalFeatureScores, ProjectedTargets
from kernelzoo.numerics.features import Features
from kernelzoo.numerics.gaussian_process import NormalRegression, NotPositiveDefiniteError
from kernelzoo.numerics.gaussian_scores import GaussianScores, Sites
from kernelzoo.numerics.likelihoods import Logistic, Softmax

N_OBJECTS = 14


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def K(rng):
    X = rng.normal(size=(N_OBJECTS, 2))
    return np.exp(-((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-6 * np.eye(N_OBJECTS)


@pytest.fixture
def features(K):
    return Features.of_landmarks(K[:, :6], K[:6, :6])


@pytest.fixture(params=[2, 3, 4])
def likelihood(request, rng):
    codes = rng.permutation(np.arange(N_OBJECTS) % request.param)
    return Logistic(codes) if request.param == 2 else Softmax(codes, request.param)


@pytest.fixture
def by_class(monkeypatch):
    """Classes are never factorised together."""
    monkeypatch.setattr(feature_precision, "COUPLED", 0)


def dense_precision(fit):
    """Precision of the weights of all functions together, (C m, C m)."""
    values, n_functions = fit.features.values, fit.W.shape[1]
    each = np.sqrt(fit.scale) * values
    scores = np.stack([np.kron(np.eye(n_functions), row) for row in each])
    D = fit.sites.matrices()
    return np.eye(fit.W.size) + np.einsum("ncx,ncd,ndy->xy", scores, D, scores)


def test_features_of_landmarks_are_in_the_eigenbasis(K):
    landmarks = [3, 0, 7, 9]
    features = Features.of_landmarks(K[:, landmarks], K[np.ix_(landmarks, landmarks)])
    projected = K[:, landmarks] @ np.linalg.solve(K[np.ix_(landmarks, landmarks)], K[landmarks])
    assert np.allclose(features.values @ features.values.T, projected)
    assert np.allclose(features.values.T @ features.values, np.diag(features.squares))
    assert np.allclose(K[:, landmarks] @ features.map, features.values)
    assert np.allclose(features.rotation.T @ features.rotation, np.eye(4))


@pytest.mark.parametrize("how", ["landmarks", "gram"])
def test_features_of_all_objects_are_the_kernel(K, how):
    features = Features.of_landmarks(K, K) if how == "landmarks" else Features.of_gram(K)
    assert np.allclose(features.values @ features.values.T, K, atol=1e-12)
    assert np.allclose(features.values.T @ features.values, np.diag(features.squares))
    assert np.allclose(K @ features.map, features.values, atol=1e-8)


def test_a_gram_matrix_of_a_lower_rank_has_as_many_features(rng):
    X = rng.normal(size=(N_OBJECTS, 3))
    assert Features.of_gram(X @ X.T).values.shape == (N_OBJECTS, 3)


def test_landmarks_without_a_factor_raise(K):
    with pytest.raises(NotPositiveDefiniteError):
        Features.of_landmarks(K, -K)


@pytest.mark.parametrize("scale", [0.3, 30.0])
def test_with_all_objects_laplace_is_that_of_the_gram_matrix(K, likelihood, scale):
    fit = laplace(Features.of_landmarks(K, K), likelihood, scale)
    exact = gaussian_scores.laplace(scale * K, likelihood)
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=1e-6)
    assert np.allclose(fit.mean, exact.mean, atol=1e-4)


def test_the_mode_has_no_gradient_and_the_evidence_is_dense(features, likelihood):
    fit = laplace(features, likelihood, 5.0)
    residual = likelihood.observed - likelihood.probabilities(fit.mean)
    assert np.allclose(5**0.5 * features.values.T @ residual, fit.W, atol=1e-4)
    assert np.allclose(fit.mean, 5**0.5 * features.values @ fit.W)
    joint = likelihood.log_density(fit.mean).sum() - 0.5 * (fit.W**2).sum()
    expected = joint - 0.5 * np.linalg.slogdet(dense_precision(fit))[1]
    assert fit.log_evidence == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("n_functions", [3, 4])
def test_conjugate_gradients_find_the_mode(features, n_functions, by_class):
    likelihood = Softmax(np.arange(N_OBJECTS) % n_functions, n_functions)
    fit = laplace(features, likelihood, 5.0)
    residual = likelihood.observed - likelihood.probabilities(fit.mean)
    assert np.allclose(5**0.5 * features.values.T @ residual, fit.W, atol=3e-3)
    # By class, the determinant is that of the diagonal blocks.
    shape = features.values.shape[1], n_functions
    A = dense_precision(fit).reshape(*shape[::-1], *shape[::-1])
    blocks = sum(np.linalg.slogdet(A[c, :, c])[1] for c in range(n_functions))
    assert fit.precision.log_det == pytest.approx(blocks)


@pytest.mark.parametrize("start", ["at zero", "elsewhere"])
def test_conjugate_gradients_are_few(start, by_class, rng, monkeypatch):
    codes = np.arange(200) % 5
    X = rng.normal(size=(200, 2)) + 3 * rng.normal(size=(5, 2))[codes]
    K = np.exp(-0.3 * ((X[:, None] - X[None]) ** 2).sum(-1))
    features, likelihood = Features.of_gram(K), Softmax(codes, 5)
    # What all classes share, which the likelihood does not know, has to vanish.
    W = rng.normal(size=(len(features.squares), 5)) if start == "elsewhere" else None
    curvature, number = Features.curvature, []
    monkeypatch.setattr(
        Features, "curvature", lambda *given, exact: number.append(1) or curvature(*given)
    )
    fit = laplace(features, likelihood, 1e3, W)
    residual = likelihood.observed - likelihood.probabilities(fit.mean)
    slope = 1e3**0.5 * features.values.T @ residual - fit.W
    assert np.abs(slope).max() < 2e-3
    # Without the zero sums over classes 120, by the diagonal 800, which end short of the mode.
    assert len(number) < 100


def test_a_mode_computes_no_precision(features, likelihood, monkeypatch):
    monkeypatch.setattr(feature_precision, "COUPLED", 0)
    squares, solved = Features.weighted_square, []
    fit = laplace(features, likelihood, 5.0)
    monkeypatch.setattr(
        Features, "weighted_square", lambda *given: solved.append(1) or squares(*given)
    )
    assert not {"factor", "factors"} & vars(fit.precision).keys()
    for _ in range(2):
        assert np.isfinite(fit.log_evidence)
        assert len(solved) == (1 if likelihood.shape[1] == 1 else likelihood.shape[1])


@pytest.mark.parametrize("weighted", [3, 12])
def test_weighted_squares_leave_objects_without_weight(features, rng, weighted):
    weights = np.zeros(N_OBJECTS)
    weights[rng.permutation(N_OBJECTS)[:weighted]] = rng.random(weighted)
    expected = features.values.T @ (weights[:, None] * features.values)
    assert np.allclose(features.weighted_square(weights), expected)


def test_the_heaviest_objects_have_their_share():
    kept = feature_precision._heaviest(np.array([0.1, 0.5, 0.0, 0.35, 0.05]), 0.8)
    assert kept.tolist() == [0.0, 0.5, 0.0, 0.35, 0.0]


def test_a_solution_by_gradients_is_that_of_the_dense_precision(features, by_class, rng):
    fit = laplace(features, Softmax(np.arange(N_OBJECTS) % 3, 3), 5.0)
    b = rng.normal(size=fit.W.shape)
    A = dense_precision(fit)
    assert isinstance(fit.precision, feature_precision.ByClass)
    assert np.allclose(A @ fit.precision.solve(b).T.ravel(), b.T.ravel(), atol=1e-5)


def test_a_solution_is_that_of_the_dense_precision(features, likelihood, rng):
    fit = laplace(features, likelihood, 5.0)
    b = rng.normal(size=(2, *fit.W.shape))
    A = dense_precision(fit)
    for given, found in zip(b, fit.precision.solve(b), strict=True):
        assert np.allclose(A @ found.T.ravel(), given.T.ravel())


def test_draws_have_the_mean_and_covariance_of_the_approximation(features, likelihood, rng):
    fit, number = laplace(features, likelihood, 5.0), 20_000
    flat = fit.draw(number, rng).transpose(0, 2, 1).reshape(number, -1)
    covariance = np.linalg.inv(dense_precision(fit))
    sd = np.sqrt(covariance.diagonal())
    # Five standard errors of each mean and covariance.
    assert (abs(flat.mean(0) - fit.W.T.ravel()) < 5 * sd / number**0.5).all()
    spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
    assert (abs(np.cov(flat.T) - covariance) < 5 * spread / number**0.5).all()


def test_draws_by_class_have_the_covariance_of_each_class(features, by_class, rng):
    fit, number = laplace(features, Softmax(np.arange(N_OBJECTS) % 3, 3), 5.0), 20_000
    W = fit.draw(number, rng)
    size = fit.W.shape[0]
    A = dense_precision(fit).reshape(3, size, 3, size)
    for c in range(3):
        covariance = np.linalg.inv(A[c, :, c])
        sd = np.sqrt(covariance.diagonal())
        spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
        assert (abs(np.cov(W[..., c].T) - covariance) < 5 * spread / number**0.5).all()


def test_left_out_scores_of_one_function_are_those_of_the_gram_matrix(K, rng):
    likelihood = Logistic(rng.integers(2, size=N_OBJECTS))
    mean, variances = laplace(Features.of_gram(K), likelihood, 5.0).left_out()
    expected, covariances = gaussian_scores.laplace(5 * K, likelihood).left_out()
    assert np.allclose(mean, expected, atol=1e-5)
    assert np.allclose(variances, covariances[..., 0], atol=1e-5)


def test_left_out_scores_of_a_class_are_given_the_others(features):
    likelihood = Softmax(np.arange(N_OBJECTS) % 3, 3)
    fit = laplace(features, likelihood, 5.0)
    means, variances = fit.left_out()
    each = 5**0.5 * features.values
    p = likelihood.probabilities(fit.mean)
    for n in (0, 5):
        for c in range(3):
            weights = (p * (1 - p))[:, c]
            linear = weights * fit.mean[:, c] + (likelihood.observed - p)[:, c]
            rest = np.arange(N_OBJECTS) != n
            A = np.eye(each.shape[1]) + each[rest].T @ (weights[rest, None] * each[rest])
            centre = np.linalg.solve(A, each[rest].T @ linear[rest])
            assert means[n, c] == pytest.approx(each[n] @ centre, abs=1e-4)
            assert variances[n, c] == pytest.approx(each[n] @ np.linalg.solve(A, each[n]))


#: Groups of one to five objects, not in their order.
GROUPS = np.array([3, 0, 1, 1, 2, 0, 3, 3, 4, 2, 3, 3, 5, 2])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_left_out_groups_leave_their_sites_out(features, n_classes):
    """Of each class given the others, as dense solutions without the group's objects have it."""
    codes = np.arange(N_OBJECTS) % n_classes
    likelihood = Logistic(codes) if n_classes == 2 else Softmax(codes, n_classes)
    fit = laplace(features, likelihood, 5.0)
    means, variances = fit.left_out(GROUPS)
    each = 5**0.5 * features.values
    p = likelihood.probabilities(fit.mean)
    for group in range(6):
        rest = group != GROUPS
        for c in range(p.shape[1]):
            weights = (p * (1 - p))[:, c]
            linear = weights * fit.mean[:, c] + (likelihood.observed - p)[:, c]
            A = np.eye(each.shape[1]) + each[rest].T @ (weights[rest, None] * each[rest])
            centre = np.linalg.solve(A, each[rest].T @ linear[rest])
            own = each[~rest]
            assert np.allclose(means[~rest, c], own @ centre, atol=1e-4)
            expected = np.einsum("nm,nm->n", own, np.linalg.solve(A, own.T).T)
            assert np.allclose(variances[~rest, c], expected)


def test_left_out_targets_of_groups_are_those_given_the_others(K, rng):
    targets = rng.normal(size=(N_OBJECTS, 3))
    noise = np.array([0.3, 0.7, 0.3])
    fit = NormalFeatureScores(ProjectedTargets(Features.of_gram(K), targets), 2.0, noise)
    means, variances = fit.left_out(GROUPS)
    for group in range(6):
        new = group == GROUPS
        for output, each in enumerate(noise):
            joint = 2 * K + each * np.eye(N_OBJECTS)
            gain = np.linalg.solve(joint[np.ix_(~new, ~new)], joint[np.ix_(~new, new)]).T
            expected = np.diag(joint[np.ix_(new, new)] - gain @ joint[np.ix_(~new, new)])
            assert np.allclose(means[new, output], gain @ targets[~new, output], atol=1e-6)
            assert np.allclose(variances[new, output], expected, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_objects_that_are_their_own_groups_are_left_out_alone(features, n_classes, rng):
    codes = np.arange(N_OBJECTS) % n_classes
    likelihood = Logistic(codes) if n_classes == 2 else Softmax(codes, n_classes)
    targets = ProjectedTargets(features, rng.normal(size=(N_OBJECTS, 2)))
    for fit in (
        laplace(features, likelihood, 5.0),
        NormalFeatureScores(targets, 2.0, np.array([0.3, 0.7])),
    ):
        found = fit.left_out(rng.permutation(N_OBJECTS))
        for one, other in zip(found, fit.left_out(), strict=True):
            assert np.allclose(one, other)


def test_scores_of_the_training_objects_are_the_posterior_ones(K, rng):
    likelihood = Logistic(rng.integers(2, size=N_OBJECTS))
    features = Features.of_gram(K)
    mean, variances = laplace(features, likelihood, 5.0).scores_of(K @ features.map)
    exact = gaussian_scores.laplace(5 * K, likelihood)
    assert np.allclose(mean, exact.mean, atol=1e-5)
    assert np.allclose(variances[:, 0], exact.curvature.covariances()[:, 0, 0], atol=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1000.0])
def test_the_start_does_not_matter(features, likelihood, factor):
    start = factor * laplace(features, likelihood, 1.0).W
    fit = laplace(features, likelihood, 30.0, start)
    again = laplace(features, likelihood, 30.0)
    assert fit.log_evidence == pytest.approx(again.log_evidence, abs=1e-4)


def test_many_objects_begin_at_the_mode_of_some(features, likelihood, monkeypatch):
    whole, seen = laplace(features, likelihood, 5.0), []
    monkeypatch.setattr(feature_scores, "MANY_OBJECTS", N_OBJECTS)
    monkeypatch.setattr(feature_scores, "FIRST", 7)
    rows_of = Features.of_rows
    monkeypatch.setattr(
        Features, "of_rows", lambda self, rows: seen.append(rows) or rows_of(self, rows)
    )
    squares, numbers = Features.weighted_square, set()
    monkeypatch.setattr(
        Features,
        "weighted_square",
        lambda self, weights: numbers.add(len(weights)) or squares(self, weights),
    )
    fit = laplace(features, likelihood, 5.0)
    assert [len(rows) for rows in seen] == [7]
    # Steps have the precision of these objects alone.
    assert numbers == {7}
    assert fit.log_evidence == pytest.approx(whole.log_evidence, abs=1e-5)


@pytest.mark.parametrize("scale", [10.0, 1e5])
def test_single_precision_finds_the_same(likelihood, scale, rng, monkeypatch):
    X = rng.normal(size=(N_OBJECTS, 2))
    K = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1)) + 1e-6 * np.eye(N_OBJECTS)
    exact = laplace(Features.of_gram(K), likelihood, scale)
    monkeypatch.setattr(features_module, "SINGLE_PRECISION_NUMBERS", 0)
    fit = laplace(Features.of_gram(K), likelihood, scale)
    assert fit.features.factor.dtype == np.float32
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4)
    assert np.allclose(fit.mean, exact.mean, rtol=1e-3, atol=1e-3)


def test_a_precision_of_contrasts_keeps_the_prior_of_their_sum(features, rng):
    sites = Sites.at(rng.dirichlet(np.ones(3), size=N_OBJECTS))
    precision = feature_precision.OfContrasts(features, sites, 100.0)
    shared = np.repeat(rng.normal(size=(6, 1)), 3, axis=1)
    assert np.allclose(precision.solve(shared), shared)


@pytest.fixture
def targets(rng):
    return rng.normal(size=(N_OBJECTS, 3))


NOISE = np.array([0.3, 0.3, 0.1])


def test_normal_targets_have_the_density_of_scipy(features, targets):
    fit = NormalFeatureScores(ProjectedTargets(features, targets), 2.0, NOISE)
    K = 2 * features.values @ features.values.T
    laws = [multivariate_normal(cov=K + v * np.eye(N_OBJECTS)) for v in NOISE]
    expected = sum(law.logpdf(t) for law, t in zip(laws, targets.T, strict=True))
    assert fit.log_evidence == pytest.approx(expected, abs=1e-9)


def test_normal_targets_are_those_of_the_gram_matrix(K, targets):
    fit = NormalFeatureScores(ProjectedTargets(Features.of_gram(K), targets), 2.0, NOISE)
    exact = NormalRegression(2 * K, targets, NOISE)
    assert fit.log_evidence == pytest.approx(exact.log_evidence, abs=1e-9)
    for found, expected in zip(fit.left_out(), exact.left_out(), strict=True):
        assert np.allclose(found, expected, atol=1e-6)


def test_gradients_of_normal_targets_are_those_of_differences(features, targets):
    of, step = ProjectedTargets(features, targets), 1e-6

    def evidence(scale, noise):
        return NormalFeatureScores(of, scale, noise).log_evidence

    of_scale, of_noise = NormalFeatureScores(of, 2.0, NOISE).gradient()
    slope = (evidence(2 + step, NOISE) - evidence(2 - step, NOISE)) / (2 * step)
    assert of_scale == pytest.approx(slope, rel=1e-6)
    for output, along in enumerate(step * np.eye(3)):
        slope = (evidence(2.0, NOISE + along) - evidence(2.0, NOISE - along)) / (2 * step)
        assert of_noise[output] == pytest.approx(slope, rel=1e-6)


def test_draws_of_normal_targets_have_the_posterior_mean_and_covariance(features, targets, rng):
    number = 20_000
    fit = NormalFeatureScores(ProjectedTargets(features, targets), 2.0, NOISE)
    W = fit.draw(number, rng)
    each = 2**0.5 * features.values
    for output, variance in enumerate(NOISE):
        covariance = np.linalg.inv(np.eye(each.shape[1]) + each.T @ each / variance)
        mean = covariance @ each.T @ targets[:, output] / variance
        sd = np.sqrt(covariance.diagonal())
        assert (abs(W[..., output].mean(0) - mean) < 5 * sd / number**0.5).all()
        spread = np.sqrt(covariance**2 + np.outer(sd**2, sd**2))
        assert (abs(np.cov(W[..., output].T) - covariance) < 5 * spread / number**0.5).all()


def kernels(seed, direction):
    """Two kernels (N, M) and (M, M) on a line between two pairs."""
    X = np.random.default_rng(seed).normal(size=(N_OBJECTS, 2))
    squares = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = np.exp(-squares) + direction * np.exp(-3 * squares)
    K_nm = K[:, :5].copy()
    # The kernels of landmarks and objects are independent arguments.
    K_nm[5:] *= 1 + direction
    return K_nm, K[:5, :5] + (0.1 + direction) * np.eye(5)


def slope_along(gradients, step=1e-5):
    """Derivative of kernels along the direction, weighted by gradients."""
    above, below = kernels(3, step), kernels(3, -step)
    pairs = zip(gradients, above, below, strict=True)
    return sum((each * (one - other)).sum() / (2 * step) for each, one, other in pairs)


@pytest.mark.parametrize("coupled", [True, False])
def test_gradient_of_the_evidence_is_that_of_differences(likelihood, coupled, monkeypatch):
    if not coupled:
        monkeypatch.setattr(feature_precision, "COUPLED", 0)
    monkeypatch.setattr(feature_scores, "NEWTON_NATS", 1e-14)
    scale, step = 4.0, 1e-4

    def fitted(direction):
        return laplace(Features.of_landmarks(*kernels(3, direction)), likelihood, scale)

    fit = fitted(0.0)
    gradients = [scale * each for each in fit.features.gradient(fit.gradient())]
    slope = (fitted(step).log_evidence - fitted(-step).log_evidence) / (2 * step)
    assert slope_along(gradients) == pytest.approx(slope, rel=1e-4)
    # The derivative with respect to the scale is that of all kernels together.
    pulled = (fit.gradient() * fit.features.values).sum()
    evidence = [
        laplace(fit.features, likelihood, scale + sign * step).log_evidence for sign in (1, -1)
    ]
    assert pulled == pytest.approx((evidence[0] - evidence[1]) / (2 * step), rel=1e-4)


def test_gradient_of_normal_targets_is_that_of_differences(targets):
    def fitted(direction):
        features = Features.of_landmarks(*kernels(3, direction))
        return NormalFeatureScores(ProjectedTargets(features, targets), 2.0, NOISE)

    fit, step = fitted(0.0), 1e-5
    gradients = fit.of.features.gradient(fit.gradient_of_covariance())
    slope = (fitted(step).log_evidence - fitted(-step).log_evidence) / (2 * step)
    assert 2.0 * slope_along(gradients) == pytest.approx(slope, rel=1e-6)


def test_covariances_of_scores_are_dense(features, likelihood):
    fit = laplace(features, likelihood, 5.0)
    n_functions = likelihood.shape[1]
    covariance = np.linalg.inv(dense_precision(fit))
    for n, found in enumerate(fit.covariances()):
        scores = np.kron(np.eye(n_functions), 5**0.5 * features.values[n])
        assert np.allclose(found, scores @ covariance @ scores.T)


def propagated(features, likelihood, scale):
    start = laplace(features, likelihood, scale)
    of_sites = partial(FeatureScores.of_sites, features, likelihood, scale)
    return expectation_propagation(of_sites, start.sites.d, linear_terms(start))


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_propagation_is_that_of_the_gram_matrix(K, likelihood, scale):
    best = propagated(Features.of_landmarks(K, K), likelihood, scale)
    start = gaussian_scores.laplace(scale * K, likelihood)
    of_sites = partial(GaussianScores.of_sites, scale * K, likelihood)
    exact = expectation_propagation(of_sites, start.sites.d, linear_terms(start))
    assert best.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4)
    assert np.allclose(best.mean, exact.mean, atol=1e-3)
    again = FeatureScores.with_matrices(best.features, likelihood, scale, *best.without_matrices())
    assert np.allclose(again.mean, best.mean)
    assert again.log_det == pytest.approx(best.log_det)


def test_log_ratios_are_those_of_dense_densities(features, likelihood, rng):
    fit = propagated(features, likelihood, 5.0)
    W, ratios = fit.log_ratios(rng.standard_normal((4, *fit.W.shape)))
    mean, covariance = fit.W.T.ravel(), np.linalg.inv(dense_precision(fit))
    approximation = multivariate_normal(mean, covariance)
    prior = multivariate_normal(np.zeros(len(mean)))
    for each, ratio in zip(W, ratios, strict=True):
        log_likelihood = likelihood.log_density(5**0.5 * features.values @ each).sum()
        flat = each.T.ravel()
        expected = log_likelihood + prior.logpdf(flat) - approximation.logpdf(flat)
        assert ratio == pytest.approx(expected, abs=1e-8)


def test_ratios_estimate_the_evidence(features, likelihood, rng):
    number = 100_000
    fit = propagated(features, likelihood, 2.0)
    ratios = fit.log_ratios(rng.standard_normal((20_000, *fit.W.shape)))[1]
    estimate = logsumexp(ratios) - np.log(len(ratios))
    prior = rng.standard_normal((number, *fit.W.shape))
    f = 2**0.5 * np.tensordot(prior, features.values, axes=(1, 1)).swapaxes(1, 2)
    likelihoods = np.exp(likelihood.log_density(f).sum(axis=1))
    error = np.hypot(
        likelihoods.std() / likelihoods.mean() / number**0.5,
        np.exp(ratios - estimate).std() / len(ratios) ** 0.5,
    )
    assert abs(estimate - np.log(likelihoods.mean())) < 4 * error


def test_whitened_scores_give_the_scores(K, rng):
    # Two landmarks are copies: there are fewer features than landmarks.
    rows = [0, 1, 1, 2]
    K_mm = K[np.ix_(rows, rows)] + 1e-14 * np.eye(4)
    features = Features.of_landmarks(K[:, rows], K_mm)
    assert features.values.shape[1] == 3
    W, normal = rng.normal(size=(5, 3, 2)), rng.normal(size=(5, 4, 2))
    v = features.whitened(W, normal)
    weights = np.linalg.solve(np.linalg.cholesky(K_mm).T, v)
    assert np.allclose(K[:, rows] @ weights, features.values @ W, atol=1e-4)
    null = np.eye(4) - features.rotation @ features.rotation.T
    assert np.allclose(null @ v, null @ normal)
