"""I- and P-step of the Tanner-Wong algorithm against the joint law of (Sigma, K)."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.kernel_completion import tanner_wong
from kernelzoo.custom_steps.kernel_completion.tanner_wong import (
    P_STEPS,
    Constants,
    Missing,
    Parameters,
    TannerWongImputation,
    TannerWongPosterior,
    draw_joint,
    draw_whole,
    impute,
)
from kernelzoo.models.multinomial_probit import MultinomialProbit
from kernelzoo.models.wishart_completion import CompletionParameters, WishartCompletion

N1, N2, R, ETA = 3, 2, 6.4, 7.7
N = N1 + N2
X = np.random.default_rng(0).normal(size=(N, 2))
THETA = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1))


def cut(matrix):
    """(x11, x21, x22.1, x21 x11^-1)."""
    x11, x21 = matrix[..., :N1, :N1], matrix[..., N1:, :N1]
    coefficients = np.linalg.solve(x11, x21.mT).mT
    return x11, x21, matrix[..., N1:, N1:] - coefficients @ x21.mT, coefficients


_, _, THETA22_1, M = cut(THETA)


def functionals(parameters, K11, missing):
    """Joint functionals (replicate, functional) of Sigma and K with light tails under the prior."""
    Sigma11, S, B = parameters
    K21, K22_1 = missing
    R_S = np.linalg.cholesky(S)
    gap = np.linalg.solve(R_S, K21 - B @ K11)
    drift = np.linalg.solve(R_S, B - M)
    regression = np.linalg.solve(K11, K21.mT).mT
    total = K11 + THETA[:N1, :N1]
    # Given K this is independent of Sigma22.1: what tells a joint draw of the two from two draws.
    error = np.linalg.solve(R_S, B - np.linalg.solve(total, (K21 + THETA[N1:, :N1]).mT).mT)
    matrices = Sigma11, S, K11, K22_1, S + THETA22_1, S + K22_1
    logs = np.stack([np.linalg.slogdet(a)[1] for a in matrices], axis=1)
    own = np.log(np.diagonal(K22_1 + regression @ K21.mT, axis1=1, axis2=2))
    flat = (len(S), -1)
    return np.hstack(
        [
            logs,
            (logs[:, :, None] * logs[:, None])[:, *np.triu_indices(len(matrices))],
            *(
                np.arcsinh(np.trace(np.linalg.solve(S, a), axis1=1, axis2=2))[:, None]
                for a in (K22_1, THETA22_1)
            ),
            np.arcsinh(np.sum(gap * np.linalg.solve(K11, gap.mT).mT, axis=2)),
            np.arcsinh(np.sum(drift * (drift @ THETA[:N1, :N1]), axis=2)),
            np.sum(error * (error @ total), axis=2),
            np.arcsinh(regression * B).reshape(flat),
            np.arcsinh((B - M) * (regression - M)).reshape(flat),
            np.arcsinh(K21).reshape(flat) * own.sum(axis=1, keepdims=True),
            np.arcsinh(drift**2).reshape(flat) * logs[:, 1:2],
            own,
            own * logs[:, 1:2],
        ]
    )


def joint_draws(rng, replicates):
    """Sigma and K (replicate, ...), each in one piece, by other means than the steps'."""
    Sigma = stats.invwishart(ETA, THETA).rvs(replicates, random_state=rng)
    root = np.linalg.cholesky(Sigma)
    K = root @ stats.wishart(R, np.eye(N)).rvs(replicates, random_state=rng) @ root.mT
    Sigma11, _, S, B = cut(Sigma)
    K11, K21, K22_1, _ = cut(K)
    return Parameters(Sigma11, S, B), K11, Missing(K21, K22_1)


def joint_draw(rng):
    """One of each."""
    parameters, K11, missing = joint_draws(rng, 2)
    return Parameters(*(x[0] for x in parameters)), K11[0], Missing(*(x[0] for x in missing))


def joint_test(i_step=None, p_step=None, replicates=1_000, seed=1):
    """Getting it right (Geweke 2004), one step at a time.

    From a joint draw of (Sigma, K) a step leaves the joint law as it is. Replicates are
    independent: paired differences of the functionals have mean zero, and each functional has
    the distribution it has in replicates that no step has touched.
    """
    rng = np.random.default_rng(seed)
    parameters, K11, missing = joint_draws(rng, replicates)
    before, moved = functionals(parameters, K11, missing), []
    for i in range(replicates):
        now, gaps = Parameters(*(x[i] for x in parameters)), Missing(*(x[i] for x in missing))
        constants = Constants.of(CompletionParameters(THETA, K11[i], R, ETA))
        if i_step is not None:
            gaps = i_step(constants, now, rng)
        if p_step is not None:
            now = p_step(constants, gaps, rng)
        moved.append((*now, *gaps))
    stacks = [np.array(x) for x in zip(*moved, strict=True)]
    after = functionals(Parameters(*stacks[:3]), K11, Missing(*stacks[3:]))
    differences = after - before
    changed = np.abs(differences).max(axis=0) > 1e-9
    differences = differences[:, changed]
    assert_z(differences.mean(axis=0) / (differences.std(axis=0, ddof=1) / replicates**0.5))
    half = replicates // 2
    for old, new in zip(before[:half, changed].T, after[half:, changed].T, strict=True):
        assert_ks(new, old)


