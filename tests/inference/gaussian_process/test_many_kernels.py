import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import dirichlet, gamma, norm

import kernelzoo as kz
from kernelzoo.inference.gaussian_process.hyperparameters import Hyperparameters
from kernelzoo.inference.gaussian_process.inla import FEW_HYPERPARAMETERS, Posterior
from kernelzoo.inference.gaussian_process.log_weights import LogWeights, SkewedProposal

REGRESSION, CLASSIFICATION = kz.GaussianProcessRegression, kz.GaussianProcessClassification
SPARSE = kz.combinations.DirichletWeights(varphi=0.05)


def simulated(n_kernels, n_objects, n_true, seed):
    """Kernels of training objects, and new ones, with a response of the first few."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_kernels, 2 * n_objects, 2))
    squares = (X**2).sum(-1)
    distances = squares[:, :, None] + squares[:, None] - 2 * X @ X.transpose(0, 2, 1)
    K = np.exp(-distances / 10)
    f = (np.sin(1.5 * X[:n_true, :, 0]) + 0.5 * X[:n_true, :, 1]).sum(axis=0)
    f = (f - f.mean()) / f.std()
    targets = f + 0.3 * rng.normal(size=2 * n_objects)
    labels = (rng.random(2 * n_objects) < 1 / (1 + np.exp(-4 * f))).astype(int)
    train, new = slice(None, n_objects), slice(n_objects, None)
    return K[:, train, train], K[:, new, train], targets, labels


def model_of(family, n_kernels=14, varphi=0.05, **options):
    K, _, targets, labels = simulated(n_kernels, 20, 2, 0)
    answer = (targets if family is REGRESSION else labels)[:20]
    rule = kz.combinations.DirichletWeights(varphi=varphi)
    return family(K, answer, combination=rule, **options)


MODELS = {
    "regression": lambda: model_of(REGRESSION),
    "known scale": lambda: model_of(REGRESSION, scale=2.0),
    "classes": lambda: model_of(CLASSIFICATION, varphi=1.0),
    "known weights": lambda: REGRESSION(np.eye(3) + 1, np.arange(3.0), combination="fixed"),
}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_differences(name):
    posterior = Posterior.of(MODELS[name]())
    start = posterior.log_weights.start
    x = start + 0.3 * np.random.default_rng(1).normal(size=len(start))
    for function, point in (
        (posterior.with_gradient_of_x, x),
        (posterior.with_gradient_of_y, posterior.log_weights.y(x)),
    ):
        gradient = function(point)[1]
        for d, slope in enumerate(gradient):
            step = 1e-4 * np.eye(len(point))[d]
            difference = function(point + step)[0] - function(point - step)[0]
            assert slope == pytest.approx(difference / 2e-4, rel=1e-3, abs=1e-3)


def test_coordinates_have_the_density_of_gamma_variables():
    """The log density of y is that of the ratios and of the total, whatever the total is."""
    hyperparameters = Hyperparameters(model_of(REGRESSION, varphi=0.7, scale=2.0, gamma=3.0))
    coordinates = LogWeights(hyperparameters)
    rng = np.random.default_rng(2)
    y = np.log(rng.gamma(0.7, size=14))
    z = coordinates.z(y)
    log_prior, gradient = hyperparameters.log_prior(z)
    weights = np.exp(y) / np.exp(y).sum()
    assert log_prior == pytest.approx(
        dirichlet(np.full(14, 0.7)).logpdf(weights) + np.log(weights).sum()
    )
    # Change of variables: each x_k is normal where w_k is Gamma.
    x = norm.ppf(gamma(0.7).cdf(np.exp(y)))
    assert np.allclose(coordinates.y(x), y)
    of_y, _ = coordinates.of_y(y, log_prior, gradient)
    of_x, _ = coordinates.of_x(x, of_y, np.zeros(14))
    jacobian = norm.logpdf(x).sum() - (gamma(0.7).logpdf(np.exp(y)) + y).sum()
    assert of_x - of_y == pytest.approx(jacobian)


@pytest.mark.parametrize("varphi", [0.02, 0.3])
def test_tiny_weights_have_their_distribution_function(varphi):
    coordinates = LogWeights(Hyperparameters(model_of(REGRESSION, varphi=varphi, gamma=3.0)))
    x = np.linspace(-4, 6, 14)
    log_w = coordinates.y(np.append(x, 0.0))[:-1]
    assert (np.diff(log_w) > 0).all()
    # The others are smaller than any number.
    large = log_w > -600
    assert large.sum() > 9
    assert np.allclose(gamma(varphi).cdf(np.exp(log_w[large])), norm.cdf(x[large]))


def proposal():
    rng = np.random.default_rng(3)
    correlations = np.corrcoef(rng.normal(size=(4, 8)))
    sd = np.array([0.05**-0.5, 0.3, 1.2, 0.7])
    return SkewedProposal(np.array([-5.0, 0.5, 1.0, 2.0]), sd, np.linalg.cholesky(correlations), 3)


def test_the_proposals_density_is_that_of_its_draws():
    mine = proposal()
    points = mine.draw(4096, np.random.default_rng(4))
    # Another density's integral, by importance: normal, wider than the draws are in the middle.
    narrow = norm(points.mean(0), 0.2)
    weights = np.exp(narrow.logpdf(points).sum(axis=1) - mine.log_density(points))
    assert np.mean(weights) == pytest.approx(1.0, abs=4 * np.std(weights) / 4096**0.5)


def test_a_weights_margin_has_the_mode_and_curvature():
    for index in range(3):
        both = proposal()
        one = SkewedProposal(both.mode[[index]], both.sd[[index]], np.eye(1), 1)
        mode, sd = both.mode[index], both.sd[index]
        steps = np.array([-1e-3, 0.0, 1e-3])
        density = one.log_density(mode + steps[:, None])
        assert density[2] == pytest.approx(density[0], abs=1e-6)
        assert -(density[0] + density[2] - 2 * density[1]) / 1e-6 == pytest.approx(sd**-2, rel=1e-3)

        def at(y, one=one):
            return np.exp(one.log_density(np.array([[y]])).item())

        points = [mode - 10, mode]
        total, _ = quad(at, mode - 600, mode + 30, points=points, limit=500)
        assert total == pytest.approx(1.0, abs=1e-4)


def test_few_of_twenty_kernels_have_the_weight():
    K, new, targets, _ = simulated(20, 40, 2, 1)
    model = REGRESSION(K, targets[:40], combination=SPARSE)
    equal = REGRESSION(K, targets[:40], combination="fixed")
    scores = []
    for each in (model, equal):
        assert (Hyperparameters(each).size > FEW_HYPERPARAMETERS) == (each is model)
        result = kz.fit(each, "inla", draws=200, random_seed=1, progressbar=False)
        assert result.attrs["converged"] == "yes"
        predicted = kz.predict(each, result, new, progressbar=False)
        scores.append(kz.scores.held_out(predicted, targets[40:])["log_score"])
        if each is model:
            beta = result["posterior"]["beta"].to_numpy()[0]
            shares = beta[:, :2].sum(axis=1)
            weights = result["variational"]["weight"]
            # Draws of an approximation that ratios cannot correct are equal.
            assert result.attrs["pareto_k"] < 0.7 or np.ptp(weights) == 0
    assert shares.mean() > 0.8
    assert shares.std() > 0.01
    assert scores[0] > scores[1] + 0.1


def test_the_mode_alone_is_a_result_of_many_kernels():
    K, _, _, labels = simulated(20, 40, 2, 1)
    model = CLASSIFICATION(K, labels[:40], combination=SPARSE)
    result = kz.fit(model, kz.INLA(integrate=False), draws=20, random_seed=1, progressbar=False)
    beta = result["posterior"]["beta"].to_numpy()[0]
    assert (beta == beta[0]).all()
    assert beta[0, :2].sum() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize("family", [REGRESSION, CLASSIFICATION])
def test_five_of_a_hundred_kernels_have_the_weight(family):
    K, new, targets, labels = simulated(100, 200, 5, 2)
    answer = targets if family is REGRESSION else labels
    scores = {}
    for rule in (SPARSE, "fixed"):
        model = family(K, answer[:200], combination=rule)
        result = kz.fit(model, "inla", draws=200, random_seed=1, progressbar=False)
        assert result.attrs["converged"] == "yes"
        predicted = kz.predict(model, result, new, progressbar=False)
        scores[rule] = kz.scores.held_out(predicted, answer[200:])["log_score"]
        if rule is SPARSE:
            shares = result["posterior"]["beta"].to_numpy()[0][:, :5].sum(axis=1)
            assert shares.mean() > 0.65
    mode = kz.fit(
        family(K, answer[:200], combination=SPARSE),
        kz.INLA(integrate=False),
        draws=2,
        random_seed=1,
        progressbar=False,
    )
    assert mode["posterior"]["beta"].to_numpy()[0, 0, :5].sum() > 0.8
    assert scores[SPARSE] > scores["fixed"] + 0.05
