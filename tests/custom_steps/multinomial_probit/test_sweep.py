"""Albert and Chib's sweep: joint law with the prior, and what it draws W with."""

import numpy as np
import pytest

from kernelzoo.custom_steps.multinomial_probit import albert_chib
from kernelzoo.custom_steps.multinomial_probit.albert_chib import sweep
from kernelzoo.models.combinations.sums import Mean
from kernelzoo.models.multinomial_probit import Composition
from probit_fixture import LABELS, PRIOR, STACK, Prior, State, joint_test, prior_draw


def of_sum(stack):
    return Composition(Mean(PRIOR.mu, PRIOR.lam), np.ones(len(stack)), stack)


def sweep_state(state, labels, composition, prior, rng):
    values = state._asdict()
    return State(**values | sweep(values, labels, composition, prior.tau, prior.upsilon, rng))


def sweep_test(replicates=1_000):
    composition = of_sum(STACK)
    joint_test(lambda *now: sweep_state(*now[:2], composition, PRIOR, now[2]), replicates)


def test_joint_law_is_invariant():
    sweep_test()


@pytest.mark.slow
def test_joint_law_is_invariant_in_a_long_run():
    sweep_test(replicates=30_000)


@pytest.mark.slow
def test_wrong_degrees_of_freedom_are_detected(monkeypatch):
    correct = albert_chib.draw_variances
    monkeypatch.setattr(
        albert_chib, "draw_variances", lambda W, tau, up, rng: correct(W, tau - 0.5, up, rng)
    )
    with pytest.raises(AssertionError):
        sweep_test()


def test_stale_latent_utilities_are_detected(monkeypatch):
    """Planted bug: every second sweep reuses the Y of the sweep before it."""
    memory = []

    def stale(f, t, rng):
        if memory:
            return memory.pop()
        memory.append(correct(f, t, rng))
        return memory[0]

    correct = albert_chib.sample_cone
    monkeypatch.setattr(albert_chib, "sample_cone", stale)
    with pytest.raises(AssertionError):
        sweep_test()


@pytest.mark.slow
def test_wrong_shift_is_detected(monkeypatch):
    """Planted bug: the shift forgets that classes differ in their variances."""

    def unweighted(W, zeta, rng):
        precision = (1 / zeta).sum(axis=0)
        return W - W.mean(axis=0) + rng.standard_normal(len(precision)) / np.sqrt(precision)

    monkeypatch.setattr(albert_chib, "draw_shift", unweighted)
    with pytest.raises(AssertionError):
        sweep_test()


def test_raw_features_leave_the_chain_finite():
    rng = np.random.default_rng(0)
    x = 2e3 * rng.normal(size=(40, 3))
    labels = np.digitize(x[:, 0], [-800.0, 800.0])
    composition, prior = of_sum((x @ x.T)[None]), Prior(tau=3.0, upsilon=0.6)
    state = State(np.zeros((3, 40)), np.full((3, 40), 0.2), np.ones(1), np.ones(1))
    for _ in range(30):
        state = sweep_state(state, labels, composition, prior, rng)
        assert all(np.isfinite(value).all() for value in state)


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    state = prior_draw(rng)
    kept = [value.copy() for value in state]
    for value in state:
        value.flags.writeable = False
    new = sweep_state(state, LABELS, of_sum(STACK), PRIOR, rng)
    for before, value in zip(kept, state, strict=True):
        np.testing.assert_array_equal(before, value)
    for name in ("W", "zeta"):
        assert not np.shares_memory(getattr(state, name), getattr(new, name))
