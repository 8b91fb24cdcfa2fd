"""The declaration against explicit densities, the basis of Theorem 2, and its input checks."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import kernelzoo as kz
from family import assert_ks
from kernelzoo.inference.engine.groups import log_density

VARIANTS = [False, True]


def kernels(n=7, n1=4, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 2))
    theta = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2)
    labels = np.arange(n1) % 2
    return theta, (theta[:n1, :n1] + np.equal.outer(labels, labels)) / 2


def whole_basis(model):
    lower = np.zeros((model.n_test, model.n_train))
    return np.block([[model.C1, model.C1 @ model.coefficients.T], [lower, model.C2]])


def test_the_basis_has_the_properties_of_theorem_2():
    theta, K11 = kernels()
    model = kz.DiagonalWishartCompletion(theta, K11)
    C = whole_basis(model)
    np.testing.assert_allclose(C.T @ C, theta, atol=1e-12)
    np.testing.assert_allclose((model.C1.T * model.w) @ model.C1, K11, atol=1e-12)
    np.testing.assert_allclose(model.K11_values, K11, atol=1e-12)
    np.testing.assert_allclose(model.theta, theta, atol=1e-12)
    # K11 is the mean of A11 and a positive semidefinite matrix: W11 = (I + Lambda1) / 2.
    assert (model.w >= 0.5 - 1e-12).all()
    assert model.tau == pytest.approx(1.2 * 4 / model.w.sum())
    assert model.r == 8


def test_the_basis_survives_a_nearly_singular_kernel():
    theta, _ = kernels()
    smallest = np.linalg.eigvalsh(theta)[0]
    near = theta - (smallest - 1e-11) * np.eye(7)
    labels = np.array([0, 1, 0, 1])
    K11 = (near[:4, :4] + np.equal.outer(labels, labels)) / 2
    model = kz.DiagonalWishartCompletion(near, K11)
    C = whole_basis(model)
    np.testing.assert_allclose(C.T @ C, near, atol=1e-12)
    np.testing.assert_allclose(model.K11_values, K11, atol=1e-9)


@pytest.mark.parametrize("diagonal", VARIANTS)
def test_density_is_the_explicit_one(diagonal):
    model = kz.DiagonalWishartCompletion.example(diagonal_W22_1=diagonal)
    rng = np.random.default_rng(1)
    lam, delta = rng.gamma(2.0), 1 / rng.gamma(3.0, size=5)
    W21 = rng.normal(size=(2, 3))
    W22_1 = rng.gamma(2.0, size=2) if diagonal else stats.wishart.rvs(5, np.eye(2), random_state=1)
    draws = {"lambda": lam, "delta": delta, "W21": W21, "W22_1": W22_1}
    expected = (
        stats.gamma.logpdf(lam, model.zeta, scale=1 / model.tau)
        + stats.invgamma.logpdf(delta, model.eta, scale=lam).sum()
        + stats.wishart.logpdf(np.diag(model.w), model.r, np.diag(delta[:3]))
        + stats.norm.logpdf(W21, 0, np.sqrt(np.outer(delta[3:], model.w))).sum()
    )
    if diagonal:
        expected += stats.gamma.logpdf(W22_1, (model.r - 3) / 2, scale=2 * delta[3:]).sum()
    else:
        expected += stats.wishart.logpdf(W22_1, model.r - 3, np.diag(delta[3:]))
    found = log_density(model, {name: np.asarray(value)[None] for name, value in draws.items()})
    # pm.Gamma rounds logarithms of its constants to single precision.
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("diagonal", VARIANTS)
def test_prior_draws_obey_the_whole_model(diagonal):
    """K = C'WC is positive definite; W21, W11 and the diagonal of W have their laws given delta."""
    model = kz.DiagonalWishartCompletion.example(diagonal_W22_1=diagonal)
    prior = pm.sample_prior_predictive(200, model=model, random_seed=1)
    K11 = model.C1.T @ prior["prior_predictive"]["W11"].values[0] @ model.C1
    K21, K22 = prior["prior"]["K21"].values[0], prior["prior"]["K22"].values[0]
    K = np.block([[K11, K21.mT], [K21, K22]])
    assert (np.linalg.eigvalsh(K) > 0).all()
    C_inverse = np.linalg.inv(whole_basis(model))
    W = C_inverse.T @ K @ C_inverse
    np.testing.assert_allclose(W[:, :3, :3], prior["prior_predictive"]["W11"].values[0], atol=1e-6)
    np.testing.assert_allclose(W[:, 3:, :3], prior["prior"]["W21"].values[0], atol=1e-6)
    # W_jj / delta_j is chi-square with r degrees of freedom, training and test objects alike.
    ratio = np.diagonal(W, axis1=1, axis2=2) / prior["prior"]["delta"].values[0]
    for column in ratio.T:
        assert_ks(column, stats.chi2(model.r).cdf)


def test_a_stack_stands_for_its_weighted_sum():
    theta, K11 = kernels()
    stack = {"a": theta, "b": np.eye(7)}
    weighted = kz.DiagonalWishartCompletion(stack, K11, weights=[0.5, 0.25])
    C = whole_basis(weighted)
    np.testing.assert_allclose(C.T @ C, 0.5 * theta + 0.25 * np.eye(7), atol=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"K11": -np.eye(4)}, "'K11'.*positive semidefinite"),
        ({"K11": np.eye(7)}, "n2 = 0"),
        ({"K11": np.eye(8)}, "'theta'.*kernel of all objects"),
        ({"K11": np.full((4, 4), np.nan)}, "'K11'"),
        ({"theta": np.full((7, 7), np.nan)}, "'theta'.* finite"),
        ({"theta": np.ones((7, 7))}, "'theta'.*np.eye"),
        ({"theta": np.ones((7, 6))}, "'theta'"),
        ({"r": 6.0}, "'r'.*above n - 1"),
        ({"r": np.inf}, "'r'"),
        ({"eta": 0.0}, "'eta'"),
        ({"zeta": -1.0}, "'zeta'"),
        ({"tau": 0.0}, "'tau'"),
        ({"alpha": np.nan}, "'alpha'"),
    ],
)
def test_bad_input_is_refused(change, message):
    theta, K11 = kernels()
    arguments = {"theta": theta, "K11": K11} | change
    with pytest.raises(ValueError, match=message):
        kz.DiagonalWishartCompletion(**arguments)
