"""Gibbs steps of regressions with several outputs against their declaration's own prior draws."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from family import assert_z
from kernelzoo.custom_steps.composite_kernel import steps
from kernelzoo.custom_steps.composite_kernel.steps import CompositeKernelGibbs, State, sweep
from kernelzoo.inference.engine.evaluation import python_mode
from kernelzoo.models.combinations.sums import Binary, DirichletWeights
from kernelzoo.models.composite_kernel import CompositeKernelRegression
from kernelzoo.models.kernels import as_stack
from kernelzoo.numerics.kernel_products import Design

N, P, S = 4, 2, 3
SHARED = ("weights", "all")
PRIORS = {"sigma": 1.5, "varsigma": 0.7, "rho": 2.0, "varrho": 1.3}
DIRICHLET = DirichletWeights(2.0, 1.5)
# More objects than functions, and fewer.
TALL = np.random.default_rng(0).normal(size=(S, N, 2))
WIDE = np.random.default_rng(0).normal(size=(S, N, 6))


def functionals(values, t, stack):
    """Joint functionals (functional,) of one draw; they have light tails under the prior."""
    alpha, beta, gamma = values["alpha"], np.atleast_2d(values["beta"]), values["gamma"]
    gamma = np.broadcast_to(gamma, P)
    log_phi = np.broadcast_to(np.log(values["phi"]), alpha.shape)
    weights = np.broadcast_to(beta, (P, beta.shape[1]))
    f = np.einsum("ok,knm,om->no", weights, stack, alpha[:, 1:]) + alpha[:, 0]
    u, a, ft = alpha * np.exp(log_phi / 2), np.arcsinh(alpha), np.arcsinh(f) * np.arcsinh(t)
    residual = (t - f) * np.sqrt(gamma)
    squares = np.log1p((residual**2).sum(axis=0))
    parts = [log_phi, u**2, u * log_phi, a, a[0] * a[1], u[0] ** 2 * log_phi[1], u[0] * u[1]]
    parts += [ft.sum(axis=0), np.log1p(residual**2), squares * np.log(gamma), np.log(gamma)]
    parts += [ft.sum(axis=0) * weights[:, 0], ft.sum(axis=0)[::-1] * weights[:, 0]]
    parts += [np.arcsinh(f[:, 0]) * np.arcsinh(t[:, 1]), residual[:, 0] * residual[:, 1]]
    parts += [a * weights[:, :1], beta, np.log(gamma) * weights[:, 0]]
    if "varphi" in values:
        varphi = values["varphi"]
        parts += [np.log(varphi), varphi * np.log(values["beta"].clip(1e-9))]
    return np.concatenate([np.ravel(part) for part in parts])


def joint_test(shared, stack=TALL, rule=DIRICHLET, replicates=1_000, **settings):
    """Getting it right (Geweke 2004): a sweep given the declaration's targets keeps the joint law.

    Replicates are independent: paired differences of the functionals have mean zero.
    """
    options = {"shared": shared, "combination": rule, **PRIORS}
    model = CompositeKernelRegression(as_stack(stack), np.zeros((N, P)), **options)
    drawn = pm.sample_prior_predictive(
        replicates, model=model, random_seed=1, compile_kwargs={"mode": python_mode()}
    )
    names = [rv.name for rv in model.free_RVs]
    prior = {name: drawn["prior"][name].values[0] for name in names}
    targets = drawn["prior_predictive"]["t"].values[0]
    step = CompositeKernelGibbs(model=model, **settings)
    step.stop_tuning()
    rng, differences = np.random.default_rng(2), []
    for i, t in enumerate(targets):
        before = {name: prior[name][i] for name in names}
        model["targets"].set_value(t)
        step._likelihood = steps.Regression(model.target_values)
        swept, _ = step.sweep(before, rng)
        after = {name: swept[name] for name in names}
        differences.append(functionals(after, t, stack) - functionals(before, t, stack))
    differences = np.array(differences)
    differences = differences[:, differences.any(axis=0)]
    assert_z(differences.mean(0) / (differences.std(0, ddof=1) / np.sqrt(replicates)))


@pytest.mark.parametrize("shared", SHARED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stack": WIDE},
        {"scheme": "paper"},
        {"rule": Binary(0.4)},
    ],
    ids=["joint", "wide", "metropolis", "selection"],
)
def test_joint_law_is_invariant(shared, options):
    joint_test(shared, **options)


@pytest.mark.slow
@pytest.mark.parametrize("shared", SHARED)
def test_joint_law_is_invariant_in_a_long_run(shared):
    joint_test(shared, replicates=30_000)


@pytest.mark.parametrize("shared", ["weights", "all"])
def test_wrong_degrees_of_freedom_of_the_precisions_are_detected(monkeypatch, shared):
    """Planted bug: phi is drawn as if it were that of one output."""
    correct = steps.draw_precisions
    monkeypatch.setattr(
        steps, "draw_precisions", lambda al, a, b, rng: correct(al, a - 0.5 * (P - 1), b, rng)
    )
    with pytest.raises(AssertionError):
        joint_test(shared, replicates=500)


@pytest.mark.parametrize("stack", [TALL, WIDE], ids=["tall", "wide"])
@pytest.mark.parametrize("gamma", [np.array([0.7, 3.0]), 1.6], ids=["own noise", "one noise"])
def test_evidence_is_that_of_all_outputs(stack, gamma):
    """Up to terms without beta: with its determinant once an output."""
    rng = np.random.default_rng(5)
    t, phi = rng.normal(size=(N, P)), rng.gamma(2.0, size=stack.shape[2])
    design = Design.of(stack)
    found, expected = [], []
    for beta in rng.dirichlet(np.ones(S), size=4):
        state = steps.State(np.zeros((P, stack.shape[2])), phi, beta, np.ones(S), gamma)
        terms = steps.Regression(t).terms(state, design, rng)
        found.append(steps.conditional(design, beta, terms, phi).log_evidence())
        composite = np.tensordot(beta, stack, axes=1)
        signal = (composite / phi) @ composite.T
        expected.append(
            sum(
                stats.multivariate_normal.logpdf(column, cov=signal + np.eye(N) / g)
                for column, g in zip(t.T, np.broadcast_to(gamma, P), strict=True)
            )
        )
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-8)


def test_regression_weights_are_drawn_given_the_noise_of_their_output():
    """The first output has no noise and is met, the second has nothing but noise."""
    targets = 5 + np.random.default_rng(1).normal(size=(N, P))
    model = CompositeKernelRegression(as_stack(WIDE), targets)
    step, (alpha, gamma) = CompositeKernelGibbs(model=model), (np.zeros((P, 7)), [1e12, 1e-12])
    state = State(alpha, np.full(7, 1 / 7), np.full(S, 1 / S), np.ones(S), np.array(gamma))
    given = state, step._likelihood, step._design, step._prior, np.random.default_rng(2)
    alpha = sweep(*given, redraw=frozenset())[0].alpha
    f = WIDE.mean(axis=0) @ alpha[:, 1:].T + alpha[:, 0]
    gap = abs(f - targets).max(axis=0)
    assert gap[0] < 1e-4
    assert gap[1] > 0.1


def test_values_that_outputs_do_not_share_have_their_axis():
    for shared in SHARED:
        targets = np.random.default_rng(1).normal(size=(N, P))
        model = CompositeKernelRegression(as_stack(TALL), targets, shared=shared)
        step = CompositeKernelGibbs(model=model, rng=1)
        before = model.initial_point()
        after, (stats,) = step.step(before)
        assert {name: v.shape for name, v in after.items()} == {
            name: np.shape(v) for name, v in before.items()
        }
        assert stats["evaluations"] >= 3
