"""Exact draws and the evidence for nested masks, against importance sampling and the steps."""

import numpy as np
import pytest
from scipy import stats

from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.mutual_completion.steps import (
    Known,
    draw_model_matrix,
    impute,
    missing_square,
)
from kernelzoo.inference.engine.engine import Run
from kernelzoo.inference.engine.paper import log_evidence
from kernelzoo.inference.mutual_completion.exact import (
    nested_groups,
    sample_mutual_kernel_completion,
)
from kernelzoo.inference.paper_engines import Exact
from kernelzoo.models.completion.incomplete import half_of_visible
from kernelzoo.models.mutual_kernel_completion import MutualKernelCompletion
from mutual_fixture import random_kernels

N, LAM = 4, 0.8
NU = np.array([5.2, 7.5, 6.1])
# In no order: all objects, two, and three of them; groups {0, 2}, {3}, {1}.
NESTED = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1], [1, 0, 1]], dtype=bool)
RUN = Run(progressbar=False)


def model_of(visible=NESTED, n=N, **options):
    kernels = random_kernels(n, 3, 3)[0]
    return MutualKernelCompletion(kernels, visible, **{"lam": LAM, "nu": NU} | options)


def log_likelihood(model, M):
    """Log density of the visible blocks given M (draw, l, l)."""
    problem, value = model.problem, np.zeros(len(M))
    for kernel, v in zip(problem.kernels, problem.nu, strict=True):
        block = M[:, kernel.visible[:, None], kernel.visible] / v
        # scipy's density of Q given one scale is that of one Q given many, by the same terms.
        n, inverse = len(kernel.visible), np.linalg.inv(block)
        at_one = stats.wishart(v, block[0]).logpdf(kernel.values)
        terms = -0.5 * np.einsum("dij,ji->d", inverse, kernel.values)
        terms -= v / 2 * np.linalg.slogdet(block)[1]
        value += at_one + terms - terms[0]
        assert n
    return value


def prior_draws(model, draws, rng):
    strength = model.problem.strength
    return stats.invwishart(strength + N + 1, strength * np.eye(N)).rvs(draws, random_state=rng)


def test_groups_follow_the_number_of_kernels():
    groups = nested_groups(model_of().problem)
    assert [group.tolist() for group in groups] == [[0, 2], [3], [1]]
    crossed = NESTED.copy()
    crossed[1, 1] = True
    assert nested_groups(model_of(crossed).problem) is None


def test_evidence_is_the_mean_likelihood_under_the_prior():
    """Catches a wrong power, normaliser or degree of freedom of any group."""
    model = model_of(lam=3.0)
    rng = np.random.default_rng(1)
    weights = np.exp(log_likelihood(model, prior_draws(model, 200_000, rng)) - log_evidence(model))
    assert_mean(weights, 1.0)
    assert weights.std() < 30


def test_draws_of_M_are_the_posterior():
    """Importance-weighted prior draws have the same means of bounded functionals."""
    model = model_of(lam=3.0)
    rng = np.random.default_rng(2)
    M = prior_draws(model, 100_000, rng)
    weights = np.exp(log_likelihood(model, M) - log_evidence(model))
    ours = sample_mutual_kernel_completion(model, RUN).sample(8_000, rng)["M"]

    def functionals(M):
        logs = np.log(np.diagonal(M, axis1=1, axis2=2))
        sizes = np.exp(logs / 2)
        correlations = M / sizes[:, :, None] / sizes[:, None, :]
        below = correlations[:, *np.tril_indices(N, -1)]
        log_det = np.linalg.slogdet(M)[1][:, None]
        return np.hstack([logs, below, log_det, below * log_det])

    theirs = functionals(M)
    mean = weights @ theirs / weights.sum()
    error = np.sqrt(np.square(weights) @ np.square(theirs - mean)) / weights.sum()
    f = functionals(ours)
    assert_z((f.mean(0) - mean) / np.hypot(error, f.std(0) / len(f) ** 0.5))


