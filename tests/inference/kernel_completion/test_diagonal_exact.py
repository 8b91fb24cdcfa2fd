"""Exact posterior of the simplified model: laws, moments and evidence by other means."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from scipy.special import gamma

import kernelzoo as kz
from family import assert_ks, assert_mean
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.kernel_completion.diagonal import (
    LogLambda,
    sample_diagonal_completion,
)

QUIET = {"random_seed": 1, "progressbar": False}
RUN = Run(progressbar=False)
#: Not the number of training objects, which is that of the example.
ZETA = 2.2
ALL = ["lambda", "delta", "W21", "W22_1", "K21", "K22"]


def completed(model, draws):
    """K21 and K22 (draw, ...), blocks of C'WC."""
    W11, W21, W22_1 = np.diag(model.w), draws["W21"], draws["W22_1"]
    W22 = W22_1[:, :, None] * np.eye(model.n_test) if model.diagonal_W22_1 else W22_1
    W22 = W22 + (W21 / model.w) @ W21.mT
    rows = model.coefficients @ model.C1.T
    crossed = model.C2.T @ W21 @ rows.T
    K21 = (rows @ W11 + model.C2.T @ W21) @ model.C1
    K22 = rows @ W11 @ rows.T + crossed + crossed.mT + model.C2.T @ W22 @ model.C2
    return {"K21": K21, "K22": K22}


@pytest.fixture(scope="module", params=[False, True], ids=["full", "diagonal"])
def fitted(request):
    model = kz.DiagonalWishartCompletion.example(diagonal_W22_1=request.param, zeta=ZETA)
    return model, kz.fit(model, "exact", draws=8000, var_names=ALL, **QUIET)


def likelihood(model, lam):
    """p(W11 | lambda) with each delta integrated out by quadrature, constants of Wishart kept."""
    delta_free = stats.wishart.logpdf(np.diag(model.w), model.r, np.eye(len(model.w)))
    delta_free += model.w.sum() / 2
    power, constant = model.eta + model.r / 2 - 1, lam**model.eta / gamma(model.eta)

    def integrand(s, w):
        return s**power * np.exp(-(lam + w / 2) * s)

    factors = [
        constant * integrate.quad(integrand, 0, np.inf, (w,), epsabs=0, epsrel=1e-10)[0]
        for w in model.w
    ]
    return np.exp(delta_free) * np.prod(factors)


@pytest.fixture(scope="module")
def lambda_grid():
    """Posterior of lambda on a grid by brute force, and the evidence."""
    model = kz.DiagonalWishartCompletion.example(zeta=ZETA)
    x = np.linspace(-9, 5, 400)
    lam = np.exp(x)
    prior = stats.gamma.pdf(lam, model.zeta, scale=1 / model.tau) * lam
    density = prior * [likelihood(model, value) for value in lam]
    return x, density, np.sum(density) * (x[1] - x[0])


def test_evidence_is_that_of_brute_force(fitted, lambda_grid):
    model, result = fitted
    _, _, total = lambda_grid
    assert result.attrs["log_evidence"] == pytest.approx(np.log(total), abs=1e-8)
    assert kz.log_evidence(model) == result.attrs["log_evidence"]


@pytest.mark.parametrize(
    "hyperparameters",
    [{}, {"eta": 0.6, "zeta": 0.05}, {"tau": 1e-6}, {"eta": 300.0, "zeta": 1e3}],
    ids=["example", "one tail much longer", "vague", "narrow"],
)
def test_draws_have_the_law_of_the_quadrature(hyperparameters):
    model = kz.DiagonalWishartCompletion.example(**hyperparameters)
    posterior = LogLambda(model)
    x, p = posterior.nodes
    draws = posterior.sample(20_000, np.random.default_rng(0))
    assert_ks(draws, lambda values: np.interp(values, x, np.cumsum(p) - p / 2))
    with pytest.raises(AssertionError):
        assert_ks(draws + 0.1 * draws.std(), lambda v: np.interp(v, x, np.cumsum(p) - p / 2))


def test_lambda_has_its_marginal_law(fitted, lambda_grid):
    _, result = fitted
    x, density, total = lambda_grid
    cdf = np.cumsum(density) * (x[1] - x[0]) / total
    draws = np.log(result["posterior"]["lambda"].values.ravel())
    # The midpoint rule's running sum is the distribution function half a step to the right.
    half = (x[1] - x[0]) / 2
    assert_ks(draws, lambda v: np.interp(v, x + half, cdf))


def test_delta_given_lambda_is_inverse_gamma(fitted):
    model, result = fitted
    posterior = result["posterior"].isel(chain=0)
    lam = posterior["lambda"].values
    for j, delta in enumerate(posterior["delta"].values.T):
        observed = j < model.n_train
        shape = model.eta + (model.r / 2 if observed else 0)
        rate = lam + (model.w[j] / 2 if observed else 0)
        assert_ks(rate / delta, stats.gamma(shape).cdf)
        with pytest.raises(AssertionError):
            assert_ks(rate / delta, stats.gamma(shape + 0.5).cdf)


