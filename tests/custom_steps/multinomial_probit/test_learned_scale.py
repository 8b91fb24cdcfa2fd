"""A learned upsilon: the declaration, both samplers against prior and quadrature, refusals."""

from dataclasses import replace

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import ndtr

import kernelzoo as kz
from family import assert_ks, assert_mean, assert_z
from kernelzoo.custom_steps.moves.ellipse import draw_rate, move_rate
from kernelzoo.custom_steps.moves.hamiltonian import Move
from kernelzoo.custom_steps.moves.metropolis import (
    initial_concentration_tuning,
    initial_weight_tuning,
)
from kernelzoo.custom_steps.multinomial_probit import conditionals, marginal
from kernelzoo.custom_steps.multinomial_probit.albert_chib import Moves, Tuning, sweep
from kernelzoo.custom_steps.multinomial_probit.kernel_coordinates import KernelCoordinates
from kernelzoo.custom_steps.multinomial_probit.marginal import (
    MarginalProbit,
    Target,
    marginal_sweep,
)
from kernelzoo.inference.engine.paper import identified
from kernelzoo.models.combinations.sums import Binary, FixedWeights, Mean
from kernelzoo.models.multinomial_probit import Composition
from probit_fixture import (
    LABELS,
    N_CLASSES,
    N_KERNELS,
    PRIOR,
    STACK,
    draw_labels,
    functionals,
    prior_draw,
)

ALL = Tuning(0, initial_weight_tuning(N_KERNELS), initial_concentration_tuning(N_KERNELS))
COMPOSITION = Composition(Mean(PRIOR.mu, PRIOR.lam), np.full(N_KERNELS, np.nan), STACK)
KNOWN = Composition(FixedWeights(), np.array([0.3, 0.7]), STACK, learned=False)
SCALE = kz.LearnedScale(median=0.7, sigma=0.6)


def drawn_with_rate(rng):
    """Draw (state, upsilon) from the prior."""
    state = prior_draw(rng)
    upsilon = SCALE.median * np.exp(SCALE.sigma * rng.standard_normal())
    # The fixture's variances have the rate PRIOR.upsilon.
    ratio = upsilon / PRIOR.upsilon
    return state._replace(zeta=state.zeta * ratio, W=state.W * np.sqrt(ratio)), upsilon


def target(composition=COMPOSITION):
    return Target.of(KernelCoordinates.of(composition), LABELS, N_CLASSES, PRIOR.tau, SCALE)


def by_marginal_scheme():
    prototype = target()

    def transition(values, labels, rng):
        now = replace(prototype, labels=labels)
        return marginal_sweep(values, now, rng, step=0.4, length=1.5)[0]

    return transition


def by_papers_scheme():
    def transition(values, labels, rng):
        given = (values, labels, COMPOSITION, PRIOR.tau, SCALE, rng)
        return sweep(*given, tuning=ALL, moves=Moves(2))[0]

    return transition


def joint_test(transition, replicates=1_000):
    """Labels given parameters, sweep given labels, twice: the joint law stays that of the prior."""
    rng = np.random.default_rng(4)
    starts, first, ends, last, rates = [], [], [], [], []
    for _ in range(replicates):
        state, upsilon = drawn_with_rate(rng)
        starts.append(state)
        first.append(draw_labels(state, rng))
        before = np.log(upsilon)
        for _ in range(2):
            labels = draw_labels(state, rng)
            new = transition({**state._asdict(), "upsilon": np.asarray(upsilon)}, labels, rng)
            upsilon = new.pop("upsilon")
            state = state._replace(**new)
        ends.append(state)
        last.append(labels)
        rates.append((before, np.log(upsilon)))
    before, after = np.array(rates).T
    law = stats.norm(np.log(SCALE.median), SCALE.sigma)
    assert_ks(after, law.cdf)
    # The size of the regressors follows the rate, whatever the rate is.
    size = np.log([np.abs(state.W).mean() for state in ends]) - after / 2
    began = np.log([np.abs(state.W).mean() for state in starts]) - before / 2
    # And so do the variances.
    variances = np.array([np.log(state.zeta).mean() for state in ends]) - after
    drawn = np.array([np.log(state.zeta).mean() for state in starts]) - before
    differences = functionals(ends, last) - functionals(starts, first)
    further = [size - began, size * after - began * before, variances**2 - drawn**2]
    differences = np.column_stack([differences, *further])
    differences = differences[:, differences.any(axis=0)]
    error = differences.std(axis=0, ddof=1) / np.sqrt(replicates)
    assert_z(differences.mean(axis=0) / error)
    assert np.abs(after - before).mean() > 0.05


@pytest.mark.parametrize("scheme", [by_marginal_scheme, by_papers_scheme])
def test_joint_law_is_invariant(scheme):
    joint_test(scheme())


