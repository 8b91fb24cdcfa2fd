"""The sweep with Y, zeta and rho integrated out: gradient, joint law, planted bugs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from kernelzoo.custom_steps.block import ValueMap
from kernelzoo.custom_steps.multinomial_probit import kernel_coordinates
from kernelzoo.custom_steps.multinomial_probit import marginal as probit_marginal_sweep
from kernelzoo.custom_steps.multinomial_probit.kernel_coordinates import (
    GammaMixture,
    KernelCoordinates,
)
from kernelzoo.custom_steps.multinomial_probit.marginal import Target, marginal_sweep
from kernelzoo.models.combinations.sums import FixedWeights, Mean
from kernelzoo.models.multinomial_probit import Composition
from probit_fixture import (
    LABELS,
    N_CLASSES,
    PRIOR,
    STACK,
    WEIGHTS,
    State,
    declaration,
    joint_test,
    prior_draw,
)


def target(*, learn_weights=True, size=1.0):
    """The fixture's target; kernels of a larger size have short axes."""
    composition = Composition(Mean(PRIOR.mu, PRIOR.lam), np.full(2, np.nan), size * STACK)
    if not learn_weights:
        composition = Composition(FixedWeights(), WEIGHTS, size * STACK, learned=False)
    kernels = KernelCoordinates.of(composition)
    return Target.of(kernels, LABELS, N_CLASSES, PRIOR.tau, PRIOR.upsilon)


def sweep_test(*, learn_weights=True, replicates=1_000, seed=1):
    prototype = target(learn_weights=learn_weights)

    def transition(state, labels, rng):
        now = replace(prototype, labels=labels)
        if not learn_weights:
            now = replace(now, known=np.tensordot(state.beta, STACK, axes=1))
        new, _ = marginal_sweep(state._asdict(), now, rng, step=0.4, length=1.5)
        return state._replace(**new)

    joint_test(transition, replicates, seed)


