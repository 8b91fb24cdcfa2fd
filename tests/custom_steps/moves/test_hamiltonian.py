import numpy as np
import pytest
from pymc.step_methods.step_sizes import DualAverageAdaptation
from scipy import stats

from family import assert_ks, assert_mean
from kernelzoo.custom_steps.moves.hamiltonian import MOST_STEPS, hamiltonian_move

SD = np.array([0.2, 1.0, 5.0])


def normal(position):
    return -0.5 * float(np.sum((position / SD) ** 2)), -position / SD**2


def half_normal(position):
    value, gradient = normal(position)
    return (value if position[0] > 0 else -np.inf), gradient


def moved(log_density, step, n=4_000):
    """Stationary start, one move each."""
    rng = np.random.default_rng(1)
    start = SD * rng.standard_normal((n, 3))
    if log_density is half_normal:
        start[:, 0] = np.abs(start[:, 0])
    scale = np.array([0.3, 1.0, 3.0])
    moves = [hamiltonian_move(log_density, x, scale, step, 2.0, rng) for x in start]
    return start, np.array([move.position for move in moves]), moves


@pytest.mark.parametrize("step", [0.3, 1.2])
def test_normal_law_is_invariant(step):
    start, end, moves = moved(normal, step)
    for column, sd in zip(end.T, SD, strict=True):
        assert_ks(column, stats.norm(scale=sd).cdf)
    radius = np.sum((end / SD) ** 2, axis=1)
    assert_ks(radius, stats.chi2(3).cdf)
    assert_mean(radius - np.sum((start / SD) ** 2, axis=1), 0.0)
    assert 0.3 < np.mean([move.acceptance for move in moves]) < 1


def test_short_steps_keep_the_energy():
    _, _, moves = moved(normal, 0.01, n=20)
    assert min(move.acceptance for move in moves) > 0.999


def test_bounded_support_is_kept():
    _, end, _ = moved(half_normal, 0.5)
    assert (end[:, 0] > 0).all()
    assert_ks(end[:, 0], stats.halfnorm(scale=SD[0]).cdf)


def test_too_long_a_step_is_refused_without_a_warning():
    rng = np.random.default_rng(1)
    start = np.ones(3)
    with np.errstate(all="raise"):
        move = hamiltonian_move(normal, start, np.full(3, 1e3), 1e3, 1e6, rng)
    assert move.position is start
    assert move.acceptance == 0


@pytest.mark.parametrize("step", [1e-300, 1e300, np.inf])
def test_any_step_makes_a_move_of_bounded_cost(step):
    rng = np.random.default_rng(1)
    move = hamiltonian_move(normal, np.ones(3), np.ones(3), step, 2.0, rng)
    assert 2 <= move.steps <= MOST_STEPS + 1
    assert np.isfinite(move.position).all()


def test_wrong_gradient_leaves_the_law_invariant():
    """The acceptance step alone makes the law right: any field may drive the trajectory."""

    def crooked(position):
        value, gradient = normal(position)
        return value, 0.7 * gradient

    _, end, _ = moved(crooked, 0.3)
    for column, sd in zip(end.T, SD, strict=True):
        assert_ks(column, stats.norm(scale=sd).cdf)


def test_step_is_tuned_to_its_target():
    rng, x = np.random.default_rng(1), np.zeros(3)
    tuning = DualAverageAdaptation(1e-3, 0.75, gamma=0.05, k=0.75, t0=10)
    for _ in range(400):
        move = hamiltonian_move(normal, x, SD, tuning.current(tune=True), 2.0, rng)
        tuning.update(move.acceptance, tune=True)
        x = move.position
    accepted = []
    for _ in range(400):
        move = hamiltonian_move(normal, x, SD, tuning.current(tune=False), 2.0, rng)
        x = move.position
        accepted.append(move.acceptance)
    assert 0.6 < np.mean(accepted) < 0.95
