"""A learned varsigma: its moves against the prior, and both models against brute force."""

import arviz as az
import numpy as np
import pytest
from scipy import stats

import composite_fixture
import kernelzoo as kz
from composite_fixture import brute_force, classification, regression
from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.composite_kernel.steps import (
    Classification,
    Prior,
    Regression,
    State,
    sweep,
)
from kernelzoo.custom_steps.moves.ellipse import move_rate
from kernelzoo.inference.engine.paper import identified
from kernelzoo.numerics.kernel_products import Design

SCALE = kz.LearnedScale(median=0.7, sigma=0.8)
PRIOR = Prior(sigma=1.5, varsigma=SCALE, tau=2.0, nu=1.5, rho=2.0, varrho=1.3)
LAW = stats.norm(np.log(SCALE.median), SCALE.sigma)
STACK = np.random.default_rng(0).normal(size=(2, 4, 3))
ALL = frozenset({"phi", "beta", "varphi", "gamma", "varsigma"})


def prior_draw(rng, gamma):
    varphi = rng.gamma(PRIOR.tau, 1 / PRIOR.nu, 2)
    varsigma = np.exp(LAW.rvs(random_state=rng))
    phi = rng.gamma(PRIOR.sigma, 1 / varsigma, 3)
    alpha = rng.standard_normal(3) / np.sqrt(phi)
    return State(alpha, phi, rng.dirichlet(varphi + 1e-3), varphi, gamma, varsigma)


def response_of(state, likelihood, rng):
    f = np.einsum("k,knm,m->n", state.beta, STACK, state.alpha)
    if likelihood is Regression:
        return f + rng.standard_normal(4) / np.sqrt(state.gamma)
    return (rng.random(4) < 1 / (1 + np.exp(-f))) - 0.5


def joint_test(likelihood, redraw=ALL, replicates=1_500):
    """Responses given parameters, sweep given responses, twice: the joint law stays the prior's."""
    rng, design = np.random.default_rng(1), Design.of(STACK)
    before, after = [], []
    redraw = redraw - {"gamma"}
    for _ in range(replicates):
        state = prior_draw(rng, 1.0 if likelihood is Classification else 2.0)
        before.append(state)
        for _ in range(2):
            response = likelihood(response_of(state, likelihood, rng))
            state, _ = sweep(state, response, design, PRIOR, rng, redraw=redraw)
        after.append(state)
    rates = np.log([state.varsigma for state in after])
    assert_ks(rates, LAW.cdf)
    for m in range(3):
        u = [state.phi[m] * state.varsigma for state in after]
        assert_ks(u, stats.gamma(PRIOR.sigma).cdf)
        assert_ks([s.alpha[m] * np.sqrt(s.phi[m]) for s in after], stats.norm.cdf)
    differences = np.array([summary(a) - summary(b) for a, b in zip(after, before, strict=True)])
    assert_z(differences.mean(0) / (differences.std(0, ddof=1) / np.sqrt(replicates)))
    assert abs(rates - np.log([state.varsigma for state in before])).mean() > 0.2


def summary(state):
    log_rate, log_phi = np.log(state.varsigma), np.log(state.phi)
    return np.array([log_rate, log_rate**2, *log_phi, *(log_rate * log_phi)])


@pytest.mark.parametrize("likelihood", [Regression, Classification])
def test_joint_law_is_invariant(likelihood):
    joint_test(likelihood)


def assert_moves_keep_the_prior(move):
    """Of rate and precisions, where the likelihood is flat."""
    rng = np.random.default_rng(2)
    rates, products = [], []
    for _ in range(2_000):
        state = prior_draw(rng, 1.0)
        rate, phi, _ = move(state.varsigma, state.phi, lambda phi: 0.0, SCALE, rng)
        rates.append(np.log(rate))
        products.append(rate * phi)
    assert_ks(rates, LAW.cdf)
    for column in np.transpose(products):
        assert_ks(column, stats.gamma(PRIOR.sigma).cdf)


def test_precisions_move_with_the_rate():
    assert_moves_keep_the_prior(move_rate)

    def alone(rate, precisions, *others):
        moved, _, evaluations = move_rate(rate, precisions, *others)
        return moved, precisions, evaluations

    # Planted bug: the precisions stay where they were.
    with pytest.raises(AssertionError):
        assert_moves_keep_the_prior(alone)


def posterior_of_rate(model, prior, monkeypatch):
    """Posterior mean and sd of log varsigma, by the evidence at each value."""
    grid = np.linspace(-4.0, 6.0, 21)
    log_evidence = []
    for log_rate in grid:
        monkeypatch.setattr(composite_fixture, "VARSIGMA", np.exp(log_rate))
        log_evidence.append(brute_force(model).log_evidence)
    weight = np.exp(log_evidence - np.max(log_evidence))
    weight *= stats.norm(np.log(prior.median), prior.sigma).pdf(grid)
    mean = weight @ grid / weight.sum()
    return mean, np.sqrt(weight @ (grid - mean) ** 2 / weight.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "options"), [(regression, {}), (regression, {"collapsed": True}), (classification, {})]
)
def test_six_objects_have_the_posterior_of_brute_force(make, options, monkeypatch):
    prior = kz.LearnedScale(1.5, 1.2)
    mean, sd = posterior_of_rate(make(), prior, monkeypatch)
    given = composite_fixture.OPTIONS | {"varsigma": prior}
    monkeypatch.setattr(composite_fixture, "OPTIONS", given)
    model = make(**options)
    result = kz.fit(
        model, "gibbs", draws=3_000, tune=200, chains=2, cores=1, random_seed=1, progressbar=False
    )
    log_rate = np.log(result["posterior"]["varsigma"].to_numpy())
    assert_mean(log_rate.ravel(), mean, ess=float(az.ess(log_rate)))
    assert np.std(log_rate) == pytest.approx(sd, rel=0.15)


def test_engines_and_refusals():
    model = kz.CompositeKernelRegression.example()
    stack, targets = model["K"].get_value(), model.target_values
    learned = kz.CompositeKernelRegression(stack, targets, varsigma=kz.LearnedScale())
    reasons = kz.engines(learned).frame["reason"]
    assert "cannot learn varsigma" in reasons["VB"]
    assert reasons["Gibbs"] == reasons["NUTS"] == ""
    assert learned.variant.endswith("=LearnedScale(median=10.0, sigma=3.5)")
    result = kz.fit(learned, "gibbs", draws=4, tune=4, chains=1, random_seed=1, progressbar=False)
    assert {*identified(result)} == {"beta", "gamma", "varsigma", "y"}
    with pytest.raises(ValueError, match="'varsigma' argument of CompositeKernelRegression"):
        kz.CompositeKernelRegression(stack, targets, varsigma=0.0)


def test_a_move_keeps_the_products_and_nothing_given_is_modified():
    precisions = np.array([0.5, 2.0])
    precisions.flags.writeable = False
    rng = np.random.default_rng(0)
    rate, moved, evaluations = move_rate(3.0, precisions, lambda phi: -phi.sum(), SCALE, rng)
    np.testing.assert_allclose(rate * moved, 3.0 * precisions)
    assert rate != 3.0
    assert evaluations >= 2
