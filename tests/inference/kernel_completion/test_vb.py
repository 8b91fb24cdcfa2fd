"""VB against the declaration's density, the evidence and its own moments."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from family import assert_mean
from kernelzoo.custom_steps.kernel_completion.tanner_wong import Constants
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.groups import log_density
from kernelzoo.inference.engine.paper import log_evidence
from kernelzoo.inference.kernel_completion.wishart import _Approximation, completion_by_vb
from kernelzoo.models.wishart_completion import WishartCompletion

RUN = Run(progressbar=False)
DRAWS = 4_000


@pytest.fixture(scope="module")
def model():
    """The example, but that the diagonal of K11 is not that of Theta11."""
    small, scales = WishartCompletion.example(), np.array([0.7, 1.0, 1.6])
    K11 = small.K11_values * np.outer(scales, scales)
    return WishartCompletion(small.theta, K11, r=small.r, eta=small.eta)


@pytest.fixture(scope="module")
def answer(model):
    return completion_by_vb(model, RUN)


@pytest.fixture(scope="module")
def sample(answer):
    return answer.sample(DRAWS, np.random.default_rng(1))


def test_bound_is_the_mean_of_log_p_minus_log_q(model, answer, sample):
    draws, log_q = sample
    assert_mean(log_density(model, draws) - log_q, answer.elbo[0][-1])


def test_log_q_is_the_density_of_the_draws(model, answer, sample):
    draws, log_q = sample
    q = answer.parameters
    Sigma22_1 = stats.invwishart(float(q["Sigma22_1_df"]), q["Sigma22_1_scale"].values)
    Sigma11 = stats.invwishart(float(q["Sigma11_df"]), q["Sigma11_scale"].values)
    S = q["K22_1_scale"].values
    columns = np.linalg.inv(q["Sigma11_scale"].values)
    for i in range(5):
        exact = (
            Sigma11.logpdf(draws["Sigma11"][i])
            + Sigma22_1.logpdf(draws["Sigma22_1"][i])
            + stats.matrix_normal(q["B_mean"], draws["Sigma22_1"][i], columns).logpdf(draws["B"][i])
            + stats.matrix_normal(q["K21_mean"], S, model.K11_values).logpdf(draws["K21"][i])
            + stats.wishart(model.r - model.n_train, S).logpdf(draws["K22_1"][i])
        )
        np.testing.assert_allclose(log_q[i], exact, rtol=1e-9)


def test_moments_are_those_of_the_draws(model, answer, sample):
    draws, _ = sample
    K21 = draws["K21"]
    K22 = draws["K22_1"] + K21 @ np.linalg.solve(model.K11_values, K21.swapaxes(1, 2))
    for name, values in (("K21", K21), ("K22", K22)):
        mean, sd = answer.moments[name]
        assert_mean(values, mean)
        assert_mean((values - mean) ** 2, sd**2)


@settings(max_examples=15, deadline=None)
@given(
    n1=st.integers(1, 6),
    n2=st.integers(1, 5),
    excess_r=st.floats(0.1, 50),
    excess_eta=st.floats(0.1, 50),
    seed=st.integers(0, 2**32 - 1),
)
def test_bound_is_below_the_evidence_and_stationary(n1, n2, excess_r, excess_eta, seed):
    rng = np.random.default_rng(seed)
    n = n1 + n2
    a, b = rng.normal(size=(n, n + 1)), rng.normal(size=(n1, n1 + 1))
    theta, K11 = a @ a.T + 0.1 * np.eye(n), b @ b.T + 0.1 * np.eye(n1)
    model = WishartCompletion(theta, K11, r=n - 1 + excess_r, eta=n - 1 + excess_eta)
    bound = completion_by_vb(model, RUN).elbo[0][-1]
    assert bound <= log_evidence(model)
    q = _Approximation(Constants.of(model.parameters), 1 / model.eta)
    missed = q.missed_information()
    for factor in (0.9, 1.1):
        assert replace(q, shrinkage=factor * q.shrinkage).missed_information() > missed