def alternate(prior):
    """Logarithms of rates after forty turns of zeta | upsilon and upsilon | zeta."""
    rng, ends = np.random.default_rng(5), []
    for _ in range(500):
        upsilon = SCALE.median * np.exp(SCALE.sigma * rng.standard_normal())
        for _ in range(40):
            zeta = upsilon / rng.gamma(PRIOR.tau, size=(2, 3))
            upsilon = draw_rate(upsilon, 1 / zeta, PRIOR.tau, prior, rng)
        ends.append(float(np.log(upsilon)))
    return ends


def test_the_rate_given_variances_keeps_its_prior():
    law = stats.norm(np.log(SCALE.median), SCALE.sigma)
    assert_ks(alternate(SCALE), law.cdf)
    # Planted bug: the proposal is always accepted.
    with pytest.raises(AssertionError):
        assert_ks(alternate(kz.LearnedScale(SCALE.median, 1e6)), law.cdf)


def test_a_move_under_another_prior_is_detected(monkeypatch):
    def wider(*args):
        *others, prior, rng = args
        return move_rate(*others, replace(prior, sigma=2 * prior.sigma), rng)

    monkeypatch.setattr(conditionals, "move_rate", wider)
    with pytest.raises(AssertionError):
        joint_test(by_marginal_scheme(), replicates=400)


@pytest.mark.parametrize("composition", [COMPOSITION, KNOWN], ids=["learned", "known"])
def test_gradient(composition):
    now = target(composition)
    rng = np.random.default_rng(1)
    for size in (0.1, 1.0, 2.0):
        position = size * rng.normal(size=len(now.scale))
        _, gradient = now.log_density(position)
        steps = 1e-5 * np.eye(len(position))
        rises = [now.log_density(position + e)[0] - now.log_density(position - e)[0] for e in steps]
        np.testing.assert_allclose(gradient, np.array(rises) / 2e-5, rtol=1e-5, atol=1e-5)


def test_coordinates_follow_the_scale(monkeypatch):
    """The curvature along the first axes grows with the scale of the regressors."""
    shortest = []

    def move(log_density, position, *rest):
        shortest.append(log_density.func.__self__.lengths.min(initial=1.0))
        return Move(position, 1.0, 1)

    monkeypatch.setattr(marginal, "hamiltonian_move", move)
    rng = np.random.default_rng(2)
    state, _ = drawn_with_rate(rng)
    for upsilon in (1.0, 1e2, 1e4):
        values = {**state._asdict(), "upsilon": np.asarray(upsilon)}
        marginal_sweep(values, target(), rng, step=0.4, length=1.5)
    reach = target().principal[0].max() * np.array([1.0, 1e2, 1e4]) / PRIOR.tau
    np.testing.assert_allclose(shortest, 1 / np.sqrt(1 + marginal.STIFFNESS * reach), rtol=0.05)


def test_the_scale_moves_given_the_selection_after_its_move(monkeypatch):
    rule = Binary()
    composition = Composition(rule, np.full(N_KERNELS, np.nan), STACK)
    now = Target.of(KernelCoordinates.of(composition), LABELS, N_CLASSES, PRIOR.tau, SCALE)
    before, after, seen = np.array([1.0, 0.0]), np.array([0.0, 1.0]), []

    def annealed(beta, position, *rest, **options):
        return marginal.Selected(after, position, 1.0, 0)

    def scaled(W, f, *rest):
        seen.append((W, f))
        return W, 1.0

    monkeypatch.setattr(marginal, "annealed_move", annealed)
    monkeypatch.setattr(marginal, "move_scale", scaled)
    rng = np.random.default_rng(3)
    state, upsilon = drawn_with_rate(rng)
    values = {"W": state.W, "zeta": state.zeta, "beta": before, "upsilon": np.asarray(upsilon)}
    new, _ = marginal_sweep(values, now, rng, step=0.1, length=0.5)
    ((W, f),) = seen
    np.testing.assert_array_equal(new["beta"], after)
    np.testing.assert_allclose(f, STACK[1] @ W.T)


def six_objects(labels=(0, 0, 1, 0, 1, 1), **options):
    """Two classes and one kernel with two functions, whose posterior quadrature can find."""
    x = np.array([-2.0, -1.0, -0.2, 0.3, 1.1, 1.8])
    functions = np.stack([x, np.ones(6)], axis=1)
    kernel = kz.kernels.as_stack({"x": functions})
    model = kz.MultinomialProbit(kernel, [*labels], tau=2.0, **options)
    return model, functions, np.array(labels)


