"""Exact draws, moments and evidence against marginal laws, quadrature and long chains."""

import arviz as az
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from family import assert_ks, assert_mean, z_bound
from kernelzoo.custom_steps.kernel_completion.tanner_wong import (
    Constants,
    Parameters,
    draw_joint,
    impute,
)
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.paper import log_evidence
from kernelzoo.inference.kernel_completion.wishart import (
    draw_blocks,
    inverse_wishart_moments,
    sample_completion,
    tails,
)
from kernelzoo.models.wishart_completion import WishartCompletion
from kernelzoo.numerics.wishart import Spectrum

RUN = Run(progressbar=False, random_seed=1)


def completed(draws, K11):
    """Whole matrices K (draw, n, n)."""
    K21 = draws["K21"]
    K12 = K21.swapaxes(1, 2)
    K22 = draws["K22_1"] + K21 @ np.linalg.solve(K11, K12)
    return np.block([[np.broadcast_to(K11, (len(K21), *K11.shape)), K12], [K21, K22]])


@pytest.fixture(scope="module")
def model():
    """The example, but that the diagonal of K11 is not that of Theta11."""
    small, scales = WishartCompletion.example(), np.array([0.7, 1.0, 1.6])
    K11 = small.K11_values * np.outer(scales, scales)
    return WishartCompletion(small.theta, K11, r=small.r, eta=small.eta)


@pytest.fixture(scope="module")
def draws(model):
    return sample_completion(model, RUN).sample(20_000, np.random.default_rng(1))


@pytest.mark.parametrize("eta", [4.6, 8.3])
def test_K21_is_matrix_t(eta):
    """Each entry is a Student t with eta - n2 + 1 degrees of freedom, no more and no less."""
    small = WishartCompletion.example()
    model = WishartCompletion(small.theta, small.K11_values, r=small.r, eta=eta)
    n2 = model.n_test
    draws = sample_completion(model, RUN).sample(20_000, np.random.default_rng(2))
    spectrum = Spectrum.of(model.theta, model.K11_values)
    theta11 = model.theta[:3, :3]
    K11 = model.K11_values
    columns = np.diagonal(K11 + K11 @ np.linalg.solve(theta11, K11))
    for test, train in ((0, 0), (1, 2)):
        psi = spectrum.theta22_1[test, test] * columns[train]
        gap = draws["K21"][:, test, train] - spectrum.K21_mean[test, train]

        def law(df, psi=psi):
            return stats.t(df, scale=np.sqrt(psi / df)).cdf

        assert_ks(gap, law(eta - n2 + 1))
        for wrong in (eta - n2, eta - n2 + 2):
            with pytest.raises(AssertionError):
                assert_ks(gap, law(wrong))


def test_blocks_have_their_marginal_laws(model, draws):
    theta, K11 = model.theta, model.K11_values
    n1, n2 = model.n_train, model.n_test
    S, Sigma11 = draws["Sigma22_1"], draws["Sigma11"]
    theta22_1 = Spectrum.of(theta, K11).theta22_1
    assert_ks(theta22_1[0, 0] / S[:, 0, 0], stats.chi2(model.eta - n2 + 1).cdf)
    df = model.r + model.eta - n2
    total = K11 + theta[:n1, :n1]
    assert_ks(total[1, 1] / Sigma11[:, 1, 1], stats.chi2(df - n1 + 1).cdf)
    assert_ks(draws["K22_1"][:, 1, 1] / S[:, 1, 1], stats.chi2(model.r - n1).cdf)


def test_moments_are_those_of_the_draws(model, draws):
    moments = sample_completion(model, RUN).moments
    K = completed(draws, model.K11_values)
    n1 = model.n_train
    for name, values in (("K21", K[:, n1:, :n1]), ("K22", K[:, n1:, n1:])):
        mean, sd = moments[name]
        assert_mean(values, mean)
        assert_mean((values - mean) ** 2, sd**2)


def test_moments_equal_the_printed_formulas(model):
    theta, K11 = model.theta, model.K11_values
    coefficients = np.linalg.solve(theta[:3, :3], theta[:3, 3:]).T
    theta22_1 = theta[3:, 3:] - coefficients @ theta[:3, 3:]
    moments = sample_completion(model, RUN).moments
    np.testing.assert_allclose(moments["K21"][0], coefficients @ K11)
    factor = model.r + np.trace(np.linalg.solve(theta[:3, :3], K11))
    K22 = coefficients @ K11 @ coefficients.T + factor * theta22_1 / (model.eta - 2 - 1)
    np.testing.assert_allclose(moments["K22"][0], K22)


def test_moments_that_do_not_exist_are_left_out():
    """One training and three test objects, eta between n - 1 and n2 + 1."""
    model = WishartCompletion(np.eye(4) + 0.3, [[2.0]], eta=3.5)
    moments = sample_completion(model, RUN).moments
    assert list(moments) == ["K21"]
    assert moments["K21"][1] is None
    model = WishartCompletion(np.eye(4) + 0.3, [[2.0]], eta=5.0)
    assert sample_completion(model, RUN).moments["K22"][1] is None


def test_tails_of_the_training_block():
    """Of Sigma11, three by three, which has r + eta - 2 degrees of freedom: less 3 - 1."""
    found = tails(WishartCompletion.example().parameters)
    assert found["Sigma11"] == (10.5 + 12.5 - 2 - (3 - 1)) / 2


