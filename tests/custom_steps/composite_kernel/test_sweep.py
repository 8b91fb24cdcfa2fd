from types import SimpleNamespace

import numpy as np
import pytest
from polyagamma import random_polyagamma
from scipy import stats

from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.composite_kernel import steps as composite_sweep
from kernelzoo.custom_steps.composite_kernel.steps import (
    COLLAPSED,
    Classification,
    Prior,
    Regression,
    State,
    Tuning,
    sweep,
)
from kernelzoo.custom_steps.moves import ellipse, metropolis
from kernelzoo.custom_steps.moves.metropolis import (
    initial_concentration_tuning,
    initial_weight_tuning,
)
from kernelzoo.numerics.kernel_products import Design
from kernelzoo.numerics.normal_regression import Primal

PRIOR = Prior(sigma=1.5, varsigma=0.7, tau=2.0, nu=1.5, rho=2.0, varrho=1.3)
N_KERNELS, N_OBJECTS, N_FUNCTIONS = 2, 4, 3
STACK = np.random.default_rng(0).normal(size=(N_KERNELS, N_OBJECTS, N_FUNCTIONS))
WIDE = np.random.default_rng(0).normal(size=(N_KERNELS, 3, 5))
ALL = frozenset({"phi", "beta", "varphi", "gamma"})
METROPOLIS = Tuning(initial_weight_tuning(N_KERNELS), initial_concentration_tuning(N_KERNELS))


def prior_draw(rng, n_functions, gamma_is_random):
    varphi = rng.gamma(PRIOR.tau, 1 / PRIOR.nu, N_KERNELS)
    log_g = np.log(rng.gamma(varphi + 1)) - rng.exponential(size=N_KERNELS) / varphi
    phi = rng.gamma(PRIOR.sigma, 1 / PRIOR.varsigma, n_functions)
    return State(
        rng.standard_normal(n_functions) / np.sqrt(phi),
        phi,
        np.exp(log_g - np.logaddexp.reduce(log_g)),
        varphi,
        rng.gamma(PRIOR.rho, 1 / PRIOR.varrho) if gamma_is_random else 1.0,
    )


def scores(state, stack):
    return np.einsum("k,knm,m->n", state.beta, stack, state.alpha)


def draw_targets(state, stack, rng):
    f = scores(state, stack)
    return f + rng.standard_normal(len(f)) / np.sqrt(state.gamma)


def draw_labels(state, stack, rng):
    f = scores(state, stack)
    return (rng.random(len(f)) < 1 / (1 + np.exp(-f))) - 0.5


MODELS = {"regression": (Regression, draw_targets), "classification": (Classification, draw_labels)}


def functionals(states, responses, stack):
    """Joint functionals (replicate, functional) of parameters and responses.

    They have light tails under the prior.
    """
    alpha, phi, beta, varphi, gamma, _ = (np.array(each) for each in zip(*states, strict=True))
    response, first, gamma = np.array(responses), beta[:, :1], gamma[:, None]
    u, log_phi, log_beta = alpha * np.sqrt(phi), np.log(phi), np.log(beta.clip(1e-9))
    score = np.einsum("rk,knm,rm->rn", beta, stack, alpha)
    f, t, a = np.arcsinh(score), np.arcsinh(response), np.arcsinh(alpha)
    residual = (response - score) * np.sqrt(gamma)
    scatter = np.eye(alpha.shape[1]) + alpha[:, :, None] * alpha[:, None]
    log_gamma, squares = np.log(gamma), (residual**2).sum(axis=1, keepdims=True)
    return np.hstack(
        [
            *(log_phi, u**2, u * log_phi, u**2 * log_phi),
            *(a, a * a.mean(axis=1, keepdims=True), a * first),
            *(log_beta, np.log(varphi), varphi * log_beta, f, f**2, t, t**2, f * t),
            *(f * t * first, f * t * log_phi.mean(axis=1, keepdims=True), np.log1p(residual**2)),
            *(log_gamma, log_gamma * np.log1p(squares), log_gamma * first),
            np.linalg.slogdet(scatter)[1][:, None],
            log_phi.sum(axis=1, keepdims=True) * first,
            (f * t).sum(axis=1, keepdims=True) * varphi[:, :1],
        ]
    )