def test_missing_blocks_given_delta(fitted):
    model, result = fitted
    posterior = result["posterior"].isel(chain=0)
    delta = posterior["delta"].values[:, 3:]
    z = posterior["W21"].values / np.sqrt(delta[:, :, None] * model.w)
    for column in z.reshape(len(z), -1).T:
        assert_ks(column, stats.norm.cdf)
    W22_1 = posterior["W22_1"].values
    diagonal = W22_1 if model.diagonal_W22_1 else np.diagonal(W22_1, axis1=1, axis2=2)
    for column in (diagonal / delta).T:
        assert_ks(column, stats.chi2(model.r - 3).cdf)
    if not model.diagonal_W22_1:
        correlation = W22_1[:, 0, 1] / np.sqrt(W22_1[:, 0, 0] * W22_1[:, 1, 1])
        # Of m = r - n1 degrees of freedom: its square is beta(1/2, (m - 1)/2).
        assert_ks(correlation**2, stats.beta(0.5, (model.r - 4) / 2).cdf)
        assert_mean(correlation, 0.0)


@pytest.mark.parametrize("diagonal", [False, True])
def test_moments_are_those_of_the_draws(diagonal):
    """With an eta large enough for squared deviations to have a variance of their own."""
    small, scales = kz.DiagonalWishartCompletion.example(), np.array([0.7, 1.0, 1.6])
    K11 = small.K11_values * np.outer(scales, scales)
    model = kz.DiagonalWishartCompletion(
        small.theta, K11, r=9.5, eta=12.0, zeta=ZETA, diagonal_W22_1=diagonal
    )
    answer = sample_diagonal_completion(model, RUN)
    draws = answer.sample(40_000, np.random.default_rng(1))
    for name, values in completed(model, draws).items():
        mean, sd = answer.moments[name]
        assert_mean(values, mean)
        assert_mean((values - mean) ** 2, sd**2)
        # A deviation that is 5 % off is noticed.
        with pytest.raises(AssertionError):
            assert_mean((values - mean) ** 2, (1.05 * sd) ** 2)


def test_blocks_are_those_of_the_declaration(fitted):
    model, result = fitted
    posterior = result["posterior"].isel(chain=0, draw=slice(20))
    for name, values in completed(model, {k: posterior[k].values for k in ALL[:4]}).items():
        np.testing.assert_allclose(posterior[name], values, rtol=1e-9, atol=1e-12)


def test_moments_in_closed_form_need_no_draws(fitted):
    """A result holds the closed forms, not what few draws say."""
    model, result = fitted
    answer = sample_diagonal_completion(model, RUN)
    for name, (mean, sd) in answer.moments.items():
        np.testing.assert_array_equal(result["moments"][f"{name}_mean"], mean)
        np.testing.assert_array_equal(result["moments"][f"{name}_sd"], sd)


@pytest.mark.parametrize(
    ("eta", "known"),
    [(0.4, {}), (0.8, {"K21": False}), (1.5, {"K21": True, "K22": False})],
)
def test_moments_that_do_not_exist_are_left_out(eta, known):
    model = kz.DiagonalWishartCompletion.example(eta=eta)
    moments = sample_diagonal_completion(model, RUN).moments
    assert {name: sd is not None for name, (_, sd) in moments.items()} == known


@settings(max_examples=10, deadline=None)
@given(
    n1=st.integers(1, 7),
    n2=st.integers(1, 5),
    width=st.floats(0.1, 20),
    eta=st.floats(0.3, 20),
    diagonal=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_completed_kernels_are_positive_definite(n1, n2, width, eta, diagonal, seed):
    rng = np.random.default_rng(seed)
    n = n1 + n2
    x = rng.normal(size=(n, 2))
    theta = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / width) + 1e-6 * np.eye(n)
    labels = rng.integers(0, 2, n1)
    K11 = (theta[:n1, :n1] + (labels[:, None] == labels)) / 2
    model = kz.DiagonalWishartCompletion(theta, K11, eta=eta, diagonal_W22_1=diagonal)
    draws = sample_diagonal_completion(model, RUN).sample(3, rng)
    assert (draws["lambda"] > 0).all()
    assert (draws["delta"] > 0).all()
    for K21, K22 in zip(*completed(model, draws).values(), strict=True):
        K = np.block([[model.K11_values, K21.T], [K21, K22]])
        # With unit diagonal: the scale of the imputed blocks has heavy tails.
        scale = np.sqrt(np.diagonal(K))
        assert np.linalg.eigvalsh(K / np.outer(scale, scale))[0] > -1e-13 * n


def test_mean_of_K21_is_the_regression_of_the_paper(fitted):
    """E K21 = A21 A11^-1 K11, as in the basic model."""
    model, result = fitted
    np.testing.assert_allclose(
        result["moments"]["K21_mean"], model.coefficients @ model.K11_values, rtol=1e-12
    )


def test_without_a_mean_of_delta_the_draws_still_come():
    model = kz.DiagonalWishartCompletion.example(eta=0.8)
    result = kz.fit(model, "exact", draws=50, **QUIET)
    assert np.isfinite(result["posterior"]["delta"]).all()
    assert "K21_mean" in result["moments"]