def by_quadrature(functions, labels, prior, low=-5.0, high=9.0):
    """Posterior mean and sd of log upsilon: regressors from their prior, averaged at each rate."""
    rng = np.random.default_rng(0)
    standard = rng.standard_t(4.0, size=(100_000, 2, 2)) / np.sqrt(2.0)
    # Of two classes, the difference of the scores has a normal error of variance 2.
    differences = (standard[:, 1] - standard[:, 0]) @ functions.T * (2 * labels - 1) / np.sqrt(2)
    likelihood, grid = [], np.linspace(low, high, 57)
    for log_rate in grid:
        likelihood.append(ndtr(np.exp(log_rate / 2) * differences).prod(axis=1).mean())
    weight = np.array(likelihood) * stats.norm(np.log(prior.median), prior.sigma).pdf(grid)
    weight /= weight.sum()
    mean = weight @ grid
    return mean, np.sqrt(weight @ (grid - mean) ** 2)


@pytest.mark.parametrize("scheme", ["marginal", pytest.param("paper", marks=pytest.mark.slow)])
def test_six_objects_have_the_posterior_of_quadrature(scheme):
    prior = kz.LearnedScale(2.0, 1.5)
    model, functions, labels = six_objects(upsilon=prior)
    mean, sd = by_quadrature(functions, labels, prior)
    options = {"draws": 1_000, "tune": 200, "chains": 2, "cores": 1, "progressbar": False}
    result = kz.fit(model, kz.Gibbs(scheme=scheme), random_seed=1, **options)
    log_rate = np.log(result["posterior"]["upsilon"].to_numpy())
    assert_mean(log_rate.ravel(), mean, ess=float(az.ess(log_rate)))
    assert np.std(log_rate) == pytest.approx(sd, rel=0.2)


@pytest.mark.parametrize("scheme", ["marginal", "paper"])
def test_classes_that_do_not_overlap_let_the_scale_grow(scheme):
    """Their likelihood is flat at large scales, which the prior alone bounds."""
    model, functions, labels = six_objects([0, 0, 0, 1, 1, 1], upsilon=kz.LearnedScale())
    mean, sd = by_quadrature(functions, labels, kz.LearnedScale(), -12.0, 17.0)
    options = {"draws": 500, "tune": 200, "chains": 2, "cores": 1, "progressbar": False}
    gibbs = kz.Gibbs(scheme=scheme)
    log_rate = np.log(kz.fit(model, gibbs, random_seed=1, **options)["posterior"]["upsilon"])
    ess = float(az.ess(log_rate.to_numpy()))
    assert ess > 200
    assert_mean(log_rate.to_numpy().ravel(), mean, ess=ess)
    assert float(log_rate.std()) == pytest.approx(sd, rel=0.15)


def test_the_declaration_has_it_as_a_variable():
    model, *_ = six_objects(upsilon=kz.LearnedScale())
    assert [rv.name for rv in model.free_RVs] == ["upsilon", "zeta", "W"]
    assert model.variant.endswith("=LearnedScale(median=10.0, sigma=3.5)")
    prior = pm.draw(model["upsilon"], 4_000, random_seed=1)
    assert_ks(np.log(prior), stats.norm(np.log(10), 3.5).cdf)
    low, high = stats.norm(np.log(10), 3.5).ppf([0.025, 0.975])
    assert np.exp([low, high]) == pytest.approx([0.01, 1e4], rel=0.1)
    known, *_ = six_objects(upsilon=3.0)
    assert [rv.name for rv in known.free_RVs] == ["zeta", "W"]


def test_engines_and_predictions():
    model, functions, _ = six_objects(upsilon=kz.LearnedScale())
    reasons = kz.engines(model).frame["reason"]
    assert reasons["VB"] == reasons["Gibbs"] == reasons["NUTS"] == ""
    by_vb = kz.fit(model, "vb", draws=5, progressbar=False, random_seed=1)
    assert by_vb["posterior"]["upsilon"].shape == (1, 5)
    result = kz.fit(model, "gibbs", draws=5, tune=5, chains=1, progressbar=False, random_seed=1)
    assert result["posterior"]["upsilon"].shape == (1, 5)
    assert {*identified(result)} == {"contrast", "upsilon"}
    new = functions[None, :2]
    assert kz.predict(model, result, new, progressbar=False)["probability"].shape == (2, 2)
    other, *_ = six_objects(upsilon=kz.LearnedScale(median=3.0))
    with pytest.raises(ValueError, match="the prior of upsilon"):
        kz.predict(other, result, new)
    with pytest.raises(ValueError, match=r"'vars' argument of MarginalProbit.*upsilon"), model:
        MarginalProbit(["W", "zeta"])


@pytest.mark.parametrize("wrong", [{"median": 0.0}, {"sigma": -1.0}, {"sigma": np.inf}])
def test_priors_that_are_not_proper_are_refused(wrong):
    with pytest.raises(ValueError, match="argument of LearnedScale must be a finite number above"):
        kz.LearnedScale(**wrong)
    with pytest.raises(ValueError, match="'upsilon' argument of MultinomialProbit"):
        six_objects(upsilon="learned")