def test_inverse_wishart_moments():
    # Three rows: with two, n - 1 is 1 and n + 1 is 3, whatever n stands for.
    psi = np.array([[2.0, 0.5, -0.3], [0.5, 1.0, 0.2], [-0.3, 0.2, 1.5]])
    draws = stats.invwishart(14.5, psi).rvs(40_000, random_state=1)
    mean, variance, square = inverse_wishart_moments(14.5, psi)
    assert_mean(draws, mean)
    assert_mean((draws - mean) ** 2, variance)
    diagonal = np.diagonal(draws, axis1=1, axis2=2)
    assert_mean(draws**2 + diagonal[:, :, None] * diagonal[:, None], square)
    # An entry of the diagonal is psi over a chi-square of 12.5 degrees of freedom.
    law = stats.invgamma(12.5 / 2, scale=np.diagonal(psi) / 2)
    np.testing.assert_allclose(np.diagonal(mean), law.mean())
    np.testing.assert_allclose(np.diagonal(variance), law.var())
    np.testing.assert_allclose(np.diagonal(square), 2 * (law.var() + law.mean() ** 2))


def test_draws_agree_with_a_long_tanner_wong_chain(model, draws):
    constants = Constants.of(model.parameters)
    rng = np.random.default_rng(3)
    parameters = Parameters(*(draws[name][0] for name in Parameters._fields))
    rows = []
    for _ in range(5_000):
        missing = impute(constants, parameters, rng)
        parameters = draw_joint(constants, missing, rng)
        rows.append(parameters._asdict() | missing._asdict())
    chain = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    for name, values in chain.items():
        for summary in (np.arcsinh, lambda x: np.arcsinh(x) ** 2):
            ours, theirs = summary(draws[name]), summary(values)
            ours, theirs = ours.reshape(len(ours), -1), theirs.reshape(len(theirs), -1)
            ess = np.array([az.ess(column[None]) for column in theirs.T])
            error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / ess)
            z = (ours.mean(axis=0) - theirs.mean(axis=0)) / error
            assert np.abs(z).max() <= z_bound(z.size)


def test_evidence_is_prior_times_likelihood_over_posterior(model, draws):
    """Of Sigma11, whatever its value: everything else integrates to one."""
    theta, K11, n2 = model.theta, model.K11_values, model.n_test
    prior = stats.invwishart(model.eta - n2, theta[:3, :3])
    posterior = stats.invwishart(model.r + model.eta - n2, K11 + theta[:3, :3])
    for Sigma11 in draws["Sigma11"][:5]:
        exact = (
            prior.logpdf(Sigma11)
            + stats.wishart(model.r, Sigma11).logpdf(K11)
            - posterior.logpdf(Sigma11)
        )
        np.testing.assert_allclose(log_evidence(model), exact, rtol=1e-12)


def test_evidence_equals_quadrature_for_one_training_object():
    model = WishartCompletion(np.array([[1.5, 0.4], [0.4, 2.0]]), [[0.8]], r=3.3, eta=2.6)

    def integrand(log_sigma):
        sigma = np.exp(log_sigma)
        prior = stats.invgamma(1.6 / 2, scale=1.5 / 2).pdf(sigma)
        return prior * stats.gamma(3.3 / 2, scale=2 * sigma).pdf(0.8) * sigma

    exact, _ = integrate.quad(integrand, -20, 20, epsabs=0, epsrel=1e-11, limit=500)
    np.testing.assert_allclose(log_evidence(model), np.log(exact), rtol=1e-9)


def test_evidence_agrees_with_draws_from_the_prior(model):
    theta11 = model.theta[:3, :3]
    Sigma11 = stats.invwishart(model.eta - 2, theta11).rvs(5_000, random_state=1)
    log_w = [stats.wishart(model.r, S).logpdf(model.K11_values) for S in Sigma11]
    assert_mean(np.exp(np.array(log_w) - log_evidence(model)), 1.0)


@settings(max_examples=12, deadline=None)
@given(
    n1=st.integers(1, 8),
    n2=st.integers(1, 6),
    width=st.floats(0.05, 20),
    excess=st.floats(0.5, 40),
    seed=st.integers(0, 2**32 - 1),
)
def test_completed_matrices_are_positive_definite(n1, n2, width, excess, seed):
    rng = np.random.default_rng(seed)
    n = n1 + n2
    x = rng.normal(size=(n, 2))
    theta = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / width) + 1e-6 * np.eye(n)
    labels = rng.integers(0, 2, n1)
    K11 = (theta[:n1, :n1] + (labels[:, None] == labels)) / 2
    model = WishartCompletion(theta, K11, r=n - 1 + excess, eta=n - 1 + excess)
    draws = sample_completion(model, RUN).sample(3, rng)
    for name in ("Sigma11", "Sigma22_1", "K22_1"):
        assert np.linalg.eigvalsh(draws[name]).min() > 0
    K = completed(draws, K11)
    smallest = np.linalg.eigvalsh(K).min(axis=1)
    assert (smallest > -1e-13 * n * np.trace(K, axis1=1, axis2=2)).all()


def test_draw_uses_what_was_factored_once(model):
    """Nothing given is changed, and the same generator gives the same draw."""
    constants = Constants.of(model.parameters)
    one, other = (draw_blocks(constants, np.random.default_rng(5)) for _ in range(2))
    for name, value in one.items():
        np.testing.assert_array_equal(value, other[name])
