"""The sweep with Y, zeta and rho integrated out: gradient, joint law, planted bugs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from kernelzoo.custom_steps import probit_marginal
from kernelzoo.custom_steps.gamma_mixture import GammaMixture
from kernelzoo.custom_steps.probit_marginal import Target, marginal_sweep
from kernelzoo.custom_steps.probit_sweep import Prior, State
from kernelzoo.models.probit import log_probability
from probit_fixture import N_CLASSES, N_OBJECTS, PRIOR, STACK, joint_test, prior_draw

LABELS = np.arange(N_OBJECTS) % N_CLASSES
WEIGHTS = np.array([0.3, 0.7])


def target(labels=LABELS, *, learn_weights=True):
    return Target.of(STACK, labels, N_CLASSES, PRIOR, learn_weights=learn_weights)


def sweep_test(*, learn_weights=True, replicates=3_000, seed=1):
    prototype = target(learn_weights=learn_weights)

    def transition(state, labels, rng):
        now = replace(prototype, labels=labels)
        return marginal_sweep(state, now, rng, step=0.4, length=1.5)[0]

    joint_test(transition, replicates, seed)


@pytest.mark.parametrize("learn_weights", [True, False])
def test_joint_law_is_invariant(learn_weights):
    sweep_test(learn_weights=learn_weights)


@pytest.mark.slow
def test_joint_law_is_invariant_in_a_long_run():
    sweep_test(replicates=30_000, seed=2)


def test_missing_jacobian_is_detected(monkeypatch):
    """Planted bug: the density of W is taken for that of its coordinates."""
    correct = Target.log_density

    def without(self, position, beta):
        value, gradient = correct(self, position, beta)
        x, _ = self._split(position)
        v = x @ self.axes.T / self.bend
        gradient = gradient.copy()
        gradient[: x.size] -= (np.tanh(v) / self.bend @ self.axes).ravel()
        return value - np.log(np.cosh(v)).sum(), gradient

    monkeypatch.setattr(Target, "log_density", without)
    with pytest.raises(AssertionError):
        sweep_test()


def test_wrong_acceptance_ratio_is_detected(monkeypatch):
    """Planted bug: the acceptance ratio forgets the potential energy."""
    correct = probit_marginal.hamiltonian_move

    def kinetic_only(log_density, *args):
        def flat(position):
            value, gradient = log_density(position)
            return (0.0 if np.isfinite(value) else value), gradient

        return correct(flat, *args)

    monkeypatch.setattr(probit_marginal, "hamiltonian_move", kinetic_only)
    with pytest.raises(AssertionError):
        sweep_test()


def test_stale_variances_are_detected(monkeypatch):
    """Planted bug: W is shifted given the variances of the sweep before."""
    correct, memory = probit_marginal.draw_shift, []

    def stale(W, zeta, rng):
        memory.append(zeta)
        return correct(W, memory[-2:][0], rng)

    monkeypatch.setattr(probit_marginal, "draw_shift", stale)
    with pytest.raises(AssertionError):
        sweep_test()


def test_stale_concentrations_are_detected(monkeypatch):
    """Planted bug: rho, integrated out of the move of the weights, is not drawn anew."""
    memory = []

    def remember(shape, rng):
        memory.append(shape)
        return correct(shape, rng)

    def stale(self, log_g, rng):
        return np.full(len(log_g), memory[-1] / len(log_g))

    correct = probit_marginal.log_gamma_draw
    monkeypatch.setattr(probit_marginal, "log_gamma_draw", remember)
    monkeypatch.setattr(GammaMixture, "draw_concentrations", stale)
    with pytest.raises(AssertionError):
        sweep_test()


def test_wrong_exponent_of_the_concentrations_is_detected(monkeypatch):
    """Planted bug: the factor 1 / Gamma(rho) = rho / Gamma(rho + 1) loses its rho."""
    correct = GammaMixture.draw_concentrations

    def wrong(self, log_g, rng):
        return correct(replace(self, mu=self.mu - 1), log_g, rng)

    monkeypatch.setattr(GammaMixture, "draw_concentrations", wrong)
    with pytest.raises(AssertionError):
        sweep_test()


def test_missing_sum_of_the_gammas_is_detected(monkeypatch):
    """Planted bug: beta itself is taken for g, as if the sum were always one."""
    monkeypatch.setattr(probit_marginal, "log_gamma_draw", lambda shape, rng: 0.0)
    with pytest.raises(AssertionError):
        sweep_test()


@pytest.mark.parametrize("learn_weights", [True, False])
def test_gradient(learn_weights):
    now = target(learn_weights=learn_weights)
    rng = np.random.default_rng(1)
    for scale in (0.1, 1.0, 3.0):
        position = scale * rng.normal(size=len(now.scale))
        _, gradient = now.log_density(position, WEIGHTS)
        numeric = [
            (now.log_density(position + e, WEIGHTS)[0] - now.log_density(position - e, WEIGHTS)[0])
            / 2e-5
            for e in 1e-5 * np.eye(len(position))
        ]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def test_density_is_that_of_the_declaration():
    """Log density minus log |dW/dx| is the likelihood plus Student's t, up to one constant."""
    now = target(learn_weights=False)
    rng = np.random.default_rng(2)
    student = stats.t(2 * PRIOR.tau, scale=np.sqrt(PRIOR.upsilon / PRIOR.tau))
    constants = []
    for _ in range(5):
        position = 2 * rng.normal(size=len(now.scale))
        W, _ = now.values(position)
        f = np.einsum("s,snm,cm->nc", WEIGHTS, STACK, W)
        jacobian = 0.5 * np.log1p((W / (now.bend * now.spread)) ** 2).sum()
        exact = log_probability(f, LABELS).sum() + student.logpdf(W).sum() + jacobian
        constants.append(now.log_density(position, WEIGHTS)[0] - exact)
    np.testing.assert_allclose(constants, constants[0], rtol=0, atol=1e-7)


def test_coordinates_go_there_and_back():
    now = target()
    position = 3 * np.random.default_rng(1).normal(size=len(now.scale))
    np.testing.assert_allclose(now.coordinates(*now.values(position)), position, atol=1e-12)


def test_positions_out_of_range_have_no_density():
    now = target()
    for size in (1e3, 1e5, np.inf, np.nan):
        value, gradient = now.log_density(np.full(len(now.scale), size), WEIGHTS)
        assert value == -np.inf
        assert not gradient.any()


def test_kernels_of_large_entries_are_no_obstacle():
    """The mass matrix knows the kernels' scale: raw features move as normalised ones do."""
    rng = np.random.default_rng(0)
    x = 1e3 * rng.normal(size=(30, 3))
    labels = np.digitize(x[:, 0], [-400.0, 400.0])
    prior = Prior(tau=3.0, upsilon=0.6)
    now = Target.of((x @ x.T)[None], labels, 3, prior, learn_weights=False)
    state = State(np.zeros((3, 30)), np.full((3, 30), 0.2), np.ones(1), np.ones(1))
    acceptance = []
    for _ in range(30):
        state, info = marginal_sweep(state, now, rng, step=0.02, length=1.0)
        assert all(np.isfinite(value).all() for value in state)
        acceptance.append(info.acceptance)
    assert np.mean(acceptance) > 0.3


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    state = prior_draw(rng)
    kept = [value.copy() for value in state]
    for value in state:
        value.flags.writeable = False
    new, info = marginal_sweep(state, target(), rng, step=0.3, length=1.0)
    for before, value, after in zip(kept, state, new, strict=True):
        np.testing.assert_array_equal(before, value)
        assert not np.shares_memory(value, after)
    assert 0 <= info.acceptance <= 1
