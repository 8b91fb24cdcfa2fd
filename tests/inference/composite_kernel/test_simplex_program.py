"""The quadratic programme on the simplex: optimal, also where the quadratic is singular."""

import numpy as np
import pytest
from scipy.optimize import minimize

from kernelzoo.inference.composite_kernel.map import maximize_on_simplex


def problem(seed, n_weights, rank, spread=0.0):
    """b, A of the given rank, its columns of scales that differ by `spread`, and a point."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(rank, n_weights)) * np.exp(spread * rng.normal(size=n_weights))
    return Z.T @ rng.normal(size=rank), Z.T @ Z, rng.dirichlet(np.ones(n_weights))


def value(beta, b, A):
    return b @ beta - beta @ A @ beta / 2


def gap(beta, b, A):
    """What a step towards the best vertex promises, relative to A: zero at the maximum alone."""
    slope = b - A @ beta
    return (slope.max() - slope @ beta) / (np.trace(A) / len(b))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("n_weights", "rank", "spread"),
    [(2, 2, 0), (2, 1, 0), (3, 3, 0), (3, 1, 0), (6, 4, 1), (10, 30, 0), (60, 5, 1), (90, 90, 0)],
)
def test_answer_is_on_the_simplex_and_optimal(seed, n_weights, rank, spread):
    b, A, near = problem(seed, n_weights, rank, spread)
    beta = maximize_on_simplex(b, A, near)
    assert (beta >= 0).all()
    np.testing.assert_allclose(beta.sum(), 1, rtol=1e-14)
    assert gap(beta, b, A) <= 1e-9


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n_weights", "rank"), [(2, 1), (3, 3), (5, 2), (8, 20)])
def test_second_solver_finds_nothing_better(seed, n_weights, rank):
    b, A, near = problem(seed, n_weights, rank)
    other = minimize(
        lambda beta: -value(beta, b, A),
        near,
        jac=lambda beta: A @ beta - b,
        method="SLSQP",
        bounds=[(0, 1)] * n_weights,
        constraints={"type": "eq", "fun": lambda beta: beta.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    ).x
    ours = maximize_on_simplex(b, A, near)
    np.testing.assert_allclose(value(ours, b, A), value(other, b, A), atol=1e-6)
    if rank >= n_weights:
        np.testing.assert_allclose(ours, other, atol=1e-4)


def test_weights_that_vanish_are_zero():
    b, A, near = problem(1, 40, 60)
    beta = maximize_on_simplex(b, A, near)
    slope = b - A @ beta
    idle = slope < slope.max() - 1e-6 * np.abs(slope).max()
    assert idle.sum() > 10
    assert (beta[idle] == 0).all()
    assert (beta[~idle] > 1e-6).all()


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scale_of_the_objective_does_not_matter(scale):
    b, A, near = problem(2, 5, 7)
    np.testing.assert_allclose(
        maximize_on_simplex(scale * b, scale * A, near),
        maximize_on_simplex(b, A, near),
        atol=1e-8,
    )


def test_point_that_cannot_be_bettered_is_kept():
    near = np.array([0.2, 0.8])
    assert maximize_on_simplex(np.zeros(2), np.zeros((2, 2)), near) is near
    b, A, _ = problem(3, 4, 9)
    best = maximize_on_simplex(b, A, np.full(4, 0.25))
    again = maximize_on_simplex(b, A, best)
    assert value(again, b, A) >= value(best, b, A) - 1e-15 * np.abs(b).max()
    # What is no number is not taken for an answer.
    assert maximize_on_simplex(np.full(4, np.nan), A, best) is best


def exact(b, A):
    """Maximise over two weights: the derivative in the second vanishes, or it is 0 or 1."""
    second = (b[1] - b[0] + A[0, 0] - A[0, 1]) / (A[0, 0] - 2 * A[0, 1] + A[1, 1])
    second = np.clip(second, 0, 1)
    return np.array([1 - second, second])


def test_two_weights_meet_the_closed_form():
    for seed in range(20):
        b, A, near = problem(seed, 2, 2)
        np.testing.assert_allclose(maximize_on_simplex(b, A, near), exact(b, A), atol=1e-9)


def test_rounding_does_not_lead_downhill():
    for seed in range(50):
        b, A, _ = problem(seed, 2, 2)
        near = exact(b, A)
        beta = maximize_on_simplex(b, A, near)
        # The gain itself: as a difference of two values it would be lost in rounding.
        assert (beta - near) @ (b - A @ (near + beta) / 2) >= 0
