"""VB against the declaration's density, the evidence and the exact law of lambda."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.fit import fit
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.inference.engine.paper import log_evidence
from kernelzoo.inference.kernel_completion.diagonal import (
    LogLambda,
    fit_diagonal_wishart_completion,
)
from kernelzoo.models.diagonal_wishart_completion import DiagonalWishartCompletion

RUN = Run(progressbar=False)
DRAWS = 4_000
# Of sums of terms of some thousands.
ROUNDING = 1e-10


def mean_and_sd_of_lambda(model):
    x, p = LogLambda(model).nodes
    mean = np.exp(x) @ p
    return mean, np.sqrt(np.exp(x) ** 2 @ p - mean**2)


@pytest.fixture(scope="module", params=[False, True], ids=["whole", "diagonal"])
def model(request):
    """The example, but that the diagonal of K11 is not that of Theta11."""
    small, scales = DiagonalWishartCompletion.example(), np.array([0.9, 1.0, 1.2])
    K11 = small.K11_values * np.outer(scales, scales)
    options = {"r": small.r, "eta": 6.0, "zeta": small.zeta}
    return DiagonalWishartCompletion(small.theta, K11, diagonal_W22_1=request.param, **options)


@pytest.fixture(scope="module")
def answer(model):
    return fit_diagonal_wishart_completion(model, RUN)


@pytest.fixture(scope="module")
def sample(answer):
    return answer.sample(DRAWS, np.random.default_rng(1))


def test_bound_is_the_mean_of_log_p_minus_log_q(model, answer, sample):
    draws, log_q = sample
    assert_mean(log_density(model, draws) - log_q, answer.elbo[0][-1])


def test_log_q_is_the_density_of_the_draws(model, answer, sample):
    draws, log_q = sample
    q = answer.parameters
    n1, df = model.n_train, model.r - model.n_train
    rates = q["precision_rate"].values
    for i in range(5):
        lam, delta, W21, W22_1 = (draws[name][i] for name in ("lambda", "delta", "W21", "W22_1"))
        test = delta[n1:]
        exact = stats.gamma(float(q["lambda_shape"]), scale=1 / float(q["lambda_rate"])).logpdf(lam)
        exact += (
            stats.invgamma(float(q["precision_shape"]), scale=rates).logpdf(delta[:n1]).sum()
            + stats.invgamma(model.eta, scale=lam).logpdf(test).sum()
            + stats.norm(0, np.sqrt(np.outer(test, model.w))).logpdf(W21).sum()
        )
        if model.diagonal_W22_1:
            exact += stats.gamma(df / 2, scale=2 * test).logpdf(W22_1).sum()
        else:
            exact += stats.wishart(df, np.diag(test)).logpdf(W22_1)
        np.testing.assert_allclose(log_q[i], exact, rtol=1e-10)


def test_moments_are_those_of_the_draws(model, answer, sample):
    draws, _ = sample
    W21, W22_1 = draws["W21"], draws["W22_1"]
    if model.diagonal_W22_1:
        W22_1 = np.einsum("si,ij->sij", W22_1, np.eye(model.n_test))
    rows = (model.coefficients @ model.C1.T) * model.w + model.C2.T @ W21
    K22 = model.C2.T @ W22_1 @ model.C2 + (rows / model.w) @ rows.swapaxes(1, 2)
    for name, values in (("K21", rows @ model.C1), ("K22", K22)):
        mean, sd = answer.moments[name]
        assert_mean(values, mean)
        assert_mean((values - mean) ** 2, sd**2)


@settings(max_examples=15, deadline=None)
@given(
    n1=st.integers(1, 6),
    n2=st.integers(1, 4),
    excess_r=st.floats(0.1, 50),
    eta=st.floats(0.1, 30),
    zeta=st.floats(0.1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_bound_rises_to_a_value_below_the_evidence(n1, n2, excess_r, eta, zeta, seed):
    rng = np.random.default_rng(seed)
    n = n1 + n2
    a, b = rng.normal(size=(n, n + 1)), rng.normal(size=(n1, n1 + 1))
    theta, K11 = a @ a.T + 0.1 * np.eye(n), b @ b.T + 0.1 * np.eye(n1)
    model = DiagonalWishartCompletion(theta, K11, r=n - 1 + excess_r, eta=eta, zeta=zeta)
    answer = fit_diagonal_wishart_completion(model, RUN)
    assert answer.converged
    (bounds,) = answer.elbo
    assert (np.diff(bounds) >= -ROUNDING).all()
    assert bounds[-1] <= log_evidence(model) + ROUNDING


def test_mean_field_is_exact_but_for_the_law_of_lambda(model, answer, sample):
    """Stated bias: given lambda the test objects' delta are exact; lambda itself is too narrow."""
    draws, _ = sample
    lam, delta = draws["lambda"], draws["delta"][:, model.n_train :]
    assert_ks((lam[:, None] / delta)[:, 0], stats.gamma(model.eta).cdf)
    mean, sd = mean_and_sd_of_lambda(model)
    q = answer.parameters
    shape, rate = float(q["lambda_shape"]), float(q["lambda_rate"])
    assert 0.5 * sd < np.sqrt(shape) / rate < sd
    assert abs(shape / rate - mean) < 0.5 * sd
    exact = model.coefficients @ model.K11_values
    np.testing.assert_allclose(answer.moments["K21"][0], exact, rtol=1e-12)


def test_many_training_objects_leave_little_to_lose():
    """The bound's distance from the evidence shrinks with the number of objects."""
    x = np.random.default_rng(2).normal(size=(45, 2))
    theta = np.exp(-((x[:, None] - x[None]) ** 2).sum(-1) / 2) + 1e-3 * np.eye(45)
    label = x[:40, 0] > 0
    model = DiagonalWishartCompletion(theta, (theta[:40, :40] + (label[:, None] == label)) / 2)
    answer = fit_diagonal_wishart_completion(model, RUN)
    assert 0 < log_evidence(model) - answer.elbo[0][-1] < 0.1
    mean, sd = mean_and_sd_of_lambda(model)
    q = answer.parameters
    assert abs(float(q["lambda_shape"] / q["lambda_rate"]) - mean) < 0.1 * sd
    result = fit(model, "vb", draws=1_000, random_seed=1, progressbar=False)
    assert result.attrs["converged"] == "yes"
    assert result.attrs["pareto_k"] < 0.7
    assert set(result["posterior"].data_vars) == {"lambda", "delta"}


def test_an_ascent_that_is_ended_has_not_converged(model):
    answer = fit_diagonal_wishart_completion(model, RUN, max_iterations=1)
    assert not answer.converged
    assert len(answer.elbo[0]) == 1