def test_gibbs_steps_leave_the_exact_posterior():
    """One sweep from exact draws: M's law afterwards is that of other exact draws."""
    model = model_of()
    problem, rng = model.problem, np.random.default_rng(3)
    draws = 4_000
    strength = problem.strength
    known = [Known.of(kernel) for kernel in problem.kernels]
    fixed = half_of_visible(problem.kernels, NU, N, strength)
    drawn = sample_mutual_kernel_completion(model, RUN).sample(2 * draws, rng)
    swept = []
    for M in drawn["M"][:draws]:
        half = fixed.copy()
        for one, v in zip(known, NU, strict=True):
            if len(one.kernel.hidden):
                missing = impute(one, M, v, rng)
                one.kernel.add_missing(half, missing.hv, missing_square(one, missing), v)
        L = draw_model_matrix(half, strength + N + 1 + NU.sum(), rng)
        swept.append(L @ L.T)
    swept, other = np.array(swept), drawn["M"][draws:]
    for statistic in (
        lambda M: np.linalg.slogdet(M)[1],
        *(lambda M, i=i: np.log(M[:, i, i]) for i in range(N)),
        lambda M: M[:, 1, 3] / np.sqrt(M[:, 1, 1] * M[:, 3, 3]),
        lambda M: M[:, 0, 1] / np.sqrt(M[:, 0, 0] * M[:, 1, 1]),
    ):
        assert_ks(statistic(swept), statistic(other))


def test_complete_kernels_are_a_special_case():
    """M is then inverse Wishart as a whole."""
    model = model_of(np.ones((N, 3), dtype=bool))
    problem = model.problem
    strength = problem.strength
    psi = strength * np.eye(N)
    psi += sum(v * kernel.values for v, kernel in zip(NU, problem.kernels, strict=True))
    M = sample_mutual_kernel_completion(model, RUN).sample(4_000, np.random.default_rng(4))["M"]
    exact = stats.invwishart(strength + N + 1 + NU.sum(), psi)
    other = exact.rvs(4_000, random_state=np.random.default_rng(5))
    assert_mean(M, exact.mean())
    assert_ks(np.linalg.slogdet(M)[1], np.linalg.slogdet(other)[1])
    assert_ks(M[:, 0, 1], other[:, 0, 1])


def test_a_kernel_without_visible_objects_changes_nothing():
    kernels, empty = random_kernels(N, 3, 3)[0], NESTED.copy()
    empty[:, 2] = False
    without = MutualKernelCompletion(kernels[:2], empty[:, :2], lam=LAM, nu=NU[:2])
    model = model_of(empty)
    assert log_evidence(model) == pytest.approx(log_evidence(without), rel=1e-12)
    rng = np.random.default_rng(6)
    draws = [sample_mutual_kernel_completion(m, RUN).sample(3_000, rng) for m in (model, without)]
    assert_ks(np.linalg.slogdet(draws[0]["M"])[1], np.linalg.slogdet(draws[1]["M"])[1])
    assert draws[0]["Qhh_v_K2"].shape == (3_000, N, N)
    ratio = np.linalg.solve(draws[0]["M"], draws[0]["Qhh_v_K2"])
    assert_mean(np.trace(ratio, axis1=1, axis2=2), N)


def test_heavy_tails_are_told():
    """Of M_00 itself, whose mean diverges with sample size where E|x| is infinite."""
    visible = np.array([[1, 1], [1, 0], [1, 0]], dtype=bool)
    kernels = np.array([np.eye(3) + 0.1] * 2)
    model = MutualKernelCompletion(kernels, visible, lam=0.1, nu=2.05)
    tails = sample_mutual_kernel_completion(model, RUN).tails
    # S of the last two objects: lambda' + 1 + 3 + nu degrees of freedom, less 2 - 1.
    assert tails["M"] == pytest.approx((0.205 + 4 + 2.05 - 1) / 2)
    assert tails["Q_K1"][0, 0] == np.inf
    assert tails["Q_K1"][1, 1] == tails["M"]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"collapsed": True}, "a collapsed model lacks"),
        ({"visible": NESTED ^ (np.arange(12).reshape(4, 3) == 4)}, "nested masks"),
    ],
)
def test_where_it_is_not_closed(options, reason):
    model = model_of(**options)
    assert reason in Exact().why_not(model)
    with pytest.raises(ValueError, match=reason):
        log_evidence(model)