@pytest.mark.parametrize("learn_weights", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_joint_law_is_invariant(learn_weights):
    sweep_test(learn_weights=learn_weights)


@pytest.mark.slow
def test_joint_law_is_invariant_in_a_long_run():
    sweep_test(replicates=30_000, seed=2)


@pytest.mark.slow
def test_wrong_acceptance_ratio_is_detected(monkeypatch):
    """Planted bug: the acceptance ratio forgets the potential energy."""
    correct = probit_marginal_sweep.hamiltonian_move

    def kinetic_only(log_density, *args):
        def flat(position):
            value, gradient = log_density(position)
            return (0.0 if np.isfinite(value) else value), gradient

        return correct(flat, *args)

    monkeypatch.setattr(probit_marginal_sweep, "hamiltonian_move", kinetic_only)
    with pytest.raises(AssertionError):
        sweep_test(replicates=500)


@pytest.mark.slow
def test_stale_variances_are_detected(monkeypatch):
    """Planted bug: W is shifted given the variances of the sweep before."""
    correct, memory = probit_marginal_sweep.draw_shift, []

    def stale(W, zeta, rng):
        memory.append(zeta)
        return correct(W, memory[-2:][0], rng)

    monkeypatch.setattr(probit_marginal_sweep, "draw_shift", stale)
    with pytest.raises(AssertionError):
        sweep_test(replicates=4_000)


@pytest.mark.slow
def test_stale_concentrations_are_detected(monkeypatch):
    """Planted bug: rho, integrated out of the move of the weights, is not drawn anew."""
    memory = []

    def remember(shape, rng):
        memory.append(shape)
        return correct(shape, rng)

    def stale(self, log_g, rng):
        return np.full(len(log_g), memory[-1] / len(log_g))

    correct = kernel_coordinates.log_gamma_draw
    monkeypatch.setattr(kernel_coordinates, "log_gamma_draw", remember)
    monkeypatch.setattr(GammaMixture, "draw_concentrations", stale)
    with pytest.raises(AssertionError):
        sweep_test(replicates=500)


@pytest.mark.slow
def test_wrong_exponent_of_the_concentrations_is_detected(monkeypatch):
    """Planted bug: the factor 1 / Gamma(rho) = rho / Gamma(rho + 1) loses its rho."""
    correct = GammaMixture.draw_concentrations

    def wrong(self, log_g, rng):
        return correct(replace(self, mu=self.mu - 1), log_g, rng)

    monkeypatch.setattr(GammaMixture, "draw_concentrations", wrong)
    with pytest.raises(AssertionError):
        sweep_test(replicates=500)


@pytest.mark.slow
def test_missing_sum_of_the_gammas_is_detected(monkeypatch):
    """Planted bug: beta itself is taken for g, as if the sum were always one."""
    monkeypatch.setattr(kernel_coordinates, "log_gamma_draw", lambda shape, rng: 0.0)
    with pytest.raises(AssertionError):
        sweep_test(replicates=500)


@pytest.mark.parametrize("size", [1.0, 8.0])
@pytest.mark.parametrize("learn_weights", [True, False])
def test_gradient(learn_weights, size):
    now = target(learn_weights=learn_weights, size=size)
    assert (len(now.lengths) > 0) == (size > 1)
    rng = np.random.default_rng(1)
    for scale in (0.1, 1.0, 3.0):
        position = scale * rng.normal(size=len(now.scale))
        _, gradient = now.log_density(position)
        numeric = [
            (now.log_density(position + e)[0]) - now.log_density(position - e)[0]
            for e in 1e-5 * np.eye(len(position))
        ]
        numeric = np.array(numeric) / 2e-5
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def log_jacobian(now, W):
    """Log |dW/dx|, up to a constant."""
    return 0.5 * np.log1p((W / (now.bend * now.spread)) ** 2).sum()


def declared_log_density(model):
    """The declaration's log density as a function of its variables on their own scale."""
    to_point = ValueMap(model, model.free_RVs).unconstrain
    log_density = model.compile_logp(jacobian=False, mode="FAST_COMPILE")
    return lambda **values: float(log_density(to_point(values)))


def log_variances_given_regressors(zeta, W):
    law = stats.invgamma(PRIOR.tau + 0.5, scale=PRIOR.upsilon + W**2 / 2)
    return law.logpdf(zeta).sum()


def log_concentrations_given(log_g, rho):
    """Log density of rho | log g, normalised by adaptive quadrature."""

    def kernel(r, at):
        return PRIOR.mu * np.log(r) + (at - PRIOR.lam) * r - gammaln(r + 1)

    total = 0.0
    for at, r in zip(log_g, rho, strict=True):
        mass = integrate.quad(lambda x, at=at: np.exp(kernel(x, at)), 0, np.inf, epsabs=0)[0]
        total += kernel(r, at) - np.log(mass)
    return total


def test_density_is_that_of_the_declaration():
    """What the declaration says of all variables, less the law of those integrated out.

    The declaration's log density of (rho, beta, zeta, W), with the law of sum g beside it, is the
    marginal's of (log g, W) plus those of zeta | W and rho | log g: at any zeta and rho, up to one
    constant.
    """
    log_density, now = declared_log_density(declaration()), target()
    rng, constants = np.random.default_rng(2), []
    for _ in range(4):
        position = rng.normal(size=len(now.scale))
        W, z = now.regressors(position), now.split(position)[1]
        log_g, _ = now.kernels.mixture.log_gamma(z)
        beta, total = kernel_coordinates.simplex(log_g), np.exp(log_g).sum()
        zeta, rho = 1 / rng.gamma(2.0, size=W.shape), rng.gamma(2.0, size=len(beta))
        joint = log_density(rho=rho, beta=beta, zeta=zeta, W=W)
        joint += stats.gamma(rho.sum()).logpdf(total) - (len(beta) - 1) * np.log(total)
        joint += log_g.sum()  # from g to log g
        marginal = joint - log_variances_given_regressors(zeta, W)
        marginal -= log_concentrations_given(log_g, rho)
        ours = now.log_density(position)[0] - log_jacobian(now, W)
        ours -= np.log(np.cosh(z)).sum()
        constants.append(ours - marginal)
    np.testing.assert_allclose(constants, constants[0], rtol=0, atol=1e-6)


def test_density_with_fixed_weights_is_that_of_the_declaration():
    log_density = declared_log_density(declaration(learn_weights=False))
    now, rng, constants = target(learn_weights=False), np.random.default_rng(2), []
    for _ in range(4):
        position = 2 * rng.normal(size=len(now.scale))
        W = now.regressors(position)
        zeta = 1 / rng.gamma(2.0, size=W.shape)
        marginal = log_density(zeta=zeta, W=W) - log_variances_given_regressors(zeta, W)
        ours = now.log_density(position)[0] - log_jacobian(now, W)
        constants.append(ours - marginal)
    np.testing.assert_allclose(constants, constants[0], rtol=0, atol=1e-7)


@pytest.mark.parametrize("size", [1.0, 8.0])
def test_coordinates_go_there_and_back(size):
    now = target(size=size)
    position = 3 * np.random.default_rng(1).normal(size=len(now.scale))
    x, z = now.split(position)
    rng = np.random.default_rng(2)
    values = now.kernels.values(z, rng) | {"W": now.regressors(position)}
    back, u = now.split(now.position(values, rng))
    np.testing.assert_allclose(back, x, atol=1e-12)
    # sum g is drawn anew: the weights alone come back.
    again = now.kernels.values(u, rng)
    np.testing.assert_allclose(again["beta"], values["beta"], rtol=1e-12)


def test_positions_out_of_range_have_no_density():
    now = target()
    for size in (1e3, 1e5, np.inf, np.nan):
        value, gradient = now.log_density(np.full(len(now.scale), size))
        assert value == -np.inf
        assert not gradient.any()


def test_kernels_of_large_entries_are_no_obstacle():
    """The mass matrix knows the kernels' scale: raw features move as normalised ones do."""
    rng = np.random.default_rng(0)
    x = 1e3 * rng.normal(size=(30, 3))
    labels = np.digitize(x[:, 0], [-400.0, 400.0])
    kernels = KernelCoordinates.of(
        Composition(FixedWeights(), np.ones(1), (x @ x.T)[None], learned=False)
    )
    now = Target.of(kernels, labels, 3, 3.0, 0.6)
    values = {"W": np.zeros((3, 30)), "zeta": np.full((3, 30), 0.2)}
    acceptance = []
    for _ in range(30):
        values, info = marginal_sweep(values, now, rng, step=0.02, length=1.0)
        assert all(np.isfinite(value).all() for value in values.values())
        acceptance.append(info.acceptance)
    assert np.mean(acceptance) > 0.3


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    state = prior_draw(rng)
    copies = [value.copy() for value in state]
    for value in state:
        value.flags.writeable = False
    new, info = marginal_sweep(state._asdict(), target(), rng, step=0.3, length=1.0)
    for before, value, after in zip(copies, state, State(**new), strict=True):
        np.testing.assert_array_equal(before, value)
        assert not np.shares_memory(value, after)
    assert 0 <= info.acceptance <= 1