def joint_test(model, replicates=1_000, seed=1, stack=STACK, redraw=ALL, tuning=COLLAPSED, moves=1):
    """Getting it right (Geweke 2004): response given parameters, sweep given response, twice.

    From a draw of the prior the joint law never changes. Replicates are independent: paired
    differences of the functionals have mean zero, and margins have the prior's distribution.
    """
    rng = np.random.default_rng(seed)
    likelihood, draw_response = MODELS[model]
    if model == "classification":
        redraw = redraw - {"gamma"}
    design = Design.of(stack)
    starts, first, last, responses = [], [], [], []
    for _ in range(replicates):
        state = prior_draw(rng, stack.shape[2], "gamma" in redraw)
        starts.append(state)
        first.append(draw_response(state, stack, rng))
        for _ in range(2):
            response = draw_response(state, stack, rng)
            state, _ = sweep(
                state,
                likelihood(response),
                design,
                PRIOR,
                rng,
                redraw=redraw,
                tuning=tuning,
                moves=moves,
            )
        last.append(state)
        responses.append(response)
    differences = functionals(last, responses, stack) - functionals(starts, first, stack)
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    for column in np.array([state.phi for state in last]).T:
        assert_ks(column, stats.gamma(PRIOR.sigma, scale=1 / PRIOR.varsigma).cdf)
    student = stats.t(2 * PRIOR.sigma, scale=np.sqrt(PRIOR.varsigma / PRIOR.sigma))
    for column in np.array([state.alpha for state in last]).T:
        assert_ks(column, student.cdf)
    for column in np.array([state.varphi for state in last]).T:
        assert_ks(column, stats.gamma(PRIOR.tau, scale=1 / PRIOR.nu).cdf)
    if "gamma" in redraw:
        gamma = [state.gamma for state in last]
        assert_ks(gamma, stats.gamma(PRIOR.rho, scale=1 / PRIOR.varrho).cdf)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {"replicates": 3_000},
        {"moves": 3},
        {"tuning": METROPOLIS, "moves": 2, "replicates": 3_000},
        {"tuning": Tuning(concentrations=METROPOLIS.concentrations)},
        {"redraw": frozenset({"phi", "gamma"})},
        {"redraw": frozenset({"beta"})},
        {"redraw": frozenset()},
        {"stack": WIDE},
    ],
    ids=["joint", "moves", "metropolis", "apart", "fixed weights", "beta", "alpha", "wide"],
)
def test_joint_law_is_invariant(model, options):
    joint_test(model, **options)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_joint_law_is_invariant_in_a_long_run(model):
    joint_test(model, replicates=30_000)


def test_wrong_degrees_of_freedom_of_the_noise_are_detected(monkeypatch):
    correct = composite_sweep.draw_noise_precision
    monkeypatch.setattr(
        composite_sweep, "draw_noise_precision", lambda r, a, b, rng: correct(r, a - 0.5, b, rng)
    )
    with pytest.raises(AssertionError):
        joint_test("regression", replicates=500)


def test_wrong_degrees_of_freedom_of_the_precisions_are_detected(monkeypatch):
    correct = composite_sweep.draw_precisions
    monkeypatch.setattr(
        composite_sweep, "draw_precisions", lambda al, a, b, rng: correct(al, a - 0.5, b, rng)
    )
    with pytest.raises(AssertionError):
        joint_test("regression", replicates=500)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_stale_regression_weights_are_detected(monkeypatch, model):
    """Planted bug: alpha is drawn given the beta before its collapsed move."""
    correct = composite_sweep.conditional
    first = {}

    def stale(design, beta, terms, phi):
        law = correct(design, beta, terms, phi)
        if first.get("terms") is not terms:
            first.update(terms=terms, law=law)
        return SimpleNamespace(log_evidence=law.log_evidence, draw=first["law"].draw)

    monkeypatch.setattr(composite_sweep, "conditional", stale)
    with pytest.raises(AssertionError):
        joint_test(model, replicates=3_000)


def latent_precisions(score, draws=40_000):
    """Standardised draws of omega at one score, by the moments of PG(1, score)."""
    design = Design.of(np.ones((1, draws, 1)))
    state = State(np.array([score]), np.ones(1), np.ones(1), np.ones(1), 1.0)
    omega = Classification(np.full(draws, 0.5)).terms(state, design, np.random.default_rng(3))[0].w
    if score == 0:
        mean, var = 1 / 4, 1 / 24
    else:
        tanh = np.tanh(score / 2)
        mean = tanh / (2 * score)
        # (sinh z - z) / (4 z^3 cosh^2(z / 2)), of terms that do not overflow.
        var = (2 * tanh - score * (1 - tanh**2)) / (4 * score**3)
    return (omega - mean) / np.sqrt(var)


@pytest.mark.parametrize("score", [0.0, 1.0, 30.0, 200.0, 1e4, -1e6])
def test_latent_precisions_have_their_moments(score):
    """Separable classes have scores of hundreds."""
    z = latent_precisions(score)
    assert_mean(z, 0.0)
    assert_mean(z**2, 1.0)