def test_imputation_leaves_the_joint_law():
    joint_test(i_step=impute)


@pytest.mark.parametrize("p_step", P_STEPS)
def test_posterior_step_leaves_the_joint_law(p_step):
    joint_test(p_step=P_STEPS[p_step])


@pytest.mark.parametrize("p_step", P_STEPS)
def test_sweep_leaves_the_joint_law(p_step):
    joint_test(impute, P_STEPS[p_step])


@pytest.mark.parametrize("change", [-1, 1])
@pytest.mark.parametrize(
    "steps",
    [{"i_step": impute}, {"p_step": draw_joint}, {"p_step": draw_whole}],
    ids=["impute", "joint", "whole"],
)
def test_wrong_degrees_of_freedom_are_detected(monkeypatch, steps, change):
    class Wrong(tanner_wong.Bartlett):
        @classmethod
        def draw(cls, df, n, rng):
            return tanner_wong_bartlett.draw(df + change, n, rng)

    tanner_wong_bartlett = tanner_wong.Bartlett
    monkeypatch.setattr(tanner_wong, "Bartlett", Wrong)
    with pytest.raises(AssertionError):
        joint_test(**steps)


def test_independent_marginals_of_the_alternative_p_step_are_detected():
    """Planted bug: B from its marginal, the matrix-t, beside a Sigma22.1 of its own."""

    def independently(constants, missing, rng):
        one, other = (draw_joint(constants, missing, rng) for _ in range(2))
        return one._replace(B=other.B)

    with pytest.raises(AssertionError):
        joint_test(p_step=independently, replicates=2_000)


def test_forgotten_prior_mean_is_detected():
    """Planted bug: Theta21 left out of the regression."""

    def forgetful(constants, missing, rng):
        parameters = draw_joint(constants, missing, rng)
        total = constants.total_factor @ constants.total_factor.T
        return parameters._replace(B=parameters.B - np.linalg.solve(total, constants.theta21.T).T)

    with pytest.raises(AssertionError):
        joint_test(p_step=forgetful)


def test_schur_complement_is_that_of_the_whole_matrix():
    rng = np.random.default_rng(3)
    _, K11, missing = joint_draw(rng)
    constants = Constants.of(CompletionParameters(THETA, K11, R, ETA))
    k = missing.K21 @ constants.spectrum.V_inverse.T
    factor = np.tril(tanner_wong.schur_factor(constants, missing, k))
    regression = np.linalg.solve(K11, missing.K21.T).T
    K22 = missing.K22_1 + regression @ missing.K21.T
    K = np.block([[K11, missing.K21.T], [missing.K21, K22]])
    np.testing.assert_allclose(factor @ factor.T, cut(K + THETA)[2], rtol=1e-9)


def test_nothing_given_is_modified():
    rng = np.random.default_rng(4)
    parameters, K11, missing = joint_draw(rng)
    constants = Constants.of(CompletionParameters(THETA, K11, R, ETA))
    kept = [x.copy() for x in (*parameters, *missing)]
    for x in (*parameters, *missing):
        x.flags.writeable = False
    impute(constants, parameters, rng)
    for step in P_STEPS.values():
        step(constants, missing, rng)
    for old, new in zip(kept, (*parameters, *missing), strict=True):
        np.testing.assert_array_equal(old, new)


def test_steps_inside_pymc_find_the_posterior_means():
    model = WishartCompletion.example()
    with model:
        trace = pm.sample(
            1_000,
            tune=50,
            chains=2,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
            step=[TannerWongImputation(), TannerWongPosterior(p_step="inverse-wishart")],
            compile_kwargs={"mode": "FAST_COMPILE"},
        )
    posterior = trace["posterior"]
    n1, n2 = model.n_train, model.n_test
    mean = posterior["Sigma11"].values.reshape(-1, n1, n1)
    df = model.r + model.eta - n2
    exact = (model.K11_values + model.theta[:n1, :n1]) / (df - n1 - 1)
    assert_mean(mean, exact)
    K21 = posterior["K21"].values.reshape(-1, n2, n1)
    coefficients = np.linalg.solve(model.theta[:n1, :n1], model.theta[:n1, n1:]).T
    assert_mean(K21, coefficients @ model.K11_values, ess=len(K21) / 10)


def test_other_models_and_variables_are_refused():
    with pytest.raises(TypeError, match="needs a WishartCompletion"):
        TannerWongImputation(model=MultinomialProbit.example())
    model = WishartCompletion.example()
    with pytest.raises(ValueError, match=r"must be K21, K22_1. Got \['B'\]"):
        TannerWongImputation([model["B"]], model=model)
    with pytest.raises(ValueError, match=r"'p_step' argument .* nearest is 'joint'"):
        TannerWongPosterior(p_step="jiont", model=model)
