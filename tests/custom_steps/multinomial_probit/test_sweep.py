import numpy as np
import pytest

from kernelzoo.custom_steps.moves import metropolis
from kernelzoo.custom_steps.moves.metropolis import (
    initial_concentration_tuning,
    initial_weight_tuning,
)
from kernelzoo.custom_steps.multinomial_probit import albert_chib as probit_sweep
from kernelzoo.custom_steps.multinomial_probit.albert_chib import Moves, Tuning, sweep
from kernelzoo.models.combinations.sums import Mean
from kernelzoo.models.multinomial_probit import Composition
from probit_fixture import (
    LABELS,
    N_KERNELS,
    PRIOR,
    STACK,
    Prior,
    State,
    joint_test,
    prior_draw,
)

ALL = Tuning(
    weights=initial_weight_tuning(N_KERNELS),
    concentrations=initial_concentration_tuning(N_KERNELS),
)


def of_sum(stack):
    return Composition(Mean(PRIOR.mu, PRIOR.lam), np.ones(len(stack)), stack)


def sweep_state(state, labels, composition, prior, rng, **options):
    values = (state._asdict(), labels, composition, prior.tau, prior.upsilon, rng)
    new, info = sweep(*values, **options)
    return State(**new), info


def sweep_test(replicates=1_000, **options):
    composition = of_sum(STACK)
    options = {"tuning": ALL, "moves": Moves(2)} | options

    def transition(state, labels, rng):
        return sweep_state(state, labels, composition, PRIOR, rng, **options)[0]

    joint_test(transition, replicates)


@pytest.mark.parametrize(
    "options",
    [
        {"replicates": 3_000},
        {"tuning": Tuning()},
        {"tuning": Tuning(weights=ALL.weights)},
    ],
    ids=["all", "W and zeta", "all but rho"],
)
def test_joint_law_is_invariant(options):
    sweep_test(**options)


@pytest.mark.slow
def test_joint_law_is_invariant_in_a_long_run():
    sweep_test(replicates=30_000)


@pytest.mark.slow
def test_wrong_degrees_of_freedom_are_detected(monkeypatch):
    correct = probit_sweep.draw_variances
    monkeypatch.setattr(
        probit_sweep, "draw_variances", lambda W, tau, up, rng: correct(W, tau - 0.5, up, rng)
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

    correct = probit_sweep.sample_cone
    monkeypatch.setattr(probit_sweep, "sample_cone", stale)
    with pytest.raises(AssertionError):
        sweep_test()


@pytest.mark.slow
def test_wrong_dirichlet_ratio_is_detected(monkeypatch):
    monkeypatch.setattr(metropolis, "log_weights_density", lambda lb, rho: float((rho - 1) @ lb))
    with pytest.raises(AssertionError):
        sweep_test(replicates=3_000)


@pytest.mark.slow
def test_wrong_shift_is_detected(monkeypatch):
    """Planted bug: the shift forgets that classes differ in their variances."""

    def unweighted(W, zeta, rng):
        precision = (1 / zeta).sum(axis=0)
        return W - W.mean(axis=0) + rng.standard_normal(len(precision)) / np.sqrt(precision)

    monkeypatch.setattr(probit_sweep, "draw_shift", unweighted)
    with pytest.raises(AssertionError):
        sweep_test()


def test_raw_features_leave_the_chain_finite():
    rng = np.random.default_rng(0)
    x = 2e3 * rng.normal(size=(40, 3))
    labels = np.digitize(x[:, 0], [-800.0, 800.0])
    composition, prior = of_sum((x @ x.T)[None]), Prior(tau=3.0, upsilon=0.6)
    state = State(np.zeros((3, 40)), np.full((3, 40), 0.2), np.ones(1), np.ones(1))
    for _ in range(30):
        state, _ = sweep_state(
            *(state, labels, composition, prior, rng), tuning=Tuning(), moves=Moves()
        )
        assert all(np.isfinite(value).all() for value in state)


def test_nothing_given_is_modified():
    rng = np.random.default_rng(1)
    state, labels = prior_draw(rng), LABELS
    kept = [value.copy() for value in state]
    for value in state:
        value.flags.writeable = False
    options = {"tuning": ALL, "moves": Moves()}
    new, info = sweep_state(state, labels, of_sum(STACK), PRIOR, rng, **options)
    for before, value, after in zip(kept, state, new, strict=True):
        np.testing.assert_array_equal(before, value)
        assert not np.shares_memory(value, after)
    assert 0 <= info.weights <= 1


def test_regressors_are_drawn_with_the_weights_of_their_sweep(monkeypatch):
    """Bug: with those of the sweep before."""
    seen = []

    def remember(y, zeta, composite, gram, rng):
        seen[:] = [composite, gram]
        return correct(y, zeta, composite, gram, rng)

    correct = probit_sweep.draw_regressors
    monkeypatch.setattr(probit_sweep, "draw_regressors", remember)
    rng = np.random.default_rng(1)
    state, labels = prior_draw(rng), LABELS
    options = {"tuning": ALL, "moves": Moves(20)}
    new, _ = sweep_state(state, labels, of_sum(STACK), PRIOR, rng, **options)
    assert not np.array_equal(new.beta, state.beta)
    composite, gram = seen
    np.testing.assert_allclose(composite, np.tensordot(new.beta, STACK, axes=1))
    np.testing.assert_allclose(gram, composite.T @ composite)