def test_the_default_method_fails_at_large_scores(monkeypatch):
    """Planted bug: draws that stay at .16 beyond a score of 175."""
    monkeypatch.setattr(
        composite_sweep,
        "random_polyagamma",
        lambda h, z, method, **options: random_polyagamma(h, z, **options),
    )
    with pytest.raises(AssertionError):
        assert_mean(latent_precisions(200.0), 0.0)


@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_latent_precisions_of_wrong_scores_are_detected(monkeypatch, factor):
    """Their moments tell it in no time; the joint law only in a longer run."""
    plant_wrong_scores(monkeypatch, factor)
    with pytest.raises(AssertionError):
        assert_mean(latent_precisions(1.0), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.5, 0.0])
def test_joint_law_of_wrong_scores_is_detected(monkeypatch, factor):
    plant_wrong_scores(monkeypatch, factor)
    with pytest.raises(AssertionError):
        joint_test("classification", replicates=10_000)


def plant_wrong_scores(monkeypatch, factor):
    monkeypatch.setattr(
        composite_sweep,
        "random_polyagamma",
        lambda h, z, **options: random_polyagamma(h, factor * z, **options),
    )


def test_evidence_without_its_determinant_is_detected(monkeypatch):
    monkeypatch.setattr(Primal, "log_evidence", lambda law: 0.5 * float(law.half @ law.half))
    with pytest.raises(AssertionError):
        joint_test("regression", stack=4 * STACK)


def test_ellipse_of_the_wrong_prior_is_detected(monkeypatch):
    """Planted bug: weights turn into normal scores by gamma distributions of other shapes."""
    correct = ellipse.normal_score
    monkeypatch.setattr(ellipse, "normal_score", lambda log_g, shape: correct(log_g, 1.5 * shape))
    with pytest.raises(AssertionError):
        joint_test("regression")


@pytest.mark.slow
def test_missing_jacobian_is_detected(monkeypatch):
    monkeypatch.setattr(metropolis, "log_weights_density", lambda lb, rho: float((rho - 1) @ lb))
    with pytest.raises(AssertionError):
        joint_test("regression", tuning=METROPOLIS, replicates=3_000)


def test_precisions_have_the_conditional_law():
    rng = np.random.default_rng(1)
    alpha, residual = np.array([0.3, -2.0]), np.array([1.0, -0.5, 2.0])
    phi = np.array([composite_sweep.draw_precisions(alpha, 0.7, 0.2, rng) for _ in range(5_000)])
    for column, rate in zip(phi.T, 0.2 + alpha**2 / 2, strict=True):
        assert_ks(column, stats.gamma(1.2, scale=1 / rate).cdf)
    gamma = [composite_sweep.draw_noise_precision(residual, 0.7, 0.2, rng) for _ in range(5_000)]
    assert_ks(gamma, stats.gamma(2.2, scale=1 / (0.2 + residual @ residual / 2)).cdf)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("tuning", [COLLAPSED, METROPOLIS], ids=["collapsed", "metropolis"])
def test_nothing_given_is_modified(model, tuning):
    rng = np.random.default_rng(1)
    likelihood, draw_response = MODELS[model]
    state = prior_draw(rng, N_FUNCTIONS, True)
    response = draw_response(state, STACK, rng)
    given = [*state[:4], response]
    kept = [value.copy() for value in given]
    for value in given:
        value.flags.writeable = False
    new, info = sweep(
        state, likelihood(response), Design.of(STACK), PRIOR, rng, redraw=ALL, tuning=tuning
    )
    for before, value in zip(kept, given, strict=True):
        np.testing.assert_array_equal(before, value)
    for value, after in zip(state[:4], new[:4], strict=True):
        assert not np.shares_memory(value, after)
    assert (info.evaluations >= 3) == (tuning is COLLAPSED)


@pytest.mark.parametrize("model", MODELS)
def test_raw_features_leave_the_chain_finite(model):
    rng = np.random.default_rng(0)
    x = 2e3 * rng.normal(size=(40, 3))
    stack = np.array([x @ x.T, (1 + x @ x.T) ** 2])
    likelihood = MODELS[model][0](np.sign(x[:, 0]) / 2)
    state = State(np.zeros(40), np.ones(40), np.full(2, 0.5), np.ones(2), 1.0)
    design = Design.of(stack)
    for _ in range(20):
        state, _ = sweep(state, likelihood, design, Prior(), rng, redraw=ALL, moves=2)
        assert all(np.isfinite(value).all() for value in state)
